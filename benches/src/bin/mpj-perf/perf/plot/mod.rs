//! Pictures of what was measured, as SVG: panels below each other, under a title, the machine and the date.

mod dots;
mod labels;
mod lines;
mod machine;
mod style;

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

pub(super) use self::dots::{Dots, Row};
pub(super) use self::lines::{Curve, Lines};
pub(super) use self::machine::described as machine;
pub(super) use self::style::Look;
use super::Failure;

const WIDTH: f64 = 1280.0;
/// The left end of titles.
const MARGIN: f64 = 32.0;
/// Above the first panel.
const HEAD: f64 = 104.0;

/// A figure and its spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    /// What is typical: the median.
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A part of a picture.
#[derive(Debug)]
pub(super) enum Panel {
    Lines(Lines),
    Dots(Dots),
}

/// A picture.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) title: String,
    /// How it was measured.
    pub(super) how: String,
    pub(super) panels: Vec<Panel>,
}

impl Page {
    /// Draws the picture into a file.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        Ok(fs::write(path, self.svg()).map_err(|why| format!("{}: {why}", path.display()))?)
    }

    fn svg(&self) -> String {
        let mut svg = String::new();
        // Writing into a string cannot fail.
        let _ = self.draw(&mut svg);
        svg
    }

    fn draw(&self, svg: &mut String) -> fmt::Result {
        let height = HEAD + self.panels.iter().map(Panel::height).sum::<f64>() + 24.0;
        writeln!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif">"#
        )?;
        writeln!(svg, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
        text(svg, (MARGIN, 42.0), r#"font-size="25" font-weight="bold""#, &self.title)?;
        text(svg, (MARGIN, 68.0), r##"font-size="15" fill="#444""##, &self.how)?;
        text(svg, (MARGIN, 90.0), r##"font-size="15" fill="#444""##, &machine::described())?;
        let mut top = HEAD;
        for panel in &self.panels {
            match panel {
                Panel::Lines(lines) => lines.draw(svg, top)?,
                Panel::Dots(dots) => dots.draw(svg, top)?,
            }
            top += panel.height();
        }
        writeln!(svg, "</svg>")
    }
}

impl Panel {
    fn height(&self) -> f64 {
        match self {
            Panel::Lines(_) => lines::HEIGHT,
            Panel::Dots(dots) => dots.height(),
        }
    }
}

/// A logarithmic axis: the values at its ends, and where these are in the picture.
#[derive(Clone, Copy, Debug)]
struct Axis {
    values: (f64, f64),
    places: (f64, f64),
}

impl Axis {
    /// An axis around some values, of which those that are not above 0 do not count.
    fn around(values: impl Iterator<Item = f64>, places: (f64, f64), whole_decades: bool) -> Axis {
        let above = values.filter(|value| *value > 0.0 && value.is_finite());
        let (low, high) =
            above.fold((f64::INFINITY, 0f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 10.0) };
        let values = match whole_decades {
            true => (decade(low.log10().floor()), decade(high.max(low * 1.01).log10().ceil())),
            false => (low, if high > low { high } else { low * 2.0 }),
        };
        Axis { values, places }
    }

    fn at(&self, value: f64) -> f64 {
        let ((low, high), (first, last)) = (self.values, self.places);
        let share = (value.clamp(low, high) / low).ln() / (high / low).ln();
        first + (last - first) * share
    }

    /// The powers of ten on the axis.
    fn decades(&self) -> impl Iterator<Item = f64> + use<> {
        let (low, high) = self.values;
        let (first, last) = (low.log10().ceil() as i32, (high * 1.001).log10().floor() as i32);
        (first..=last).map(|power| decade(f64::from(power)))
    }
}

fn decade(power: f64) -> f64 {
    10f64.powf(power)
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, text: &str) -> fmt::Result {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" {attributes}>{text}</text>"#)
}

/// Returns a number with as many digits as it needs.
fn short(value: f64) -> String {
    match value {
        ..0.000_999 => format!("{value:.1e}"),
        ..0.999 => format!("{value:.3}").trim_end_matches('0').to_owned(),
        ..9_999.0 => format!("{value:.0}"),
        ..999_999.0 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.0}M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, short};

    #[test]
    fn axes_hold_what_they_are_around() {
        let axis = Axis::around([0.0, 3.0, 700.0].into_iter(), (100.0, 0.0), true);
        assert_eq!((axis.at(1.0), axis.at(1000.0)), (100.0, 0.0));
        assert!(axis.decades().map(short).eq(["1", "10", "100", "1000"]));
        assert_eq!([0.05, 20_000.0, 1e7].map(short), ["0.05", "20k", "10M"]);
        // Nothing, or one value, is no reason to divide by 0.
        assert!(Axis::around([].into_iter(), (0.0, 1.0), true).at(5.0).is_finite());
        assert!(Axis::around([8.0].into_iter(), (0.0, 1.0), false).at(8.0).is_finite());
    }
}

//! SVG pictures of measurements.

mod axis;
mod dots;
mod labels;
mod legend;
mod lines;
mod machine;
mod style;

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

pub(super) use self::axis::Scale;
pub(super) use self::dots::{DotRow, Dots, Mark};
pub(super) use self::legend::LegendEntry;
pub(super) use self::lines::{Curve, Lines};
pub(super) use self::machine::description as machine;
pub(super) use self::style::CurveStyle;
use super::Failure;

const MARGIN: f64 = 32.0;

/// A measured value and its spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    /// The median.
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

#[derive(Debug)]
pub(super) enum Panel {
    Lines(Lines),
    Dots(Dots),
}

#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) title: String,
    /// The ranks, the device and the binding.
    pub(super) setting: String,
    /// Notes on the method, one per line.
    pub(super) notes: Vec<String>,
    /// The meanings of curves whose names are not self-explanatory.
    pub(super) legend: Vec<LegendEntry>,
    /// The number of panels side by side: 1 (or 0), 2 or 4.
    pub(super) columns: usize,
    /// Whether all panels of curves have the same axes.
    pub(super) is_one_scale: bool,
    pub(super) panels: Vec<Panel>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    /// Whether names are written next to the ends of curves.
    has_labels: bool,
}

impl Page {
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        Ok(fs::write(path, self.svg()).map_err(|why| format!("{}: {why}", path.display()))?)
    }

    fn svg(&self) -> String {
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = self.draw(&mut svg);
        svg
    }

    fn draw(&self, svg: &mut String) -> fmt::Result {
        let (column, lines_height) = match self.columns {
            4 => (530.0, 430.0),
            2 => (880.0, 560.0),
            _ => (1280.0, 640.0),
        };
        let columns = self.columns.max(1);
        let width = column * columns as f64;
        let mut head = String::new();
        text(&mut head, (MARGIN, 42.0), r#"font-size="25" font-weight="bold""#, &self.title)?;
        let mut top = 68.0;
        let lines =
            [self.setting.clone(), machine::description()].into_iter().chain(self.notes.iter().cloned());
        for line in
            lines.filter(|line| !line.is_empty()).flat_map(|line| wrapped(&line, width - 2.0 * MARGIN, 15.0))
        {
            text(&mut head, (MARGIN, top), r##"font-size="15" fill="#444""##, &line)?;
            top += 21.0;
        }
        for entry in &self.legend {
            entry.draw(&mut head, top)?;
            top += 23.0;
        }
        let mut body = String::new();
        for row in self.panels.chunks(columns) {
            let height = row.iter().map(|panel| panel.height(lines_height)).fold(0.0, f64::max);
            for (at, panel) in row.iter().enumerate() {
                let left = at as f64 * column;
                let has_labels = columns < 4;
                panel.draw(&mut body, Frame { left, top, width: column, height, has_labels }, self)?;
            }
            top += height;
        }
        let height = top + 16.0;
        writeln!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif">"#
        )?;
        writeln!(svg, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
        svg.push_str(&head);
        svg.push_str(&body);
        writeln!(svg, "</svg>")
    }

    /// Returns the points that determine the axes of a panel.
    fn axis_points<'a>(&'a self, own: &'a Lines) -> Vec<Point> {
        let lines = self.panels.iter().filter_map(|panel| match panel {
            Panel::Lines(lines) if self.is_one_scale => Some(lines),
            _ => None,
        });
        let all = lines.flat_map(Lines::points).chain(own.points());
        all.collect()
    }
}

impl Panel {
    fn height(&self, lines: f64) -> f64 {
        match self {
            Panel::Lines(_) => lines,
            Panel::Dots(dots) => dots.height(),
        }
    }

    fn draw(&self, svg: &mut String, frame: Frame, page: &Page) -> fmt::Result {
        match self {
            Panel::Lines(lines) => lines.draw(svg, frame, &page.axis_points(lines)),
            Panel::Dots(dots) => dots.draw(svg, frame),
        }
    }
}

/// Returns the approximate width of a text.
fn text_width(text: &str, font_size: f64) -> f64 {
    0.58 * font_size * text.chars().count() as f64
}

fn wrapped(text: &str, width: f64, font_size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if text_width(line, font_size) + text_width(word, font_size) < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, text: &str) -> fmt::Result {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" {attributes}>{text}</text>"#)
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 60.0, 15.0), ["one two", "three"]);
        assert_eq!(wrapped("", 60.0, 15.0), [""]);
    }
}

//! Panels of rows, with a marker for each figure and a line for its spread.

use std::fmt::{self, Write as _};

use super::axis::{Axis, Scale, short};
use super::{CurveStyle, Frame, MARGIN, Point, text, text_width};

const ROW: f64 = 22.0;
const RIGHT: f64 = 40.0;
/// For the title and the legend.
const TOP: f64 = 72.0;

#[derive(Debug)]
pub(crate) struct Dots {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    /// The meanings of the markers of each row, in order.
    pub(crate) marks: Vec<Mark>,
    pub(crate) rows: Vec<DotRow>,
}

/// The meaning and the style of a marker, and its offset from the middle of the row.
#[derive(Debug)]
pub(crate) struct Mark(pub(crate) &'static str, pub(crate) CurveStyle, pub(crate) f64);

#[derive(Debug)]
pub(crate) struct DotRow {
    pub(crate) name: String,
    /// A figure for each mark. Its `x` is unused.
    pub(crate) points: Vec<Point>,
}

impl Dots {
    pub(super) fn height(&self) -> f64 {
        TOP + ROW * self.rows.len() as f64 + 76.0
    }

    pub(super) fn draw(&self, svg: &mut String, frame: Frame) -> fmt::Result {
        let (top, bottom) = (frame.top + TOP, frame.top + TOP + ROW * self.rows.len() as f64);
        let names = self.rows.iter().map(|row| text_width(&row.name, 14.0));
        let left = frame.left + MARGIN + names.fold(0.0, f64::max) + 12.0;
        let right = frame.left + frame.width - RIGHT;
        let values = self.rows.iter().flat_map(|row| row.points.iter().map(|point| point.y));
        let x = Axis::around(values, Scale::Logarithmic, (left, right));
        text(
            svg,
            (frame.left + MARGIN, frame.top + 28.0),
            r#"font-size="18" font-weight="bold""#,
            &self.title,
        )?;
        let mut place = frame.left + MARGIN + 6.0;
        for Mark(name, style, _) in &self.marks {
            style.mark(svg, (place, frame.top + 51.0))?;
            text(svg, (place + 12.0, frame.top + 56.0), r#"font-size="15""#, name)?;
            place += 40.0 + text_width(name, 15.0);
        }
        for (value, is_main) in x.marks() {
            let place = x.at(value);
            let (line, name, font) = if is_main { ("#ccc", "black", 15) } else { ("#eee", "#888", 13) };
            writeln!(svg, r#"<path d="M{place:.1} {top:.1}V{bottom:.1}" stroke="{line}" fill="none"/>"#)?;
            let attributes = format!(r#"font-size="{font}" fill="{name}" text-anchor="middle""#);
            text(svg, (place, bottom + 20.0), &attributes, &short(value))?;
        }
        for (index, row) in self.rows.iter().enumerate() {
            self.row(svg, row, top + ROW * (index as f64 + 0.5), x, (left, right))?;
        }
        text(svg, (left.midpoint(right), bottom + 46.0), r#"font-size="15" text-anchor="middle""#, self.x)
    }

    fn row(&self, svg: &mut String, row: &DotRow, y: f64, x: Axis, (left, right): (f64, f64)) -> fmt::Result {
        text(svg, (left - 12.0, y + 5.0), r#"font-size="14" text-anchor="end""#, &row.name)?;
        writeln!(svg, r##"<path d="M{left:.1} {y:.1}H{right:.1}" stroke="#f2f2f2" fill="none"/>"##)?;
        let shown = || self.marks.iter().zip(&row.points).filter(|(_, point)| point.y > 0.0);
        for (Mark(_, style, offset), point) in shown().filter(|(_, point)| point.low > 0.0) {
            writeln!(
                svg,
                r#"<path d="M{:.1} {:.1}H{:.1}" stroke="{}" stroke-width="2" stroke-opacity="0.4" fill="none"/>"#,
                x.at(point.low),
                y + offset,
                x.at(point.high),
                style.colour
            )?;
        }
        // In reverse order, so that the first marker, the subject of the picture, is on top.
        for (Mark(_, style, offset), point) in shown().collect::<Vec<_>>().into_iter().rev() {
            style.mark(svg, (x.at(point.y), y + offset))?;
        }
        Ok(())
    }
}

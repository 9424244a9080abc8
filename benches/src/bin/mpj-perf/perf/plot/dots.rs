//! Panels of rows, with a marker for each value and a line for its spread.

use std::fmt::{self, Write as _};

use super::axis::{Axis, Scale, tick_label};
use super::{CurveStyle, Frame, MARGIN, Point, text, text_width};

const ROW_HEIGHT: f64 = 22.0;
const RIGHT: f64 = 40.0;
/// The height of the title and the legend.
const TOP: f64 = 72.0;

#[derive(Debug)]
pub(crate) struct Dots {
    pub(crate) title: String,
    pub(crate) x_label: &'static str,
    /// The meanings of the markers of each row, in order.
    pub(crate) marks: Vec<Mark>,
    pub(crate) rows: Vec<DotRow>,
}

/// The meaning and the style of a marker, and its distance below the middle of its row.
#[derive(Debug)]
pub(crate) struct Mark(pub(crate) &'static str, pub(crate) CurveStyle, pub(crate) f64);

#[derive(Debug)]
pub(crate) struct DotRow {
    pub(crate) name: String,
    /// A value for each marker, in `y`; `x` is unused.
    pub(crate) points: Vec<Point>,
}

impl Dots {
    pub(super) fn height(&self) -> f64 {
        TOP + ROW_HEIGHT * self.rows.len() as f64 + 76.0
    }

    pub(super) fn draw(&self, svg: &mut String, frame: Frame) -> fmt::Result {
        let (top, bottom) = (frame.top + TOP, frame.top + TOP + ROW_HEIGHT * self.rows.len() as f64);
        let names = self.rows.iter().map(|row| text_width(&row.name, 14.0));
        let left = frame.left + MARGIN + names.fold(0.0, f64::max) + 12.0;
        let right = frame.left + frame.width - RIGHT;
        let values = self.rows.iter().flat_map(|row| row.points.iter().map(|point| point.y));
        let x_axis = Axis::of_values(values, Scale::Logarithmic, (left, right));
        text(
            svg,
            (frame.left + MARGIN, frame.top + 28.0),
            r#"font-size="18" font-weight="bold""#,
            &self.title,
        )?;
        let mut place = frame.left + MARGIN + 6.0;
        for Mark(name, style, _) in &self.marks {
            style.draw_marker(svg, (place, frame.top + 51.0))?;
            text(svg, (place + 12.0, frame.top + 56.0), r#"font-size="15""#, name)?;
            place += 40.0 + text_width(name, 15.0);
        }
        for (value, is_main) in x_axis.ticks() {
            let place = x_axis.position_of(value);
            let (line_colour, label_colour, font_size) =
                if is_main { ("#ccc", "black", 15) } else { ("#eee", "#888", 13) };
            writeln!(
                svg,
                r#"<path d="M{place:.1} {top:.1}V{bottom:.1}" stroke="{line_colour}" fill="none"/>"#
            )?;
            let attributes = format!(r#"font-size="{font_size}" fill="{label_colour}" text-anchor="middle""#);
            text(svg, (place, bottom + 20.0), &attributes, &tick_label(value))?;
        }
        for (index, row) in self.rows.iter().enumerate() {
            self.row(svg, row, top + ROW_HEIGHT * (index as f64 + 0.5), x_axis, (left, right))?;
        }
        text(
            svg,
            (left.midpoint(right), bottom + 46.0),
            r#"font-size="15" text-anchor="middle""#,
            self.x_label,
        )
    }

    fn row(
        &self,
        svg: &mut String,
        row: &DotRow,
        y: f64,
        x_axis: Axis,
        (left, right): (f64, f64),
    ) -> fmt::Result {
        text(svg, (left - 12.0, y + 5.0), r#"font-size="14" text-anchor="end""#, &row.name)?;
        writeln!(svg, r##"<path d="M{left:.1} {y:.1}H{right:.1}" stroke="#f2f2f2" fill="none"/>"##)?;
        let shown = || self.marks.iter().zip(&row.points).filter(|(_, point)| point.y > 0.0);
        for (Mark(_, style, offset), point) in shown().filter(|(_, point)| point.low > 0.0) {
            writeln!(
                svg,
                r#"<path d="M{:.1} {:.1}H{:.1}" stroke="{}" stroke-width="2" stroke-opacity="0.4" fill="none"/>"#,
                x_axis.position_of(point.low),
                y + offset,
                x_axis.position_of(point.high),
                style.colour
            )?;
        }
        // In reverse order, so that the first marker, the subject of the picture, is on top.
        for (Mark(_, style, offset), point) in shown().collect::<Vec<_>>().into_iter().rev() {
            style.draw_marker(svg, (x_axis.position_of(point.y), y + offset))?;
        }
        Ok(())
    }
}

//! Figures of named things: a row for each, a marker for each figure, and a line over its spread.

use std::fmt::{self, Write as _};

use super::{Axis, Look, MARGIN, Point, WIDTH, text};

/// Of a row.
const ROW: f64 = 21.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = WIDTH - 40.0;
/// Above the rows: the title and the legend.
const TOP: f64 = 64.0;

/// A panel of rows.
#[derive(Debug)]
pub(crate) struct Dots {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    /// What the markers of each row stand for, in order.
    pub(crate) marks: Vec<(&'static str, Look)>,
    pub(crate) rows: Vec<Row>,
}

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// A figure for each mark; its `x` is not used.
    pub(crate) points: Vec<Point>,
}

impl Dots {
    pub(super) fn height(&self) -> f64 {
        TOP + ROW * self.rows.len() as f64 + 84.0
    }

    pub(super) fn draw(&self, svg: &mut String, at: f64) -> fmt::Result {
        let (top, bottom) = (at + TOP, at + TOP + ROW * self.rows.len() as f64);
        let values = self.rows.iter().flat_map(|row| row.points.iter().map(|point| point.y));
        let x = Axis::around(values, (LEFT, RIGHT), true);
        text(svg, (MARGIN, at + 24.0), r#"font-size="19" font-weight="bold""#, &self.title)?;
        let mut place = LEFT;
        for (name, look) in &self.marks {
            look.mark(svg, (place, at + 46.0))?;
            text(svg, (place + 12.0, at + 51.0), r#"font-size="15""#, name)?;
            place += 40.0 + 8.2 * name.len() as f64;
        }
        for value in x.decades() {
            let place = x.at(value);
            writeln!(svg, r##"<path d="M{place:.1} {top}V{bottom}" stroke="#ccc" fill="none"/>"##)?;
            for part in [2.0, 5.0].map(|times| times * value).into_iter().filter(|part| *part < x.values.1) {
                let place = x.at(part);
                writeln!(svg, r##"<path d="M{place:.1} {top}V{bottom}" stroke="#eee" fill="none"/>"##)?;
                let attributes = r##"font-size="13" fill="#888" text-anchor="middle""##;
                text(svg, (place, bottom + 20.0), attributes, &super::short(part))?;
            }
            let attributes = r#"font-size="15" text-anchor="middle""#;
            text(svg, (place, bottom + 20.0), attributes, &super::short(value))?;
        }
        for (index, row) in self.rows.iter().enumerate() {
            self.row(svg, row, top + ROW * (index as f64 + 0.5), x)?;
        }
        let middle = LEFT.midpoint(RIGHT);
        text(svg, (middle, bottom + 46.0), r#"font-size="16" text-anchor="middle""#, self.x)
    }

    fn row(&self, svg: &mut String, row: &Row, y: f64, x: Axis) -> fmt::Result {
        text(svg, (LEFT - 12.0, y + 5.0), r#"font-size="14" text-anchor="end""#, &row.name)?;
        writeln!(svg, r##"<path d="M{LEFT} {y:.1}H{RIGHT}" stroke="#f2f2f2" fill="none"/>"##)?;
        let shown = || self.marks.iter().zip(&row.points).filter(|(_, point)| point.y > 0.0);
        for ((_, look), point) in shown().filter(|(_, point)| point.low > 0.0) {
            writeln!(
                svg,
                r#"<path d="M{:.1} {y:.1}H{:.1}" stroke="{}" stroke-width="2" stroke-opacity="0.4" fill="none"/>"#,
                x.at(point.low),
                x.at(point.high),
                look.colour
            )?;
        }
        // The first is what the picture is about, and lies on top.
        for ((_, look), point) in shown().collect::<Vec<_>>().into_iter().rev() {
            look.mark(svg, (x.at(point.y), y))?;
        }
        Ok(())
    }
}

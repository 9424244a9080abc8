//! The styles of curves: dashes, markers, and the colours of Okabe and Ito, which suit colour-blind readers.

use std::fmt::{self, Write as _};

const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
const DASHES: [&str; 4] = ["none", "10 4", "3 3", "12 3 3 3"];
const MARKERS: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CurveStyle {
    pub(super) colour: &'static str,
    pub(super) dashes: &'static str,
    marker: usize,
    pub(super) is_strong: bool,
}

impl CurveStyle {
    /// Returns the style of curve number `index`; the styles repeat after 84 curves.
    pub(crate) fn of(index: usize) -> CurveStyle {
        CurveStyle {
            colour: COLOURS[index % COLOURS.len()],
            dashes: DASHES[index / COLOURS.len() % DASHES.len()],
            marker: index % MARKERS,
            is_strong: false,
        }
    }

    pub(crate) fn with_dashes(self, pattern: usize) -> CurveStyle {
        CurveStyle { dashes: DASHES[pattern % DASHES.len()], ..self }
    }

    /// Returns the same style with a thick line and a bold name, for the subject of the picture.
    pub(crate) fn strong(self) -> CurveStyle {
        CurveStyle { is_strong: true, ..self }
    }

    pub(super) fn draw_marker(self, svg: &mut String, (x, y): (f64, f64)) -> fmt::Result {
        let r = if self.is_strong { 5.5 } else { 4.2 };
        let colour = self.colour;
        let points = |corners: &[(f64, f64)]| {
            let each = corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + r * dx, y + r * dy));
            each.collect::<Vec<_>>().join(" ")
        };
        let polygon = match self.marker {
            0 => return writeln!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="{r}" fill="{colour}"/>"#),
            1 => points(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            2 => points(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
            3 => points(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            4 => points(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
            _ => {
                return writeln!(
                    svg,
                    r#"<circle cx="{x:.1}" cy="{y:.1}" r="{r}" fill="white" stroke="{colour}" stroke-width="2"/>"#
                );
            }
        };
        writeln!(svg, r#"<polygon points="{polygon}" fill="{colour}"/>"#)
    }
}

#[cfg(test)]
mod tests {
    use super::CurveStyle;

    #[test]
    fn styles_are_distinct() {
        let styles: Vec<CurveStyle> = (0..84).map(CurveStyle::of).collect();
        for (at, style) in styles.iter().enumerate() {
            assert!(!styles[..at].contains(style), "{at}");
        }
    }
}

//! The looks of curves: the colours of Okabe and Ito, which are distinct with any colour vision, and dashes and
//! markers, which are distinct without colours.

use std::fmt::{self, Write as _};

const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
const DASHES: [&str; 4] = ["none", "10 4", "3 3", "12 3 3 3"];
const MARKERS: usize = 6;

/// The look of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    pub(super) colour: &'static str,
    pub(super) dashes: &'static str,
    marker: usize,
    pub(super) is_strong: bool,
}

impl Look {
    /// Returns the look of curve number `index`; 84 looks are distinct.
    pub(crate) fn of(index: usize) -> Look {
        Look {
            colour: COLOURS[index % COLOURS.len()],
            dashes: DASHES[index / COLOURS.len() % DASHES.len()],
            marker: index % MARKERS,
            is_strong: false,
        }
    }

    /// Returns the same look with other dashes.
    pub(crate) fn dashed(self, dashes: usize) -> Look {
        Look { dashes: DASHES[dashes % DASHES.len()], ..self }
    }

    /// Returns the same look, drawn strongly, for the subject of the picture.
    pub(crate) fn strong(self) -> Look {
        Look { is_strong: true, ..self }
    }

    /// Draws the marker of the curve.
    pub(super) fn mark(self, svg: &mut String, (x, y): (f64, f64)) -> fmt::Result {
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
    use super::Look;

    #[test]
    fn no_two_looks_are_the_same() {
        let looks: Vec<Look> = (0..84).map(Look::of).collect();
        for (at, look) in looks.iter().enumerate() {
            assert!(!looks[..at].contains(look), "{at}");
        }
    }
}

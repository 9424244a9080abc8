//! The meanings of curves, each in a line above the panels.

use std::fmt::{self, Write as _};

use super::{Look, MARGIN, text};

/// The look, the name and the meaning of a curve.
#[derive(Debug)]
pub(crate) struct Meaning {
    pub(crate) look: Look,
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
}

impl Meaning {
    pub(super) fn draw(&self, svg: &mut String, y: f64) -> fmt::Result {
        let Look { colour, dashes, is_strong, .. } = self.look;
        let (weight, width) = if is_strong { ("bold", 4.0) } else { ("normal", 2.2) };
        let middle = y - 5.0;
        writeln!(
            svg,
            r#"<path d="M{MARGIN} {middle:.1}h36" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}" fill="none"/>"#
        )?;
        self.look.mark(svg, (MARGIN + 18.0, middle))?;
        text(svg, (MARGIN + 46.0, y), &format!(r#"font-size="15" font-weight="{weight}""#), self.name)?;
        text(svg, (MARGIN + 170.0, y), r##"font-size="15" fill="#444""##, self.what)
    }
}

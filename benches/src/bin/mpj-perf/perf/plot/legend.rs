//! The meanings of curves, above the panels.

use std::fmt::{self, Write as _};

use super::{CurveStyle, MARGIN, text};

#[derive(Debug)]
pub(crate) struct LegendEntry {
    pub(crate) style: CurveStyle,
    pub(crate) name: &'static str,
    pub(crate) explanation: &'static str,
}

impl LegendEntry {
    pub(super) fn draw(&self, svg: &mut String, y: f64) -> fmt::Result {
        let CurveStyle { colour, dashes, is_strong, .. } = self.style;
        let (weight, width) = if is_strong { ("bold", 4.0) } else { ("normal", 2.2) };
        let middle = y - 5.0;
        writeln!(
            svg,
            r#"<path d="M{MARGIN} {middle:.1}h36" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}" fill="none"/>"#
        )?;
        self.style.draw_marker(svg, (MARGIN + 18.0, middle))?;
        text(svg, (MARGIN + 46.0, y), &format!(r#"font-size="15" font-weight="{weight}""#), self.name)?;
        text(svg, (MARGIN + 170.0, y), r##"font-size="15" fill="#444""##, self.explanation)
    }
}

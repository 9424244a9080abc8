//! Curves over sizes, both axes logarithmic, each with its spread: a band, or bars where bands would cover each other.

use std::fmt::{self, Write as _};

use super::labels::{LINE, apart};
use super::{Axis, Look, MARGIN, Point, text};
use crate::perf::pools::size;

/// Of a panel.
pub(super) const HEIGHT: f64 = 640.0;
const LEFT: f64 = 104.0;
const RIGHT: f64 = 1010.0;
/// Of the plot within the panel.
const TOP: f64 = 44.0;
const BOTTOM: f64 = 560.0;
/// So many bands can be told apart.
const BANDS: usize = 3;

/// A panel of curves.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) curves: Vec<Curve>,
}

/// One curve.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) label: String,
    pub(crate) look: Look,
    pub(crate) points: Vec<Point>,
}

impl Curve {
    /// The points that a logarithmic axis has a place for.
    fn shown(&self) -> impl Iterator<Item = Point> + Clone + '_ {
        self.points.iter().copied().filter(|point| point.x > 0.0 && point.y > 0.0)
    }
}

impl Lines {
    pub(super) fn draw(&self, svg: &mut String, at: f64) -> fmt::Result {
        let (top, bottom) = (at + TOP, at + BOTTOM);
        let points = || self.curves.iter().flat_map(Curve::shown);
        let x = Axis::around(points().map(|p| p.x), (LEFT, RIGHT), false);
        // Around the figures; a spread that leaves the picture is cut.
        let y = Axis::around(points().map(|p| p.y), (bottom, top), true);
        text(svg, (MARGIN, at + 24.0), r#"font-size="19" font-weight="bold""#, &self.title)?;
        self.grid(svg, (x, y), (top, bottom))?;
        for (index, curve) in self.curves.iter().enumerate() {
            match self.curves.len() {
                ..=BANDS => band(svg, curve, (x, y))?,
                // Beside each other.
                count => bars(svg, curve, (x, y), 1.6 * (index as f64 - (count - 1) as f64 / 2.0))?,
            }
        }
        // What the picture is about lies on top.
        let (strong, others): (Vec<_>, Vec<_>) = self.curves.iter().partition(|curve| curve.look.is_strong);
        for curve in others.into_iter().chain(strong) {
            line(svg, curve, (x, y))?;
        }
        self.labels(svg, y, (top, bottom))
    }

    fn grid(&self, svg: &mut String, (x, y): (Axis, Axis), (top, bottom): (f64, f64)) -> fmt::Result {
        let grey = r##"stroke="#ddd" stroke-width="1" fill="none""##;
        for value in y.decades() {
            let place = y.at(value);
            writeln!(svg, r#"<path d="M{LEFT} {place:.1}H{RIGHT}" {grey}/>"#)?;
            for part in [2.0, 5.0].map(|times| times * value).into_iter().filter(|part| *part < y.values.1) {
                let place = y.at(part);
                writeln!(svg, r##"<path d="M{LEFT} {place:.1}H{RIGHT}" stroke="#f0f0f0" fill="none"/>"##)?;
            }
            let attributes = r#"font-size="15" text-anchor="end""#;
            text(svg, (LEFT - 8.0, place + 5.0), attributes, &super::short(value))?;
        }
        // Powers of two, of which as many are named as there is room for.
        let (low, high) = (x.values.0.log2().ceil() as u32, x.values.1.log2().floor() as u32);
        let each = ((high.saturating_sub(low)) / 12 + 1).max(1);
        for power in (low..=high).step_by(each as usize) {
            let place = x.at(2f64.powi(power as i32));
            writeln!(svg, r#"<path d="M{place:.1} {top}V{bottom}" {grey}/>"#)?;
            let attributes = r#"font-size="15" text-anchor="middle""#;
            text(svg, (place, bottom + 22.0), attributes, &size(1 << power))?;
        }
        writeln!(
            svg,
            r##"<path d="M{LEFT} {top}V{bottom}H{RIGHT}" stroke="#666" stroke-width="1.2" fill="none"/>"##
        )?;
        let middle = top.midpoint(bottom);
        let turned = format!(
            r#"font-size="16" text-anchor="middle" transform="rotate(-90 {:.1} {middle:.1})""#,
            MARGIN + 8.0
        );
        text(svg, (MARGIN + 8.0, middle), &turned, self.y)?;
        text(svg, (LEFT.midpoint(RIGHT), bottom + 48.0), r#"font-size="16" text-anchor="middle""#, self.x)
    }

    /// Writes each curve's name beside its end, moved apart as far as they must be, with its line and marker.
    fn labels(&self, svg: &mut String, y: Axis, range: (f64, f64)) -> fmt::Result {
        let last = |curve: &Curve| curve.shown().last().map(|point| y.at(point.y));
        let mut ends: Vec<_> = self.curves.iter().filter_map(|curve| Some((last(curve)?, curve))).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let places = apart(&ends.iter().map(|(y, _)| *y).collect::<Vec<_>>(), range);
        debug_assert!(places.windows(2).all(|two| two[1] - two[0] > LINE - 1e-6));
        for ((end, curve), place) in ends.into_iter().zip(places) {
            let Look { colour, dashes, is_strong, .. } = curve.look;
            let (weight, width) = if is_strong { ("bold", 4.0) } else { ("normal", 2.2) };
            writeln!(
                svg,
                r#"<path d="M{:.1} {end:.1}L{:.1} {place:.1}" stroke="{colour}" stroke-width="0.8" fill="none"/>"#,
                RIGHT + 6.0,
                RIGHT + 24.0
            )?;
            writeln!(
                svg,
                r#"<path d="M{:.1} {place:.1}h36" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}" fill="none"/>"#,
                RIGHT + 26.0
            )?;
            curve.look.mark(svg, (RIGHT + 44.0, place))?;
            let attributes = format!(r#"font-size="15" font-weight="{weight}""#);
            text(svg, (RIGHT + 70.0, place + 5.0), &attributes, &curve.label)?;
        }
        Ok(())
    }
}

fn band(svg: &mut String, curve: &Curve, (x, y): (Axis, Axis)) -> fmt::Result {
    let spread: Vec<_> = curve.shown().filter(|p| p.low > 0.0 && p.high > p.low).collect();
    if spread.len() < 2 {
        return Ok(());
    }
    let above = spread.iter().map(|p| (p.x, p.high));
    let below = spread.iter().rev().map(|p| (p.x, p.low));
    let corner = |(at, value)| format!("{:.1},{:.1}", x.at(at), y.at(value));
    let outline = above.chain(below).map(corner).collect::<Vec<_>>().join(" ");
    let colour = curve.look.colour;
    writeln!(svg, r#"<polygon points="{outline}" fill="{colour}" fill-opacity="0.10"/>"#)
}

fn bars(svg: &mut String, curve: &Curve, (x, y): (Axis, Axis), beside: f64) -> fmt::Result {
    let colour = curve.look.colour;
    for point in curve.shown().filter(|p| p.low > 0.0 && p.high > p.low) {
        // Within the plot, also at its ends.
        let at = (x.at(point.x) + beside).clamp(LEFT, RIGHT);
        let (low, high) = (y.at(point.low), y.at(point.high));
        writeln!(
            svg,
            r#"<path d="M{at:.1} {low:.1}V{high:.1}" stroke="{colour}" stroke-width="1.2" stroke-opacity="0.45" fill="none"/>"#
        )?;
    }
    Ok(())
}

fn line(svg: &mut String, curve: &Curve, (x, y): (Axis, Axis)) -> fmt::Result {
    let Look { colour, dashes, is_strong, .. } = curve.look;
    let width = if is_strong { 4.0 } else { 2.2 };
    let places: Vec<_> = curve.shown().map(|point| (x.at(point.x), y.at(point.y))).collect();
    let points = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
    writeln!(
        svg,
        r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}" stroke-linejoin="round"/>"#
    )?;
    places.into_iter().try_for_each(|place| curve.look.mark(svg, place))
}

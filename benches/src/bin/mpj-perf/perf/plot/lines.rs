//! Panels of curves over sizes, with bars for the spread.

use std::fmt::{self, Write as _};

use super::axis::{Axis, Scale, tick_label};
use super::labels::{LABEL_HEIGHT, spread_out};
use super::{CurveStyle, Frame, MARGIN, Point, text, text_width};
use crate::perf::pools::size;

// Distances of the plot from the edges of the frame.
const LEFT: f64 = 88.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 74.0;
// Widths to the right of the plot: line samples before the names of the curves, and the margin after them.
const SAMPLES: f64 = 78.0;
const EDGE: f64 = 24.0;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) title: String,
    /// Can be empty.
    pub(crate) finding: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) scale: Scale,
    pub(crate) curves: Vec<Curve>,
}

#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) label: String,
    pub(crate) style: CurveStyle,
    pub(crate) points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
struct Plot {
    x: Axis,
    y: Axis,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Curve {
    /// Returns the points that a logarithmic axis can show.
    fn shown(&self) -> impl Iterator<Item = Point> + Clone + '_ {
        self.points.iter().copied().filter(|point| point.x > 0.0 && point.y > 0.0)
    }
}

impl Lines {
    pub(super) fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.curves.iter().flat_map(Curve::shown)
    }

    /// Draws the panel. Its axes contain the points in `around`.
    pub(super) fn draw(&self, svg: &mut String, frame: Frame, around: &[Point]) -> fmt::Result {
        let (left, top, bottom) = (frame.left + LEFT, frame.top + TOP, frame.top + frame.height - BOTTOM);
        let names = self.curves.iter().map(|curve| text_width(&curve.label, 15.0)).fold(0.0, f64::max);
        let right = frame.left + frame.width - if frame.has_labels { SAMPLES + names + EDGE } else { EDGE };
        let x = Axis::of_sizes(around.iter().map(|point| point.x), (left, right));
        // The axis contains the medians; bars that exceed it are cut.
        let y = Axis::of_values(around.iter().map(|point| point.y), self.scale, (bottom, top));
        let plot = Plot { x, y, left, right, top, bottom };
        text(
            svg,
            (frame.left + MARGIN, frame.top + 28.0),
            r#"font-size="18" font-weight="bold""#,
            &self.title,
        )?;
        text(svg, (frame.left + MARGIN, frame.top + 49.0), r##"font-size="14" fill="#444""##, &self.finding)?;
        self.grid(svg, plot)?;
        let shift = 4.0f64.min(14.0 / self.curves.len() as f64);
        for (index, curve) in self.curves.iter().enumerate() {
            // Shift the bars, so that they do not overlap.
            let offset = shift * (index as f64 - (self.curves.len() - 1) as f64 / 2.0);
            bars(svg, curve, plot, offset)?;
        }
        // The subject of the picture is on top.
        let (strong, others): (Vec<_>, Vec<_>) = self.curves.iter().partition(|curve| curve.style.is_strong);
        for curve in others.into_iter().chain(strong) {
            line(svg, curve, (x, y))?;
        }
        if frame.has_labels { self.labels(svg, plot) } else { Ok(()) }
    }

    fn grid(&self, svg: &mut String, Plot { x, y, left, right, top, bottom }: Plot) -> fmt::Result {
        let ticks = y.ticks();
        let mains = ticks.iter().filter(|(_, is_main)| *is_main).count();
        for (value, is_main) in ticks {
            let place = y.position_of(value);
            let grey = if is_main { "#ddd" } else { "#f0f0f0" };
            writeln!(svg, r#"<path d="M{left:.1} {place:.1}H{right:.1}" stroke="{grey}" fill="none"/>"#)?;
            // With few powers of ten, label the ticks between them, too.
            if is_main || mains <= 2 {
                let attributes = r#"font-size="14" text-anchor="end""#;
                text(svg, (left - 8.0, place + 5.0), attributes, &tick_label(value))?;
            }
        }
        // Label every n-th power of two, so that the labels fit.
        let (low, high) = (x.values.0.log2().ceil() as u32, x.values.1.log2().floor() as u32);
        let max_labels = ((right - left) / 74.0) as u32;
        let each = ((high.saturating_sub(low)) / max_labels.max(1) + 1).max(1);
        for power in (low..=high).step_by(each as usize) {
            let place = x.position_of(2f64.powi(power as i32));
            writeln!(svg, r##"<path d="M{place:.1} {top:.1}V{bottom:.1}" stroke="#ddd" fill="none"/>"##)?;
            let attributes = r#"font-size="14" text-anchor="middle""#;
            text(svg, (place, bottom + 21.0), attributes, &size(1 << power))?;
        }
        writeln!(
            svg,
            r##"<path d="M{left:.1} {top:.1}V{bottom:.1}H{right:.1}" stroke="#666" stroke-width="1.2" fill="none"/>"##
        )?;
        let (label_x, middle) = (left - 56.0, top.midpoint(bottom));
        let rotated = format!(
            r#"font-size="15" text-anchor="middle" transform="rotate(-90 {label_x:.1} {middle:.1})""#
        );
        text(svg, (label_x, middle), &rotated, self.y)?;
        text(svg, (left.midpoint(right), bottom + 46.0), r#"font-size="15" text-anchor="middle""#, self.x)
    }

    /// Writes the name of each curve next to its end.
    fn labels(&self, svg: &mut String, Plot { y, right, top, bottom, .. }: Plot) -> fmt::Result {
        let last = |curve: &Curve| curve.shown().last().map(|point| y.position_of(point.y));
        let mut ends: Vec<_> = self.curves.iter().filter_map(|curve| Some((last(curve)?, curve))).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let places = spread_out(&ends.iter().map(|(y, _)| *y).collect::<Vec<_>>(), (top, bottom));
        debug_assert!(places.windows(2).all(|two| two[1] - two[0] > LABEL_HEIGHT - 1e-6));
        for ((end, curve), place) in ends.into_iter().zip(places) {
            let CurveStyle { colour, dashes, is_strong, .. } = curve.style;
            let (weight, width) = if is_strong { ("bold", 4.0) } else { ("normal", 2.2) };
            writeln!(
                svg,
                r#"<path d="M{:.1} {end:.1}L{:.1} {place:.1}" stroke="{colour}" stroke-width="0.8" fill="none"/>"#,
                right + 6.0,
                right + 24.0
            )?;
            writeln!(
                svg,
                r#"<path d="M{:.1} {place:.1}h36" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}" fill="none"/>"#,
                right + 26.0
            )?;
            curve.style.draw_marker(svg, (right + 44.0, place))?;
            let attributes = format!(r#"font-size="15" font-weight="{weight}""#);
            text(svg, (right + 70.0, place + 5.0), &attributes, &curve.label)?;
        }
        Ok(())
    }
}

fn bars(svg: &mut String, curve: &Curve, plot: Plot, offset: f64) -> fmt::Result {
    let colour = curve.style.colour;
    for point in curve.shown().filter(|p| p.low > 0.0 && p.high > p.low) {
        let at = (plot.x.position_of(point.x) + offset).clamp(plot.left, plot.right);
        let (low, high) = (plot.y.position_of(point.low), plot.y.position_of(point.high));
        writeln!(
            svg,
            r#"<path d="M{at:.1} {low:.1}V{high:.1}" stroke="{colour}" stroke-width="2" stroke-opacity="0.4" fill="none"/>"#
        )?;
    }
    Ok(())
}

fn line(svg: &mut String, curve: &Curve, (x, y): (Axis, Axis)) -> fmt::Result {
    let CurveStyle { colour, dashes, is_strong, .. } = curve.style;
    let width = if is_strong { 4.0 } else { 2.2 };
    let places: Vec<_> =
        curve.shown().map(|point| (x.position_of(point.x), y.position_of(point.y))).collect();
    let points = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
    writeln!(
        svg,
        r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}" stroke-linejoin="round"/>"#
    )?;
    places.into_iter().try_for_each(|place| curve.style.draw_marker(svg, place))
}

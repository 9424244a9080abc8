//! The paper's figure 8 as a picture: time by size, both logarithmic, a line for each contender.

use std::fmt::{self, Write as _};

use super::contender::{Kind, Name};
use super::report::size;
use super::rounds::Series;

const WIDTH: f64 = 1280.0;
const HEIGHT: f64 = 760.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 1040.0;
const TOP: f64 = 104.0;
const BOTTOM: f64 = 680.0;
/// The colour of allocators over one region.
const ARENA: &str = "#999999";
/// Between two labels.
const LINE: f64 = 19.0;

/// One contender's line.
struct Curve {
    label: String,
    style: Style,
    points: Vec<(f64, f64)>,
}

/// How a line is drawn: colours of Okabe and Ito, which all eyes tell apart.
#[derive(Clone, Copy)]
struct Style {
    colour: &'static str,
    width: f64,
    dashes: &'static str,
}

impl Style {
    /// Returns whether each such line is a strategy of this project: the others share their grey.
    fn ours(self) -> bool {
        self.colour != ARENA
    }
}

/// What lies where.
struct Frame {
    bytes: (f64, f64),
    ns: (f64, f64),
}

impl Frame {
    fn around(series: &[&Series]) -> Frame {
        let bytes = series.iter().map(|series| series.bytes as f64);
        let ns = series.iter().flat_map(|series| series.rows.iter().map(|row| row.ns));
        let span = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, 0f64), |(low, high), value| (low.min(value), high.max(value)))
        };
        let (low, high) = span(&mut ns.clone().filter(|ns| *ns > 0.0));
        // Whole decades.
        let ns = (10f64.powf(low.log10().floor()), 10f64.powf(high.max(low * 10.0).log10().ceil()));
        Frame { bytes: span(&mut bytes.clone()), ns }
    }

    fn x(&self, bytes: f64) -> f64 {
        let (low, high) = self.bytes;
        LEFT + (RIGHT - LEFT) * (bytes / low).ln() / (high / low).ln().max(1e-9)
    }

    fn y(&self, ns: f64) -> f64 {
        let (low, high) = self.ns;
        BOTTOM - (BOTTOM - TOP) * (ns / low).ln() / (high / low).ln().max(1e-9)
    }
}

/// Returns the picture of the series of one test.
pub(super) fn svg(series: &[&Series]) -> String {
    let mut svg = String::new();
    // Writing into a string cannot fail.
    let _ = draw(&mut svg, series);
    svg
}

fn draw(svg: &mut String, series: &[&Series]) -> fmt::Result {
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="Helvetica, Arial, 'Liberation Sans', sans-serif">"#
    )?;
    writeln!(svg, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
    text(svg, (LEFT - 60.0, 46.0), r#"font-size="27" font-weight="bold""#, &title(series))?;
    let how = "Nanoseconds to allocate one block, write 8 bytes and free it; one thread, medians. \
               Solid: mapped pages (direct), dashed: heap (indirect)";
    text(svg, (LEFT - 60.0, 76.0), r##"font-size="17" fill="#444""##, how)?;
    if !series.is_empty() {
        let frame = Frame::around(series);
        axes(svg, &frame, series)?;
        let curves = curves(series, &frame);
        // The thick ones last: on top.
        for curve in curves.iter().rev() {
            line(svg, curve)?;
        }
        labels(svg, curves)?;
    }
    writeln!(svg, "</svg>")
}

/// Says what was found.
fn title(series: &[&Series]) -> String {
    let default = |name: Name| name.strategy == "magazine" && name.storage == "pages";
    let ns = series.iter().flat_map(|s| s.rows.iter().filter(|row| default(row.name)).map(|row| row.ns));
    let (low, high) = ns.fold((f64::INFINITY, 0f64), |(low, high), ns| (low.min(ns), high.max(ns)));
    match (series.first(), series.last()) {
        (Some(first), Some(last)) if high > 0.0 => format!(
            "A block from the default pool takes {low:.1} to {high:.1} ns, from {} to {}",
            size(first.bytes),
            size(last.bytes)
        ),
        _ => "Time to allocate and free one block, by its size".to_owned(),
    }
}

fn axes(svg: &mut String, frame: &Frame, series: &[&Series]) -> fmt::Result {
    let grey = r##"stroke="#ddd" stroke-width="1""##;
    let mut ns = frame.ns.0;
    while ns <= frame.ns.1 * 1.001 {
        let y = frame.y(ns);
        writeln!(svg, r#"<path d="M{LEFT} {y:.1}H{RIGHT}" {grey}/>"#)?;
        text(svg, (LEFT - 10.0, y + 6.0), r#"font-size="17" text-anchor="end""#, &time(ns))?;
        ns *= 10.0;
    }
    for series in series.iter().filter(|series| series.bytes.ilog2() % 2 == 0 || series.bytes >= 8 << 20) {
        // The last two are next to each other.
        if series.bytes == 4 << 20 {
            continue;
        }
        let x = frame.x(series.bytes as f64);
        writeln!(svg, r#"<path d="M{x:.1} {TOP}V{BOTTOM}" {grey}/>"#)?;
        text(svg, (x, BOTTOM + 26.0), r#"font-size="17" text-anchor="middle""#, &size(series.bytes))?;
    }
    let middle = LEFT.midpoint(RIGHT);
    text(svg, (middle, BOTTOM + 58.0), r#"font-size="18" text-anchor="middle""#, "size of the block")
}

fn curves(series: &[&Series], frame: &Frame) -> Vec<Curve> {
    let names = series.iter().flat_map(|series| series.rows.iter().map(|row| row.name));
    let mut curves: Vec<(Name, Curve)> = Vec::new();
    for name in names {
        if curves.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let point = |series: &&Series| {
            let row = series.rows.iter().find(|row| row.name == name)?;
            Some((frame.x(series.bytes as f64), frame.y(row.ns)))
        };
        let points = series.iter().filter_map(point).collect();
        let label = match name.kind {
            Kind::Ours => format!("{}, {}", name.strategy, name.storage),
            _ => name.strategy.to_owned(),
        };
        curves.push((name, Curve { label, style: style(name), points }));
    }
    curves.into_iter().map(|(_, curve)| curve).collect()
}

fn style(name: Name) -> Style {
    let (colour, width) = match name.strategy {
        "magazine" => ("#0072B2", 5.0),
        "buddy" => ("#56B4E9", 2.5),
        "buddy1" => ("#D55E00", 2.5),
        "buddy2" => ("#E69F00", 2.5),
        "none" => ("#CC79A7", 2.5),
        "mimalloc" => ("#009E73", 2.5),
        "jemalloc" => ("#8A7A00", 2.5),
        _ if name.kind == Kind::General => ("#000000", 2.5),
        _ => (ARENA, 1.5),
    };
    let dashes = if name.kind == Kind::Ours && name.storage == "heap" { "9 6" } else { "none" };
    Style { colour, width, dashes }
}

fn line(svg: &mut String, curve: &Curve) -> fmt::Result {
    let Style { colour, width, dashes } = curve.style;
    let points: Vec<String> = curve.points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    writeln!(
        svg,
        r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}" stroke-linejoin="round"/>"#,
        points.join(" ")
    )
}

/// Writes each line's name where it ends, moved apart as far as they must be.
fn labels(svg: &mut String, curves: Vec<Curve>) -> fmt::Result {
    let mut ends: Vec<(f64, Curve)> = curves
        .into_iter()
        .filter_map(|curve| curve.points.last().copied().map(|(_, y)| (y, curve)))
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Two storages that end at the same place need one name.
    ends.dedup_by(|(below, curve), (above, kept)| {
        let same =
            *below - *above < LINE / 2.0 && curve.style.colour == kept.style.colour && kept.style.ours();
        if same {
            kept.label = kept.label.split(',').next().unwrap_or_default().to_owned();
        }
        same
    });
    let places = apart(&ends.iter().map(|(y, _)| *y).collect::<Vec<_>>());
    for ((y, curve), place) in ends.iter().zip(places) {
        let Style { colour, width, .. } = curve.style;
        let weight = if width > 4.0 { "bold" } else { "normal" };
        writeln!(
            svg,
            r#"<path d="M{:.1} {y:.1}L{:.1} {place:.1}" stroke="{colour}" stroke-width="1" fill="none"/>"#,
            RIGHT + 3.0,
            RIGHT + 30.0
        )?;
        let attributes = format!(r#"font-size="17" font-weight="{weight}" fill="{colour}""#);
        text(svg, (RIGHT + 35.0, place + 6.0), &attributes, &curve.label)?;
    }
    Ok(())
}

/// Moves sorted places apart, at least [`LINE`], as little as that takes: those that touch are a group around its middle.
fn apart(wanted: &[f64]) -> Vec<f64> {
    // Each group: the sum of where its members would start it, and their number.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    let start = |(sum, count): (f64, usize)| {
        let (start, height) = (sum / count as f64, (count - 1) as f64 * LINE);
        start.clamp(TOP, (BOTTOM - height).max(TOP))
    };
    for place in wanted {
        let mut group = (*place, 1);
        while let Some(before) = groups.last().copied() {
            if start(before) + before.1 as f64 * LINE <= start(group) {
                break;
            }
            groups.pop();
            group = (before.0 + group.0 - (group.1 * before.1) as f64 * LINE, before.1 + group.1);
        }
        groups.push(group);
    }
    groups.iter().flat_map(|group| (0..group.1).map(|at| start(*group) + at as f64 * LINE)).collect()
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, text: &str) -> fmt::Result {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" {attributes}>{text}</text>"#)
}

/// Returns a round time with its unit.
fn time(ns: f64) -> String {
    match ns {
        ..0.99 => format!("{ns:.1} ns"),
        ..999.0 => format!("{ns:.0} ns"),
        ..999_000.0 => format!("{:.0} µs", ns / 1e3),
        _ => format!("{:.0} ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::{BOTTOM, LINE, TOP, apart};

    #[test]
    fn labels_keep_their_distance_and_their_order() {
        let places = apart(&[200.0, 300.0, 301.0, 302.0, 679.0, 680.0]);
        assert!(places.windows(2).all(|two| two[1] - two[0] > LINE - 1e-9), "{places:?}");
        assert!(places.iter().all(|place| (TOP..=BOTTOM).contains(place)), "{places:?}");
        assert_eq!(places[..1], [200.0]);
        assert!((places[2] - 301.0).abs() < 1e-9, "{places:?}");
        assert_eq!(apart(&[]), [0.0; 0]);
    }
}

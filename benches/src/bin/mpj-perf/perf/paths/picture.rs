//! The findings: a sentence and a panel for each shape, freshly written or unmodified.

use super::super::plot::{Curve, CurveStyle, LegendEntry, Lines, Page, Panel, Point};
use super::super::pools::size;
use super::{PATHS, ShapeCurves};

/// `auto` counts as equal to the better path if its time is within this factor.
const TOLERANCE: f64 = 1.05;

const MIN_MEMCPY_BYTES: f64 = 4096.0;

const MEANINGS: [(&str, &str); 5] = [
    ("auto", "the library chooses the path of each message"),
    ("buffered", "through pool blocks at both ends: the sender copies in, the receiver copies out"),
    ("zerocopy", "from the sender's memory to the receiver's memory; the send waits for its receiver"),
    ("lent", "sent from a pool block, which the receiver reads in place: no copy"),
    ("memcpy", "one copy of the same number of bytes within one rank (from 4 KiB on)"),
];

fn styles() -> [CurveStyle; MEANINGS.len()] {
    [
        CurveStyle::of(0).strong(),
        CurveStyle::of(1),
        CurveStyle::of(2),
        CurveStyle::of(3),
        CurveStyle::of(6).with_dashes(2),
    ]
}

/// Returns the geometric mean, over all sizes, of the ratio of the times.
fn ratio(ours: &[Point], others: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = ours.iter().zip(others).map(|(point, other)| (point.y / other).ln()).collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

/// Lists the sizes at which `ours` is faster than `others`: its third quartile is below their first quartile.
fn faster(ours: &[Point], others: &[Point]) -> Option<String> {
    let wins: Vec<(f64, bool)> = ours.iter().zip(others).map(|(a, b)| (a.x, a.high < b.low)).collect();
    let runs = wins.chunk_by(|one, next| one.1 == next.1).filter(|run| run[0].1);
    let name = |bytes: f64| size(bytes as usize);
    let parts: Vec<String> = runs
        .map(|run| match run {
            [(only, _)] => name(*only),
            [(first, _), .., (last, _)] => format!("{} to {}", name(*first), name(*last)),
            [] => String::new(),
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn finding([_, buffered, zero_copy]: &[Vec<Point>; PATHS.len()]) -> String {
    let candidates = [("zerocopy", faster(zero_copy, buffered)), ("buffered", faster(buffered, zero_copy))];
    let parts: Vec<String> = candidates
        .into_iter()
        .filter_map(|(name, at)| Some(format!("{name} is faster at {}", at?)))
        .collect();
    if parts.is_empty() { "zerocopy and buffered: no clear difference".to_owned() } else { parts.join("; ") }
}

fn name(curves: &ShapeCurves) -> String {
    let state = if curves.fresh { "freshly written" } else { "unmodified" };
    format!("{}, {state}", curves.shape)
}

/// Describes which path is faster for a shape, and how `auto` compares with the faster one.
pub(super) fn sentence(curves: &ShapeCurves) -> String {
    let [auto, buffered, zero_copy] = &curves.paths;
    let best = buffered.iter().zip(zero_copy).map(|(a, b)| a.y.min(b.y));
    let auto = ratio(auto, best);
    let chosen = if auto <= TOLERANCE { "as good as the better one" } else { "slower than the better one" };
    let in_place = faster(&curves.read_in_place, &curves.paths[0]);
    let in_place = in_place.map_or_else(String::new, |at| format!("; lent is faster than auto at {at}"));
    let (name, finding) = (name(curves), finding(&curves.paths));
    format!("{name}: {finding}; auto is {chosen} ({auto:.2} × its time on average){in_place}")
}

pub(super) fn page(all_curves: &[ShapeCurves]) -> Page {
    let panel = |curves: &ShapeCurves| {
        let copies = curves.memcpy.iter().filter(|copy| copy.x >= MIN_MEMCPY_BYTES).copied().collect();
        let points = curves.paths.iter().chain([&curves.read_in_place]).cloned().chain([copies]);
        let named = MEANINGS.iter().zip(styles()).zip(points).filter(|(_, points)| !points.is_empty());
        let curve = |(((name, _), style), points): ((&(&str, _), _), _)| Curve {
            label: (*name).to_owned(),
            style,
            points,
        };
        Panel::Lines(Lines {
            title: name(curves),
            finding: finding(&curves.paths),
            x: "size of the message",
            y: "time, µs",
            curves: named.map(curve).collect(),
            ..Lines::default()
        })
    };
    let entry = |((name, explanation), style)| LegendEntry { style, name, explanation };
    // Freshly written data in the upper row, unmodified data in the lower one.
    let (above, below): (Vec<&ShapeCurves>, Vec<&ShapeCurves>) =
        all_curves.iter().partition(|curves| curves.fresh);
    Page {
        title: "Data paths: through pool blocks, or without copies".to_owned(),
        notes: vec![
            "Lines: medians of half round trips; bars: quartiles. A path is called faster where these bars do not overlap. \
             Lower is better."
                .to_owned(),
            "contiguous: in one piece; strided: every second f64; indexed: blocks of 1 to 7 f64 with gaps; object: a vector of \
             pairs, encoded and decoded by serde. freshly written: the sender writes every cache line before each send; \
             unmodified: it sends the same bytes again."
                .to_owned(),
        ],
        legend: MEANINGS.into_iter().zip(styles()).map(entry).collect(),
        columns: 4,
        is_one_scale: true,
        panels: above.into_iter().chain(below).map(panel).collect(),
        ..Page::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(times: [f64; 4]) -> Vec<Point> {
        let sizes = [64.0, 1024.0, 65536.0, 1_048_576.0];
        let point = |(y, x)| Point { x, y, low: 0.9 * y, high: 1.1 * y };
        times.into_iter().zip(sizes).map(point).collect()
    }

    #[test]
    fn path_is_faster_where_the_quartiles_do_not_overlap() {
        let finding = |zero| finding(&[points([1.0; 4]), points([1.0, 2.0, 3.0, 10.0]), points(zero)]);
        assert_eq!(finding([1.0, 1.9, 3.2, 10.5]), "zerocopy and buffered: no clear difference");
        assert_eq!(
            finding([1.5, 1.0, 1.0, 10.5]),
            "zerocopy is faster at 1 KiB to 64 KiB; buffered is faster at 64 B"
        );
        assert_eq!(finding([0.5, 2.0, 2.0, 5.0]), "zerocopy is faster at 64 B, 64 KiB to 1 MiB");
    }

    #[test]
    fn ratio_is_the_geometric_mean_of_all_sizes() {
        assert!((ratio(&points([2.0; 4]), [1.0, 2.0, 4.0, 2.0].into_iter()) - 1.0).abs() < 1e-9);
    }
}

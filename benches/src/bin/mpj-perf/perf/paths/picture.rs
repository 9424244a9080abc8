//! The findings from the figures: a sentence and a panel for each shape.

use super::super::plot::{Curve, Lines, Look, Meaning, Page, Panel, Point};
use super::super::pools::size;
use super::{Family, PATHS};

/// `auto` counts as good as the better path if it is within this factor.
const CLOSE: f64 = 1.05;

/// The message size in bytes from which the curve of copies is drawn: a copy is a negligible part of shorter
/// messages.
const COPIES: f64 = 4096.0;

/// The names of the curves and their meanings.
const MEANINGS: [(&str, &str); 5] = [
    ("auto", "the library chooses the way for each message"),
    ("buffered", "through blocks of the pool at both ends: the sender copies in, the receiver copies out"),
    ("zerocopy", "straight from the sender's memory to the receiver's; the send waits for its receiver"),
    ("lent", "sent from a block of the pool, which the receiver reads where it lies: no copy at all"),
    ("memcpy", "one copy of as many bytes within one rank (from 4 KiB on)"),
];

fn looks() -> [Look; MEANINGS.len()] {
    [Look::of(0).strong(), Look::of(1), Look::of(2), Look::of(3), Look::of(6).dashed(2)]
}

/// Returns the factor by which the first is slower than the second, as the geometric mean over all sizes.
fn ratio(ours: &[Point], others: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = ours.iter().zip(others).map(|(point, other)| (point.y / other).ln()).collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

/// Describes the sizes at which one path is faster than another by more than the spread: the middle halves of their
/// times do not overlap.
fn faster(ours: &[Point], others: &[Point]) -> Option<String> {
    let wins: Vec<(f64, bool)> = ours.iter().zip(others).map(|(a, b)| (a.x, a.high < b.low)).collect();
    let runs = wins.chunk_by(|one, next| one.1 == next.1).filter(|run| run[0].1);
    let name = |bytes: f64| size(bytes as usize);
    let said: Vec<String> = runs
        .map(|run| match run {
            [(only, _)] => name(*only),
            [(first, _), .., (last, _)] => format!("{} to {}", name(*first), name(*last)),
            [] => String::new(),
        })
        .collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// Describes the sizes at which each of the two paths is clearly faster.
fn finding([_, buffered, zero_copy]: &[Vec<Point>; PATHS.len()]) -> String {
    let said = [("zerocopy", faster(zero_copy, buffered)), ("buffered", faster(buffered, zero_copy))];
    let said: Vec<String> =
        said.into_iter().filter_map(|(name, at)| Some(format!("{name} is faster at {}", at?))).collect();
    if said.is_empty() { "zerocopy and buffered: no clear difference".to_owned() } else { said.join("; ") }
}

fn name(family: &Family) -> String {
    let state = if family.fresh { "freshly written" } else { "unmodified" };
    format!("{}, {state}", family.shape)
}

/// Describes in a sentence which path is best for a shape, and whether the library chooses it.
pub(super) fn sentence(family: &Family) -> String {
    let [auto, buffered, zero_copy] = &family.paths;
    let best = buffered.iter().zip(zero_copy).map(|(a, b)| a.y.min(b.y));
    let auto = ratio(auto, best);
    let chosen = if auto <= CLOSE { "as good as the better one" } else { "slower than the better one" };
    let lent = faster(&family.lent, &family.paths[0]);
    let lent = lent.map_or_else(String::new, |at| format!("; lent is faster than auto at {at}"));
    let (name, finding) = (name(family), finding(&family.paths));
    format!("{name}: {finding}; auto is {chosen} ({auto:.2} × its time on the average){lent}")
}

/// Makes a panel for each shape and state of the data, with the finding as its title.
pub(super) fn page(families: &[Family]) -> Page {
    let panel = |family: &Family| {
        let copies = family.memcpy.iter().filter(|copy| copy.x >= COPIES).copied().collect();
        let curves = family.paths.iter().chain([&family.lent]).cloned().chain([copies]);
        let named = MEANINGS.iter().zip(looks()).zip(curves).filter(|(_, points)| !points.is_empty());
        let curve = |(((name, _), look), points): ((&(&str, _), _), _)| Curve {
            label: (*name).to_owned(),
            look,
            points,
        };
        Panel::Lines(Lines {
            title: name(family),
            finding: finding(&family.paths),
            x: "size of the message",
            y: "time, µs",
            curves: named.map(curve).collect(),
            ..Lines::default()
        })
    };
    let meaning = |((name, what), look)| Meaning { look, name, what };
    // Freshly written data in the upper row, unmodified data in the lower one.
    let (above, below): (Vec<&Family>, Vec<&Family>) = families.iter().partition(|family| family.fresh);
    Page {
        title: "The ways of a message: through blocks of a pool, or without copies".to_owned(),
        notes: vec![
            "Lines: medians of half round trips; bars: the middle half of them. A way is called faster where these bars do not \
             meet. Lower is better."
                .to_owned(),
            "contiguous: in one piece; strided: every second f64; indexed: blocks of 1 to 7 f64 with gaps; object: a vector of \
             pairs, encoded and decoded by serde. freshly written: the sender writes every cache line before each send; \
             unmodified: it sends the same bytes again."
                .to_owned(),
        ],
        legend: MEANINGS.into_iter().zip(looks()).map(meaning).collect(),
        columns: 4,
        is_one_scale: true,
        panels: above.into_iter().chain(below).map(panel).collect(),
        ..Page::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes points whose spread is a tenth in both directions.
    fn points(times: [f64; 4]) -> Vec<Point> {
        let sizes = [64.0, 1024.0, 65536.0, 1_048_576.0];
        let point = |(y, x)| Point { x, y, low: 0.9 * y, high: 1.1 * y };
        times.into_iter().zip(sizes).map(point).collect()
    }

    #[test]
    fn a_way_is_called_faster_only_where_the_spreads_do_not_meet() {
        let finding = |zero| finding(&[points([1.0; 4]), points([1.0, 2.0, 3.0, 10.0]), points(zero)]);
        assert_eq!(finding([1.0, 1.9, 3.2, 10.5]), "zerocopy and buffered: no clear difference");
        // A noisy point at the end does not change the finding for those before it.
        assert_eq!(
            finding([1.5, 1.0, 1.0, 10.5]),
            "zerocopy is faster at 1 KiB to 64 KiB; buffered is faster at 64 B"
        );
        assert_eq!(finding([0.5, 2.0, 2.0, 5.0]), "zerocopy is faster at 64 B, 64 KiB to 1 MiB");
    }

    #[test]
    fn ratios_are_those_of_the_average_size() {
        assert!((ratio(&points([2.0; 4]), [1.0, 2.0, 4.0, 2.0].into_iter()) - 1.0).abs() < 1e-9);
    }
}

//! What the figures say: a sentence and a panel for each shape.

use super::super::plot::{Curve, Lines, Look, Page, Panel, Point};
use super::super::pools::size;
use super::{Family, PATHS};

/// Auto is as good as the better one if it is within this.
const CLOSE: f64 = 1.05;

/// From so many bytes on a copy is drawn: of shorter messages it takes next to no part.
const COPIES: f64 = 4096.0;

/// By how much the first is slower than the second, on the average of all sizes.
fn ratio(ours: &[Point], others: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = ours.iter().zip(others).map(|(point, other)| (point.y / other).ln()).collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

/// Which of the two ways is faster, by more than noise.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Best {
    /// Without copies, from this size on at every one; at the longest, so many times as fast.
    ZeroCopy(f64, f64),
    Blocks,
    /// Neither, at the longest.
    Alike,
}

fn best([_, buffered, zero_copy]: &[Vec<Point>; PATHS.len()]) -> Best {
    let wins = |(a, b): &(&Point, &Point)| a.y * CLOSE <= b.y;
    let mut from_the_longest = zero_copy.iter().zip(buffered).rev();
    match (from_the_longest.clone().take_while(wins).last(), from_the_longest.next()) {
        (Some((first, _)), Some((zero, block))) => Best::ZeroCopy(first.x, block.y / zero.y),
        (None, Some((zero, block))) if wins(&(block, zero)) => Best::Blocks,
        _ => Best::Alike,
    }
}

/// Says in a sentence which path is best for a shape, and whether the library chooses it.
pub(super) fn sentence(family: &Family) -> String {
    let Family { shape, fresh, paths, .. } = family;
    let [auto, buffered, zero_copy] = paths;
    let state = if *fresh { "freshly written" } else { "unmodified" };
    let cross = match best(paths) {
        Best::ZeroCopy(bytes, times) => {
            format!(
                "fastest without copies from {} on, {times:.2} × as fast at the end",
                size(bytes as usize)
            )
        }
        Best::Blocks => "fastest through blocks".to_owned(),
        Best::Alike => "as fast through blocks as without copies".to_owned(),
    };
    let best = buffered.iter().zip(zero_copy).map(|(a, b)| a.y.min(b.y));
    let auto = ratio(auto, best);
    let chosen = if auto <= CLOSE { "as good as the better one" } else { "slower than the better one" };
    let lent = match (family.lent.last(), paths[0].last()) {
        (Some(lent), Some(copied)) => {
            format!("; lent and read in place, {:.2} × as fast as auto at the end", copied.y / lent.y)
        }
        _ => String::new(),
    };
    format!("{shape}, {state}: {cross}; auto is {chosen} ({auto:.2} × its time on the average){lent}")
}

/// A panel for each shape and state, with what it shows as its title.
pub(super) fn page(device: &str, families: &[Family]) -> Page {
    let panel = |family: &Family| {
        let looks = [Look::of(0).strong(), Look::of(1), Look::of(2)];
        let curves = PATHS.iter().zip(looks).zip(&family.paths);
        let mut curves: Vec<Curve> = curves
            .map(|(((name, _), look), points)| Curve {
                label: (*name).to_owned(),
                look,
                points: points.clone(),
            })
            .collect();
        if !family.lent.is_empty() {
            curves.push(Curve { label: "lent".to_owned(), look: Look::of(3), points: family.lent.clone() });
        }
        let points: Vec<Point> = family.memcpy.iter().filter(|copy| copy.x >= COPIES).cloned().collect();
        if !points.is_empty() {
            curves.push(Curve { label: "memcpy".to_owned(), look: Look::of(6).dashed(2), points });
        }
        let Family { shape, fresh, .. } = family;
        let state = if *fresh { "freshly written" } else { "unmodified" };
        let cross = match best(&family.paths) {
            Best::ZeroCopy(bytes, _) => format!("without copies is faster from {} on", size(bytes as usize)),
            Best::Blocks => "through blocks is faster".to_owned(),
            Best::Alike => "both ways are as fast".to_owned(),
        };
        Panel::Lines(Lines {
            title: format!("{shape}, {state}: {cross}"),
            x: "size of the message",
            y: "time, µs",
            curves,
        })
    };
    Page {
        title: format!("Through blocks of a pool, or without copies: {device}"),
        how: "Half round trips between two ranks: medians; bars: least to 99 %. The paths take turns"
            .to_owned(),
        panels: families.iter().map(panel).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(times: [f64; 3]) -> Vec<Point> {
        let sizes = [64.0, 1024.0, 65536.0];
        times.into_iter().zip(sizes).map(|(y, x)| Point { x, y, low: y, high: y }).collect()
    }

    #[test]
    fn a_path_is_better_from_where_it_stays_so() {
        let best = |zero| best(&[points([1.0; 3]), points([1.0, 2.0, 3.0]), points(zero)]);
        assert_eq!(best([0.5, 1.0, 2.0]), Best::ZeroCopy(64.0, 1.5));
        assert_eq!(best([0.5, 2.5, 2.0]), Best::ZeroCopy(65536.0, 1.5));
        assert_eq!(best([0.5, 1.0, 3.5]), Best::Blocks);
        assert_eq!([2.9, 3.1].map(|last| best([0.5, 1.0, last])), [Best::Alike; 2]);
        assert!((ratio(&points([2.0; 3]), [1.0, 2.0, 4.0].into_iter()) - 1.0).abs() < 1e-9);
    }
}

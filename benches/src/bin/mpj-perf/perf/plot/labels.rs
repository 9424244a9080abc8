//! Positions of the names of curves, which must not overlap.

/// The minimum distance between two labels.
pub(super) const LABEL_HEIGHT: f64 = 19.0;

/// Moves sorted positions as little as possible, so that they are at least [`LABEL_HEIGHT`] apart and, if they fit,
/// between `top` and `bottom`.
pub(super) fn spread_out(wanted: &[f64], (top, bottom): (f64, f64)) -> Vec<f64> {
    // Labels that would overlap form a group: the sum of the group starts that its labels prefer, and their number.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    let start = |(sum, count): (f64, usize)| {
        let (start, height) = (sum / count as f64, (count - 1) as f64 * LABEL_HEIGHT);
        start.clamp(top, (bottom - height).max(top))
    };
    for place in wanted {
        let mut group = (*place, 1);
        while let Some(before) = groups.last().copied() {
            if start(before) + before.1 as f64 * LABEL_HEIGHT <= start(group) {
                break;
            }
            groups.pop();
            group = (before.0 + group.0 - (group.1 * before.1) as f64 * LABEL_HEIGHT, before.1 + group.1);
        }
        groups.push(group);
    }
    groups.iter().flat_map(|group| (0..group.1).map(|at| start(*group) + at as f64 * LABEL_HEIGHT)).collect()
}

#[cfg(test)]
mod tests {
    use super::{LABEL_HEIGHT, spread_out};

    #[test]
    fn labels_keep_their_distance_and_their_order() {
        let places = spread_out(&[200.0, 300.0, 301.0, 302.0, 679.0, 680.0], (104.0, 680.0));
        assert!(places.windows(2).all(|two| two[1] - two[0] > LABEL_HEIGHT - 1e-9), "{places:?}");
        assert!(places.iter().all(|place| (104.0..=680.0).contains(place)), "{places:?}");
        assert_eq!(places[..1], [200.0]);
        assert!((places[2] - 301.0).abs() < 1e-9, "{places:?}");
        assert_eq!(spread_out(&[], (0.0, 1.0)), [0.0; 0]);
    }
}

//! Axes: the positions of values, and the ticks.

/// The mapping from values to positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Scale {
    #[default]
    Logarithmic,
    /// The axis starts at 0.
    Linear,
}

/// The values at the ends of an axis, and their positions in the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    scale: Scale,
    pub(super) values: (f64, f64),
    positions: (f64, f64),
}

impl Axis {
    /// Makes an axis from the smallest to the largest size. With one size, the axis ends at its double; with none, it
    /// goes from 1 to 10.
    pub(super) fn of_sizes(sizes: impl Iterator<Item = f64>, positions: (f64, f64)) -> Axis {
        let (low, high) = positive_range(sizes);
        Axis {
            scale: Scale::Logarithmic,
            values: (low, if high > low { high } else { low * 2.0 }),
            positions,
        }
    }

    /// Makes an axis that contains all values above 0, with ticks at both ends.
    pub(super) fn of_values(values: impl Iterator<Item = f64>, scale: Scale, positions: (f64, f64)) -> Axis {
        let (low, high) = positive_range(values);
        let values = match scale {
            Scale::Logarithmic => {
                let low = round(low, 1.0000001, false);
                (low, round(high.max(low * 2.0), 0.9999999, true))
            }
            Scale::Linear => {
                let step = step(high);
                (0.0, (high / step).ceil() * step)
            }
        };
        Axis { scale, values, positions }
    }

    pub(super) fn position_of(&self, value: f64) -> f64 {
        let ((low, high), (first, last)) = (self.values, self.positions);
        let value = value.clamp(low, high);
        let share = match self.scale {
            Scale::Logarithmic => (value / low).ln() / (high / low).ln(),
            Scale::Linear => (value - low) / (high - low),
        };
        first + (last - first) * share
    }

    /// Returns the values of the ticks, and whether each is a main tick.
    pub(super) fn ticks(&self) -> Vec<(f64, bool)> {
        let (low, high) = self.values;
        match self.scale {
            Scale::Logarithmic => {
                let decades = (low.log10() - 0.001).floor() as i32..=(high.log10() + 0.001).floor() as i32;
                let ticks = decades
                    .flat_map(|power| [1.0, 2.0, 5.0].map(|times| (times * 10f64.powi(power), times == 1.0)));
                ticks.filter(|(value, _)| (low * 0.999..=high * 1.001).contains(value)).collect()
            }
            Scale::Linear => {
                let step = step(high);
                (0..=(high / step + 0.001) as usize).map(|times| (times as f64 * step, true)).collect()
            }
        }
    }
}

fn positive_range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let above = values.filter(|value| *value > 0.0 && value.is_finite());
    let (low, high) =
        above.fold((f64::INFINITY, 0f64), |(low, high), value| (low.min(value), high.max(value)));
    if low <= high { (low, high) } else { (1.0, 10.0) }
}

/// Returns the largest of …, 0.5, 1, 2, 5, 10, … that is at most `value * slack`, or with `up` the smallest that is at
/// least that. With a slack slightly above 1 (below 1 with `up`), rounding errors do not change the result.
fn round(value: f64, slack: f64, up: bool) -> f64 {
    let decade = 10f64.powf((value * slack).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * decade);
    let found = match up {
        true => steps.into_iter().find(|step| *step >= value * slack),
        false => steps.into_iter().rev().find(|step| *step <= value * slack),
    };
    found.unwrap_or(value)
}

/// Returns the distance between ticks, for 5 to 10 intervals from 0 to a tick at or above `high`.
fn step(high: f64) -> f64 {
    round(high / 10.0, 0.9999999, true)
}

pub(super) fn tick_label(value: f64) -> String {
    let trimmed = |text: String| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    match value {
        0.0 => "0".to_owned(),
        ..0.000_999 => format!("{value:.1e}"),
        ..0.999 => trimmed(format!("{value:.3}")),
        ..99.0 => trimmed(format!("{value:.1}")),
        ..9_999.0 => format!("{value:.0}"),
        ..999_999.0 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.0}M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Scale, tick_label};

    #[test]
    fn axes_contain_their_values() {
        let axis = Axis::of_values([0.0, 3.0, 700.0].into_iter(), Scale::Logarithmic, (100.0, 0.0));
        assert_eq!((axis.position_of(2.0), axis.position_of(1000.0)), (100.0, 0.0));
        let ticks = axis.ticks().into_iter().map(|(value, _)| tick_label(value));
        assert!(ticks.eq(["2", "5", "10", "20", "50", "100", "200", "500", "1000"]));
        assert_eq!([0.05, 2.5, 20_000.0, 1e7].map(tick_label), ["0.05", "2.5", "20k", "10M"]);
        for scale in [Scale::Logarithmic, Scale::Linear] {
            assert!(Axis::of_values([].into_iter(), scale, (0.0, 1.0)).position_of(5.0).is_finite());
            assert!(Axis::of_values([5.0].into_iter(), scale, (0.0, 1.0)).position_of(5.0).is_finite());
        }
        assert!(Axis::of_sizes([8.0].into_iter(), (0.0, 1.0)).position_of(8.0).is_finite());
    }

    #[test]
    fn linear_axes_begin_with_0_and_end_with_a_tick() {
        let axis = Axis::of_values([3.0, 23.4].into_iter(), Scale::Linear, (0.0, 25.0));
        assert_eq!(
            (axis.position_of(0.0), axis.position_of(25.0), axis.position_of(10.0)),
            (0.0, 25.0, 10.0)
        );
        assert!(
            axis.ticks()
                .into_iter()
                .map(|(value, _)| tick_label(value))
                .eq(["0", "5", "10", "15", "20", "25"])
        );
    }
}

//! The clock, and statistics of its readings.

use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds since a fixed moment of this host.
#[inline]
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sorts the readings and returns the `q`-quantile.
pub(super) fn quantile(readings: &mut [u64], q: f64) -> f64 {
    readings.sort_unstable();
    readings[index(readings.len(), q)] as f64
}

/// Like [`quantile`], for any numbers.
pub(super) fn quantile_f64(readings: &mut [f64], q: f64) -> f64 {
    readings.sort_unstable_by(f64::total_cmp);
    readings[index(readings.len(), q)]
}

fn index(readings: usize, q: f64) -> usize {
    (q * (readings - 1) as f64 + 0.5) as usize
}

/// Returns how often an operation of `each_ns` must be repeated to fill `budget_ns`, within limits.
pub(super) fn repeats(budget_ns: f64, each_ns: f64, min: i64, max: i64) -> i64 {
    ((budget_ns / each_ns) as i64).clamp(min, max)
}

#[cfg(test)]
mod tests {
    use super::{quantile, quantile_f64, repeats};

    #[test]
    fn quantiles_are_those_of_the_c_programs() {
        let mut odd = [30, 10, 20];
        assert_eq!(
            [quantile(&mut odd, 0.0), quantile(&mut odd, 0.5), quantile(&mut odd, 1.0)],
            [10., 20., 30.]
        );
        assert_eq!(quantile(&mut [1, 2], 0.5), 2.0);
        assert_eq!(quantile_f64(&mut [2.5], 0.99), 2.5);
    }

    #[test]
    fn repeats_stay_within_limits() {
        assert_eq!(repeats(1000.0, 10.0, 5, 200), 100);
        assert_eq!(repeats(1000.0, 1e9, 5, 200), 5);
        assert_eq!(repeats(f64::INFINITY, 1.0, 5, 200), 200);
    }
}

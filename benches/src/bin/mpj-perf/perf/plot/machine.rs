//! The machine and the date of a measurement.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the processor, the number of logical processors, the date and the version, in one line.
pub(crate) fn description() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model.trim());
    // This thread might be bound, so count all logical processors.
    let count = info.lines().filter(|line| line.starts_with("processor\t")).count().max(1);
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let (year, month, day) = date(days);
    let build = if cfg!(debug_assertions) { ", debug build: its figures mean nothing" } else { "" };
    let version = env!("CARGO_PKG_VERSION");
    format!("{model}, {count} logical processors; {year}-{month:02}-{day:02}; mpj {version}{build}")
}

/// Returns the year, month and day of `days` days after 1 January 1970 (UTC).
fn date(mut days: u64) -> (u64, usize, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!([0, 59, 364, 365].map(date), [(1970, 1, 1), (1970, 3, 1), (1970, 12, 31), (1971, 1, 1)]);
        assert_eq!([11_016, 11_017, 20_454].map(date), [(2000, 2, 29), (2000, 3, 1), (2026, 1, 1)]);
    }
}

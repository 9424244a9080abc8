//! The pauses between the attempts of processes that start at the same time and connect to one process.

use std::time::{Duration, Instant};

/// The first and the longest pause, without jitter. In between, each pause is twice as long as the previous one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Backoff {
    number: u32,
    deadline: Instant,
    pause: Duration,
}

impl Backoff {
    /// Begins the attempts of the process with this number.
    pub(super) fn new(number: u32, deadline: Instant) -> Backoff {
        Backoff { number, deadline, pause: FIRST_PAUSE }
    }

    /// Sleeps until the next attempt. Returns `false`, without a pause, if the deadline has passed.
    pub(super) fn sleep(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        // With jitter, processes that start at the same time try again at different times.
        let jitter = self.pause.mul_f64(f64::from(self.number % 16) / 32.0);
        std::thread::sleep((self.pause + jitter).min(left));
        self.pause = (self.pause * 2).min(LAST_PAUSE);
        true
    }
}

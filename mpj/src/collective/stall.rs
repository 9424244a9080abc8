//! Stall detection: a rank that waits in a collective checks for mismatched calls and failures when an unexpected
//! message has arrived, and after a long wait.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::context::CollContext;

/// The time for which a rank waits before it queries the ranks from which it waits to receive. A timeout is not an
/// error: a rank that computes for minutes receives one query for each wait.
const STALL_TIMEOUT: Duration = Duration::from_millis(300);

/// The number of polls between two reads of the clock before the first [`StallDetector::note_sleep`].
const POLLS_PER_CLOCK_READ: u32 = 1024;

/// Detects stalls of the waits of one schedule.
#[derive(Debug)]
pub(crate) struct StallDetector {
    /// The number of unexpected messages that had arrived at the last poll.
    arrived: u32,
    polls: u32,
    sleeps: Cell<bool>,
    since: Option<Instant>,
    is_stalled: bool,
    has_queried: bool,
}

impl StallDetector {
    pub(crate) fn new(context: &CollContext) -> Self {
        let arrived = context.channel().unexpected_counts().arrived;
        StallDetector {
            arrived,
            polls: 0,
            sleeps: Cell::new(false),
            since: None,
            is_stalled: false,
            has_queried: false,
        }
    }

    /// Starts another wait.
    #[inline]
    pub(crate) fn restart(&mut self) {
        self.polls = 0;
        self.since = None;
        self.has_queried = false;
    }

    /// Notes that polls are rare from now on, for example because the rank sleeps between them; each reads the clock.
    pub(crate) fn note_sleep(&self) {
        self.sleeps.set(true);
    }

    /// Returns whether a check is due. Call it after each poll that leaves operations pending.
    #[inline]
    pub(crate) fn is_due(&mut self, context: &CollContext) -> bool {
        let arrived = context.channel().unexpected_counts().arrived;
        let has_arrived = std::mem::replace(&mut self.arrived, arrived) != arrived;
        self.polls = self.polls.wrapping_add(1);
        has_arrived
            || ((self.sleeps.get() || self.polls.is_multiple_of(POLLS_PER_CLOCK_READ)) && self.has_stalled())
    }

    #[cold]
    fn has_stalled(&mut self) -> bool {
        let now = Instant::now();
        if now - *self.since.get_or_insert(now) < STALL_TIMEOUT {
            return false;
        }
        self.since = Some(now);
        self.is_stalled = true;
        true
    }

    /// Returns whether the check is due because of the timeout, and clears the flag.
    pub(crate) fn take_timed_out(&mut self) -> bool {
        std::mem::take(&mut self.is_stalled)
    }

    /// Returns true once in each wait.
    pub(crate) fn take_first_query(&mut self) -> bool {
        !std::mem::replace(&mut self.has_queried, true)
    }
}

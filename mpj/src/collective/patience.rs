//! Stall detection: a rank that waits in a collective checks whether the ranks are out of step when an unexpected
//! message has arrived, and after a long wait.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::context::CollContext;

/// How long a rank waits for others before it queries them. The time alone proves nothing: a rank that computes for
/// minutes only receives one query.
const LONG: Duration = Duration::from_millis(300);

/// The number of polls between two reads of the clock, while the rank does not sleep.
const POLLS: u32 = 1024;

/// Detects stalls of the waits of one schedule.
#[derive(Debug)]
pub(crate) struct StallDetector {
    /// The number of unexpected messages that had arrived at the last check.
    arrived: u32,
    polls: u32,
    /// Whether the rank sleeps between polls.
    sleeps: Cell<bool>,
    since: Option<Instant>,
    is_long: bool,
    has_asked: bool,
}

impl StallDetector {
    pub(crate) fn new(context: &CollContext) -> Self {
        let arrived = context.channel().unexpected_counts().arrived;
        StallDetector {
            arrived,
            polls: 0,
            sleeps: Cell::new(false),
            since: None,
            is_long: false,
            has_asked: false,
        }
    }

    /// Starts another wait.
    #[inline]
    pub(crate) fn restart(&mut self) {
        self.polls = 0;
        self.since = None;
        self.has_asked = false;
    }

    /// Notes that the rank is about to sleep: from now on polls are rare, and each one reads the clock.
    pub(crate) fn sleep(&self) {
        self.sleeps.set(true);
    }

    /// Returns whether a check for stalls is due, after a poll without progress.
    #[inline]
    pub(crate) fn is_due(&mut self, context: &CollContext) -> bool {
        let arrived = context.channel().unexpected_counts().arrived;
        let is_news = std::mem::replace(&mut self.arrived, arrived) != arrived;
        self.polls = self.polls.wrapping_add(1);
        is_news || ((self.sleeps.get() || self.polls.is_multiple_of(POLLS)) && self.has_waited_long())
    }

    #[cold]
    fn has_waited_long(&mut self) -> bool {
        let now = Instant::now();
        if now - *self.since.get_or_insert(now) < LONG {
            return false;
        }
        self.since = Some(now);
        self.is_long = true;
        true
    }

    /// Returns whether the check is due because the wait is long, and clears the flag.
    pub(crate) fn take_long(&mut self) -> bool {
        std::mem::take(&mut self.is_long)
    }

    /// Returns whether to query the other ranks; true once in each wait.
    pub(crate) fn should_query(&mut self) -> bool {
        !std::mem::replace(&mut self.has_asked, true)
    }
}

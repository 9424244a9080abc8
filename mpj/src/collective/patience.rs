//! When a rank that waits in a collective looks for signs that the ranks are out of step: at once if a message has come
//! that no receive was posted for, and after a long wait.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::context::Context;

/// How long a rank waits for the others before it asks them where they are. Nothing is concluded from the time: a rank
/// that computes for minutes is only asked once.
const LONG: Duration = Duration::from_millis(300);

/// Polls between two looks at the clock, while the rank does not sleep.
const POLLS: u32 = 1024;

/// The patience of one wait.
#[derive(Debug)]
pub(crate) struct StallDetector {
    /// The early messages that had arrived when it last looked.
    arrived: u32,
    polls: u32,
    /// Whether the rank has begun to sleep between polls.
    sleeps: Cell<bool>,
    since: Option<Instant>,
    is_long: bool,
    has_asked: bool,
}

impl StallDetector {
    pub(crate) fn new(context: &Context) -> Self {
        let arrived = context.channel().early().arrived;
        StallDetector {
            arrived,
            polls: 0,
            sleeps: Cell::new(false),
            since: None,
            is_long: false,
            has_asked: false,
        }
    }

    /// Begins another wait.
    #[inline]
    pub(crate) fn restart(&mut self) {
        self.polls = 0;
        self.since = None;
        self.has_asked = false;
    }

    /// Notes that the rank is about to sleep: from now on polls are rare.
    pub(crate) fn sleep(&self) {
        self.sleeps.set(true);
    }

    /// Whether it is time to look around, after a poll that found nothing.
    #[inline]
    pub(crate) fn is_due(&mut self, context: &Context) -> bool {
        let arrived = context.channel().early().arrived;
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

    /// Whether it is due because the wait is long.
    pub(crate) fn take_long(&mut self) -> bool {
        std::mem::take(&mut self.is_long)
    }

    /// Whether to ask the others, which is done once a wait.
    pub(crate) fn should_query(&mut self) -> bool {
        !std::mem::replace(&mut self.has_asked, true)
    }
}

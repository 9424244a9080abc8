//! The waiting policy: poll, then yield, then sleep; never spin only, never sleep first.

use std::time::{Duration, Instant};

use crate::config::{self, Config};

/// How long to poll and to yield.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    spin: Duration,
    awake: Duration,
}

impl Policy {
    /// With more ranks than cores a rank that polls keeps the one it waits for from running: it yields at once.
    pub(crate) fn new(config: &Config, local: u32) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let crowded = usize::try_from(local).unwrap_or(usize::MAX) > cores;
        let spin = if crowded && !config.is_set(&config::SPIN) { 0 } else { config.get(&config::SPIN) };
        Policy { spin: Duration::from_micros(spin), awake: Duration::from_micros(config.get(&config::YIELD)) }
    }
}

/// What to do after a poll that found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Poll,
    Sleep,
}

/// One wait under a [`Policy`].
#[derive(Debug)]
pub(crate) struct Waiter {
    policy: Policy,
    polls: u32,
    since: Option<Instant>,
}

/// Polls between two looks at the clock; a look costs as much as a few polls.
const POLLS_PER_LOOK: u32 = 32;

impl Waiter {
    pub(crate) fn new(policy: Policy) -> Self {
        Waiter { policy, polls: 0, since: None }
    }

    /// Pauses or yields after a poll that found nothing, and says when it is time to sleep.
    #[inline]
    pub(crate) fn idle(&mut self) -> Next {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS_PER_LOOK) {
            std::hint::spin_loop();
            return Next::Poll;
        }
        self.look()
    }

    #[cold]
    fn look(&mut self) -> Next {
        let now = Instant::now();
        let waited = now - *self.since.get_or_insert(now);
        if waited >= self.policy.awake {
            return Next::Sleep;
        }
        if waited >= self.policy.spin {
            std::thread::yield_now();
            // In the yielding phase every poll that finds nothing yields again.
            self.polls = POLLS_PER_LOOK.wrapping_sub(2);
        }
        Next::Poll
    }

    /// Starts again: something happened.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.polls = 0;
        self.since = None;
    }
}

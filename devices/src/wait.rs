//! The waiting policy: poll, then yield, then sleep; never spin only, never sleep first.
//!
//! Polling pays only while the one who is waited for runs on another core. With more ranks than cores it does not, and
//! neither does it where other programs use the cores: there a rank that polls keeps its peer from running. Nobody tells
//! a rank of other programs, but a yield does: it returns within a fraction of a microsecond when nobody else wants the
//! core, and later when somebody ran. So a rank whose yield took long stops polling for a number of waits, and then
//! tries again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::config::{self, Config};

/// How long to poll and to yield.
#[derive(Debug)]
pub(crate) struct Policy {
    spin: Duration,
    awake: Duration,
    /// Waits still to come that yield after a few polls, since the core was found to be shared. Threads may overwrite each other's
    /// count: it is a guess, and only speed depends on it.
    shared: AtomicU32,
}

/// A yield that takes this long has let somebody else run; one that has not takes a fifth of it.
const SWITCH: Duration = Duration::from_micros(1);

/// Waits that do not poll after the core was found to be shared: so few polls in vain are left that they cost little.
const PATIENT: u32 = 64;

impl Policy {
    /// With more ranks than cores a rank that polls keeps the one it waits for from running: it yields at once.
    pub(crate) fn new(config: &Config, local: u32) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let crowded = usize::try_from(local).unwrap_or(usize::MAX) > cores;
        let spin = if crowded && !config.is_set(&config::SPIN) { 0 } else { config.get(&config::SPIN) };
        Policy {
            spin: Duration::from_micros(spin),
            awake: Duration::from_micros(config.get(&config::YIELD)),
            shared: AtomicU32::new(0),
        }
    }

    /// Returns how long a wait that begins now polls at least.
    #[inline]
    fn spin(&self) -> Duration {
        match self.shared.load(Ordering::Relaxed) {
            0 => self.spin,
            left => {
                self.shared.store(left - 1, Ordering::Relaxed);
                Duration::ZERO
            }
        }
    }

    /// Takes note of how long a yield took.
    fn note(&self, yielded: Duration) {
        if yielded >= SWITCH && !self.spin.is_zero() {
            self.shared.store(PATIENT, Ordering::Relaxed);
        }
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
pub(crate) struct Waiter<'a> {
    policy: &'a Policy,
    spin: Duration,
    polls: u32,
    since: Option<Instant>,
}

/// Polls between two looks at the clock; a look costs as much as a few polls.
const POLLS_PER_LOOK: u32 = 32;

impl<'a> Waiter<'a> {
    pub(crate) fn new(policy: &'a Policy) -> Self {
        Waiter { policy, spin: policy.spin(), polls: 0, since: None }
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
        if waited >= self.spin {
            std::thread::yield_now();
            self.policy.note(now.elapsed());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_core_is_not_polled_on_for_a_while() {
        let policy = Policy::new(&Config::default(), 1);
        let polls = || !Waiter::new(&policy).spin.is_zero();
        assert!(polls());
        policy.note(SWITCH / 5);
        assert!(polls(), "nobody else ran");
        policy.note(SWITCH * 5);
        for wait in 0..PATIENT {
            assert!(!polls(), "wait {wait}");
        }
        assert!(polls(), "it is tried again");
    }

    #[test]
    fn who_is_told_not_to_poll_does_not_try() {
        let mut config = Config::default();
        config.set(&config::SPIN, 0).expect("in its range");
        let policy = Policy::new(&config, 1);
        for _ in 0..3 * PATIENT {
            policy.note(SWITCH * 5);
            assert!(Waiter::new(&policy).spin.is_zero());
        }
    }
}

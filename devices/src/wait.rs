//! The waiting policy: poll, then yield, then sleep; never spin only, never sleep first.
//!
//! Polling pays only while the one who is waited for runs on another core. With more ranks than cores it does not, and
//! neither does it where other programs use the cores: there a rank that polls keeps its peer from running. Nobody tells
//! a rank of other programs, but a yield does: it returns within a fraction of a microsecond when nobody else wants the
//! core, and later when somebody ran. So a rank whose yield took long stops polling for a number of waits, and then
//! tries again. If another program kept the core for a time slice, yielding to it costs milliseconds each time: the next waits
//! sleep instead, because the system runs a rank soon after it was woken.
//!
//! A program that does not wait but tests, again and again, is no better than one that polls: it yields, too, after a
//! number of tests in vain. While nobody else wants the core the number grows, so that the yields cost nothing; as soon as
//! somebody does, every test in vain yields.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::config::{Config, Number};
use crate::cores;

/// How long a waiting rank polls before it yields.
pub const SPIN: Number = Number {
    name: "SPIN",
    default: 20,
    range: (0, 1_000_000),
    help: "microseconds that a waiting rank polls before it yields its core; 0 by default when ranks outnumber cores",
};

/// How long a waiting rank polls and yields before it sleeps.
pub const YIELD: Number = Number {
    name: "YIELD",
    default: 1000,
    range: (0, 10_000_000),
    help: "microseconds that a waiting rank polls and yields before it sleeps",
};

/// How long to poll and to yield.
#[derive(Debug)]
pub(crate) struct Policy {
    spin: Duration,
    awake: Duration,
    /// Waits still to come that yield after a few polls, since the core was found to be shared. Threads may overwrite each other's
    /// count: it is a guess, and only speed depends on it.
    shared: AtomicU32,
    /// Whether these waits sleep instead, since another program kept the core.
    is_kept: AtomicBool,
    /// Looks in vain since the last yield or the last news, and how many of them make the next yield due. Guesses, too.
    vain: AtomicU32,
    due: AtomicU32,
}

/// A yield that takes this long has let somebody else run; one that has not takes a fifth of it.
const CONTEXT_SWITCH: Duration = Duration::from_micros(1);

/// Waits that do not poll after the core was found to be shared: so few polls in vain are left that they cost little.
const SPIN_SKIPS: u32 = 64;

/// A yield that takes this long has let a program run that does not wait for anything.
const SLICE: Duration = Duration::from_micros(500);

/// Waits that sleep after such a yield: one costs as much as a hundred of them.
const WARY: u32 = 1024;

/// Looks in vain between two yields: at first, and after many yields that let nobody run.
const EMPTY_POLLS: (u32, u32) = (32, 1024);

impl Policy {
    /// With more ranks than cores a rank that polls keeps the one it waits for from running: it yields at once.
    pub(crate) fn new(config: &Config, local: u32) -> Self {
        let spin = if cores::are_outnumbered(config, local) && !config.is_set(&SPIN) {
            0
        } else {
            config.number(&SPIN)
        };
        Policy {
            spin: Duration::from_micros(spin),
            awake: Duration::from_micros(config.number(&YIELD)),
            shared: AtomicU32::new(0),
            is_kept: AtomicBool::new(false),
            vain: AtomicU32::new(0),
            due: AtomicU32::new(EMPTY_POLLS.0),
        }
    }

    /// Takes note of a single look that found something.
    #[inline]
    pub(crate) fn note_hit(&self) {
        self.vain.store(0, Ordering::Relaxed);
    }

    /// Takes note of a single look that found nothing, and yields if there were many.
    #[inline]
    pub(crate) fn note_empty_poll(&self) {
        if self.is_due() {
            self.yield_core();
        }
    }

    #[inline]
    fn is_due(&self) -> bool {
        let vain = self.vain.load(Ordering::Relaxed).saturating_add(1);
        self.vain.store(vain, Ordering::Relaxed);
        vain >= self.due.load(Ordering::Relaxed)
    }

    #[cold]
    fn yield_core(&self) {
        let began = Instant::now();
        std::thread::yield_now();
        self.adapt(began.elapsed());
    }

    /// Decides after how many more looks in vain the next yield is due, by how long the last one took.
    fn adapt(&self, yielded: Duration) {
        let (few, many) = EMPTY_POLLS;
        let more = (2 * self.due.load(Ordering::Relaxed)).clamp(few, many);
        self.due.store(if yielded >= CONTEXT_SWITCH { 1 } else { more }, Ordering::Relaxed);
        self.vain.store(0, Ordering::Relaxed);
    }

    /// Returns how long a wait that begins now polls at least, and how long it polls and yields before it sleeps.
    #[inline]
    fn times(&self) -> (Duration, Duration) {
        match self.shared.load(Ordering::Relaxed) {
            0 => (self.spin, self.awake),
            left => {
                self.shared.store(left - 1, Ordering::Relaxed);
                match self.is_kept.load(Ordering::Relaxed) {
                    true => (self.spin, Duration::ZERO),
                    false => (Duration::ZERO, self.awake),
                }
            }
        }
    }

    /// Takes note of how long a yield took.
    fn note(&self, yielded: Duration) {
        if yielded >= CONTEXT_SWITCH && !self.spin.is_zero() {
            let is_kept = yielded >= SLICE;
            self.is_kept.store(is_kept, Ordering::Relaxed);
            self.shared.store(if is_kept { WARY } else { SPIN_SKIPS }, Ordering::Relaxed);
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
    awake: Duration,
    polls: u32,
    since: Option<Instant>,
    /// Whether it has slept, or might have: whoever wakes it looks once.
    is_long: bool,
}

/// Polls between two looks at the clock; a look costs as much as a few polls.
const POLLS_PER_LOOK: u32 = 32;

/// Yields between two looks at the clock, where every poll yields from the first on: nothing is learned from how long one takes.
const YIELDS_PER_LOOK: u32 = 8;

impl<'a> Waiter<'a> {
    pub(crate) fn new(policy: &'a Policy) -> Self {
        let (spin, awake) = policy.times();
        Waiter { policy, spin, awake, polls: 0, since: None, is_long: false }
    }

    /// Returns whether polls follow each other at once: no yield lies between them.
    #[inline]
    pub(crate) fn is_polling(&self) -> bool {
        !self.spin.is_zero()
    }

    /// Pauses or yields after a poll that found nothing, and says when it is time to sleep.
    #[inline]
    pub(crate) fn idle(&mut self) -> Next {
        self.polls = self.polls.wrapping_add(1);
        if self.spin.is_zero() || self.polls.is_multiple_of(POLLS_PER_LOOK) {
            return self.look();
        }
        std::hint::spin_loop();
        Next::Poll
    }

    #[cold]
    fn look(&mut self) -> Next {
        let is_brief = !self.is_long && !self.awake.is_zero();
        if is_brief && self.policy.spin.is_zero() && !self.polls.is_multiple_of(YIELDS_PER_LOOK) {
            std::thread::yield_now();
            return Next::Poll;
        }
        let now = Instant::now();
        let waited = now - *self.since.get_or_insert(now);
        if waited >= self.awake {
            self.is_long = true;
            return Next::Sleep;
        }
        if waited >= self.spin {
            std::thread::yield_now();
            self.policy.note(now.elapsed());
            // From now on every poll that finds nothing yields.
            self.spin = Duration::ZERO;
        }
        Next::Poll
    }

    /// Starts again: something happened.
    #[inline]
    pub(crate) fn reset(&mut self) {
        if self.since.is_some() {
            *self = Waiter::new(self.policy);
        }
        self.polls = 0;
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
        policy.note(CONTEXT_SWITCH / 5);
        assert!(polls(), "nobody else ran");
        policy.note(CONTEXT_SWITCH * 5);
        for wait in 0..SPIN_SKIPS {
            assert!(!polls(), "wait {wait}");
        }
        assert!(polls(), "it is tried again");
    }

    /// Looks in vain so often, with yields that take so long, and returns how many there were.
    fn yields(policy: &Policy, looks: u32, each: Duration) -> u32 {
        let yields = || policy.is_due().then(|| policy.adapt(each)).is_some();
        (0..looks).map(|_| u32::from(yields())).sum()
    }

    #[test]
    fn who_only_tests_yields_seldom_while_nobody_else_runs_and_each_time_when_somebody_does() {
        let policy = Policy::new(&Config::default(), 1);
        assert_eq!(yields(&policy, EMPTY_POLLS.0 - 1, CONTEXT_SWITCH / 5), 0);
        assert_eq!(yields(&policy, 1, CONTEXT_SWITCH / 5), 1);
        assert!(yields(&policy, 100_000, CONTEXT_SWITCH / 5) <= 100_000 / EMPTY_POLLS.1 + 6);
        let busy = yields(&policy, 100_000, CONTEXT_SWITCH);
        assert!(busy >= 100_000 - EMPTY_POLLS.1, "{busy}");
        assert_eq!(yields(&policy, EMPTY_POLLS.0 + 1, CONTEXT_SWITCH / 5), 2, "the core is its own again");
        for _ in 0..100 {
            assert_eq!(yields(&policy, EMPTY_POLLS.0 - 1, CONTEXT_SWITCH / 5), 0, "there is news between");
            policy.note_hit();
        }
    }

    #[test]
    fn a_core_that_another_program_keeps_is_slept_on_for_a_while() {
        let policy = Policy::new(&Config::default(), 1);
        policy.note(SLICE);
        for wait in 0..WARY {
            let mut waiter = Waiter::new(&policy);
            let polls = (1..).find(|_| waiter.idle() == Next::Sleep);
            assert_eq!(polls, Some(POLLS_PER_LOOK), "wait {wait}");
        }
        assert_eq!(policy.times(), (policy.spin, policy.awake), "it is tried again");
        policy.note(SLICE);
        policy.note(CONTEXT_SWITCH);
        assert_eq!(policy.times(), (Duration::ZERO, policy.awake), "others give the core back");
    }

    #[test]
    fn who_is_told_not_to_poll_does_not_try() {
        let mut config = Config::default();
        config.set(&SPIN, 0).expect("in its range");
        let policy = Policy::new(&config, 1);
        for _ in 0..3 * SPIN_SKIPS {
            policy.note(CONTEXT_SWITCH * 5);
            assert!(Waiter::new(&policy).spin.is_zero());
        }
    }
}

//! The waiting policy: a wait polls first, then yields, then sleeps.
//!
//! Polling is worthwhile only while the awaited rank runs on another core. It is harmful with more ranks than cores, or
//! if other programs use the cores: the polling rank then prevents its peer from running. A rank does not know of other
//! programs, but it can measure its yields: a yield returns within a fraction of a microsecond if no other thread wants
//! the core, and later if another thread ran. Therefore, after a slow yield, the next waits skip the spin phase. If
//! another program kept the core for a time slice, the next waits sleep without yielding, because the system soon runs
//! a rank that was woken.
//!
//! A program that calls `test` in a loop also polls, so `test` yields after a number of empty polls. While no other
//! thread wants the core, that number grows, so that the yields cost little. After a slow yield, the next empty poll
//! yields again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::config::{Config, Number};
use crate::cores;

/// The time in microseconds for which a waiting rank polls before it yields.
pub const SPIN_US: Number = Number {
    name: "SPIN_US",
    default: 20,
    range: (0, 1_000_000),
    help: "microseconds that a waiting rank polls before it yields its core; 0 by default when ranks outnumber cores",
};

/// The time in microseconds for which a waiting rank polls and yields before it sleeps.
pub const YIELD_US: Number = Number {
    name: "YIELD_US",
    default: 1000,
    range: (0, 10_000_000),
    help: "microseconds that a waiting rank polls and yields before it sleeps",
};

/// The times for polling and yielding, and the history of recent yields.
#[derive(Debug)]
pub(crate) struct Policy {
    spin: Duration,
    until_sleep: Duration,
    /// Number of coming waits that skip a phase because the core was found to be oversubscribed. Threads may overwrite
    /// each other's count: it is an estimate that affects only the speed.
    skips: AtomicU32,
    /// Whether these waits skip the yields, after a yield of [`TIME_SLICE`]. Otherwise they skip the spin phase.
    skip_yields: AtomicBool,
    /// Empty polls since the last yield or the last success, and the number of them after which the next yield is due.
    /// Both are estimates, too.
    empty_polls: AtomicU32,
    yield_after: AtomicU32,
}

/// A yield that takes at least this long has let another thread run.
const CONTEXT_SWITCH: Duration = Duration::from_micros(1);

/// Number of waits that skip the spin phase after the core was found to be oversubscribed. It is so large that the
/// occasional futile spin costs little.
const SPIN_SKIPS: u32 = 64;

/// A yield that takes at least this long has let a thread run that used its whole time slice.
const TIME_SLICE: Duration = Duration::from_micros(500);

/// Number of waits that sleep without a yield after a yield of [`TIME_SLICE`], which costs far more than a sleep.
const YIELD_SKIPS: u32 = 1024;

/// Number of empty polls before a yield: at first, and after many yields that let no other thread run.
const EMPTY_POLLS: (u32, u32) = (32, 1024);

/// The time for which a progress thread yields before it sleeps. It is longer than the usual time between two pieces of
/// a long message.
const BACKGROUND_YIELDS: Duration = Duration::from_micros(50);

impl Policy {
    /// Reads the times from the parameters. If ranks outnumber cores, a wait yields at once unless [`SPIN_US`] is set,
    /// because a polling rank would prevent the awaited rank from running.
    pub(crate) fn new(config: &Config, local: u32) -> Self {
        let spin = if cores::is_oversubscribed(config, local) && !config.is_set(&SPIN_US) {
            0
        } else {
            config.number(&SPIN_US)
        };
        Policy {
            spin: Duration::from_micros(spin),
            until_sleep: Duration::from_micros(config.number(&YIELD_US)),
            skips: AtomicU32::new(0),
            skip_yields: AtomicBool::new(false),
            empty_polls: AtomicU32::new(0),
            yield_after: AtomicU32::new(EMPTY_POLLS.0),
        }
    }

    /// The policy of a progress thread: it leaves the core to the program, and sleeps after a few yields.
    pub(crate) fn background() -> Self {
        Policy {
            spin: Duration::ZERO,
            until_sleep: BACKGROUND_YIELDS,
            skips: AtomicU32::new(0),
            skip_yields: AtomicBool::new(false),
            empty_polls: AtomicU32::new(0),
            yield_after: AtomicU32::new(EMPTY_POLLS.0),
        }
    }

    #[inline]
    pub(crate) fn note_hit(&self) {
        self.empty_polls.store(0, Ordering::Relaxed);
    }

    /// Records an empty poll, and yields if enough polls were empty.
    #[inline]
    pub(crate) fn note_empty_poll(&self) {
        if self.is_yield_due() {
            self.yield_core();
        }
    }

    #[inline]
    fn is_yield_due(&self) -> bool {
        let polls = self.empty_polls.load(Ordering::Relaxed).saturating_add(1);
        self.empty_polls.store(polls, Ordering::Relaxed);
        polls >= self.yield_after.load(Ordering::Relaxed)
    }

    #[cold]
    fn yield_core(&self) {
        let began = Instant::now();
        std::thread::yield_now();
        self.adapt(began.elapsed());
    }

    /// Sets the number of empty polls before the next yield, from the duration of the last yield.
    fn adapt(&self, yielded: Duration) {
        let (few, many) = EMPTY_POLLS;
        let more = (2 * self.yield_after.load(Ordering::Relaxed)).clamp(few, many);
        self.yield_after.store(if yielded >= CONTEXT_SWITCH { 1 } else { more }, Ordering::Relaxed);
        self.empty_polls.store(0, Ordering::Relaxed);
    }

    /// Counts a wait that begins now. Returns how long it polls, and how long it polls and yields before it sleeps.
    #[inline]
    fn times(&self) -> (Duration, Duration) {
        match self.skips.load(Ordering::Relaxed) {
            0 => (self.spin, self.until_sleep),
            left => {
                self.skips.store(left - 1, Ordering::Relaxed);
                match self.skip_yields.load(Ordering::Relaxed) {
                    true => (self.spin, Duration::ZERO),
                    false => (Duration::ZERO, self.until_sleep),
                }
            }
        }
    }

    fn note_yield(&self, yielded: Duration) {
        if yielded >= CONTEXT_SWITCH && !self.spin.is_zero() {
            let is_time_slice = yielded >= TIME_SLICE;
            self.skip_yields.store(is_time_slice, Ordering::Relaxed);
            self.skips.store(if is_time_slice { YIELD_SKIPS } else { SPIN_SKIPS }, Ordering::Relaxed);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleStep {
    Poll,
    Sleep,
}

#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    policy: &'a Policy,
    spin: Duration,
    until_sleep: Duration,
    polls: u32,
    since: Option<Instant>,
    /// Whether `idle` has returned `Sleep`. After that, no yield precedes the next sleep.
    has_slept: bool,
}

/// Polls between two reads of the clock, each of which costs as much as a few polls.
const POLLS_PER_CLOCK_READ: u32 = 32;

/// Yields between two reads of the clock if the configured spin time is 0: such waits need not measure each yield.
const YIELDS_PER_CLOCK_READ: u32 = 8;

impl<'a> Waiter<'a> {
    pub(crate) fn new(policy: &'a Policy) -> Self {
        let (spin, until_sleep) = policy.times();
        Waiter { policy, spin, until_sleep, polls: 0, since: None, has_slept: false }
    }

    #[inline]
    pub(crate) fn is_polling(&self) -> bool {
        !self.spin.is_zero()
    }

    #[inline]
    pub(crate) fn idle(&mut self) -> IdleStep {
        self.polls = self.polls.wrapping_add(1);
        if self.spin.is_zero() || self.polls.is_multiple_of(POLLS_PER_CLOCK_READ) {
            return self.idle_slow();
        }
        std::hint::spin_loop();
        IdleStep::Poll
    }

    #[cold]
    fn idle_slow(&mut self) -> IdleStep {
        let may_yield = !self.has_slept && !self.until_sleep.is_zero();
        if may_yield && self.policy.spin.is_zero() && !self.polls.is_multiple_of(YIELDS_PER_CLOCK_READ) {
            std::thread::yield_now();
            return IdleStep::Poll;
        }
        let now = Instant::now();
        let waited = now - *self.since.get_or_insert(now);
        if waited >= self.until_sleep {
            self.has_slept = true;
            return IdleStep::Sleep;
        }
        if waited >= self.spin {
            std::thread::yield_now();
            self.policy.note_yield(now.elapsed());
            // From now on every empty poll yields.
            self.spin = Duration::ZERO;
        }
        IdleStep::Poll
    }

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
    fn oversubscribed_core_skips_spin_phases() {
        let policy = Policy::new(&Config::default(), 1);
        let polls = || !Waiter::new(&policy).spin.is_zero();
        assert!(polls());
        policy.note_yield(CONTEXT_SWITCH / 5);
        assert!(polls(), "no other thread ran");
        policy.note_yield(CONTEXT_SWITCH * 5);
        for wait in 0..SPIN_SKIPS {
            assert!(!polls(), "wait {wait}");
        }
        assert!(polls(), "the wait polls again");
    }

    /// Simulates `polls` empty polls with yields of the duration `each`, and returns the number of yields.
    fn yields(policy: &Policy, polls: u32, each: Duration) -> u32 {
        let yields = || policy.is_yield_due().then(|| policy.adapt(each)).is_some();
        (0..polls).map(|_| u32::from(yields())).sum()
    }

    #[test]
    fn empty_polls_yield_rarely_unless_the_core_is_shared() {
        let policy = Policy::new(&Config::default(), 1);
        assert_eq!(yields(&policy, EMPTY_POLLS.0 - 1, CONTEXT_SWITCH / 5), 0);
        assert_eq!(yields(&policy, 1, CONTEXT_SWITCH / 5), 1);
        assert!(yields(&policy, 100_000, CONTEXT_SWITCH / 5) <= 100_000 / EMPTY_POLLS.1 + 6);
        let busy = yields(&policy, 100_000, CONTEXT_SWITCH);
        assert!(busy >= 100_000 - EMPTY_POLLS.1, "{busy}");
        assert_eq!(
            yields(&policy, EMPTY_POLLS.0 + 1, CONTEXT_SWITCH / 5),
            2,
            "the core is not shared any more"
        );
        for _ in 0..100 {
            assert_eq!(yields(&policy, EMPTY_POLLS.0 - 1, CONTEXT_SWITCH / 5), 0, "a poll found something");
            policy.note_hit();
        }
    }

    #[test]
    fn waits_sleep_while_another_program_keeps_the_core() {
        let policy = Policy::new(&Config::default(), 1);
        policy.note_yield(TIME_SLICE);
        for wait in 0..YIELD_SKIPS {
            let mut waiter = Waiter::new(&policy);
            let polls = (1..).find(|_| waiter.idle() == IdleStep::Sleep);
            assert_eq!(polls, Some(POLLS_PER_CLOCK_READ), "wait {wait}");
        }
        assert_eq!(policy.times(), (policy.spin, policy.until_sleep), "the wait polls again");
        policy.note_yield(TIME_SLICE);
        policy.note_yield(CONTEXT_SWITCH);
        assert_eq!(policy.times(), (Duration::ZERO, policy.until_sleep), "only the spin phase is skipped");
    }

    #[test]
    fn zero_spin_time_has_no_spin_phase() {
        let mut config = Config::default();
        config.set(&SPIN_US, 0).expect("in its range");
        let policy = Policy::new(&config, 1);
        for _ in 0..3 * SPIN_SKIPS {
            policy.note_yield(CONTEXT_SWITCH * 5);
            assert!(Waiter::new(&policy).spin.is_zero());
        }
    }
}

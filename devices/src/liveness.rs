//! The roster of exits, from which waits learn which ranks have died or exited.
//!
//! A reported death is broadcast to all processes, and wakes their sleeping ranks. A normal exit concerns only the
//! ranks that wait for that rank. It is stored where it was reported, wakes no thread, and is sent only to processes
//! that [request](Roster::request_exits) it. An engine requests exits only after it has polled for some time, so short
//! waits cause no such messages.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::doorbell::Doorbell;

/// The way in which a rank's part in the job ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The rank is closing, except in these contexts: there it still takes part in operations that it has
    /// [spawned](crate::Engine::spawn).
    ClosingExcept(Arc<[u64]>),
    /// The rank posts no more receives and starts no more messages. Its devices have accepted its earlier frames.
    Closing,
    /// The rank has exited normally, and its messages to ranks that were not exiting have arrived.
    Left,
    /// The rank has died; the text says how.
    Died(Arc<str>),
}

impl Exit {
    /// Returns whether the rank has not died, but posts no more receives and starts no more messages in a context.
    pub(crate) fn is_closing_in(&self, context: u64) -> bool {
        match self {
            Exit::ClosingExcept(contexts) => !contexts.contains(&context),
            Exit::Closing | Exit::Left => true,
            Exit::Died(_) => false,
        }
    }

    /// Returns the place of this exit among the exits of one rank, which are recorded in increasing order.
    fn order(&self) -> u8 {
        match self {
            Exit::ClosingExcept(_) => 0,
            Exit::Closing => 1,
            Exit::Left | Exit::Died(_) => 2,
        }
    }
}

/// One rank's exit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExitEvent {
    /// The rank in the world.
    pub rank: u32,
    /// The kind of exit.
    pub exit: Exit,
}

/// Returns whether `exit` is a death whose text names the death of `rank` as its cause.
fn is_caused_by(exit: &Exit, rank: u32) -> bool {
    matches!(exit, Exit::Died(cause) if cause.contains(&format!("rank {rank} has failed")))
}

/// Sends the exits that this process reports to the other processes.
pub trait Broadcaster: Send + Sync + fmt::Debug {
    /// Sends an event that was reported here; returns whether the roster should record it at once.
    ///
    /// If it returns false, the event comes back by [`Roster::learn`], in an order that is the same for all processes:
    /// one death entails others, and all processes must name the first.
    fn broadcast(&self, event: &ExitEvent) -> bool;

    /// Requests the normal exits of other processes' ranks, and returns at once. The exits come by [`Roster::learn`] if
    /// there are any. Deaths are sent without a request. A request has no effect while another waits for its reply.
    fn request_exits(&self);

    /// Reports that a call of `rank`, a rank of this process, fails because rank `first` has reported its failure or
    /// refuses a message. If both die, `first` is the cause. Returns at once.
    fn report_cause(&self, rank: u32, first: u32);
}

/// The known exits, in the order in which they became known.
#[derive(Debug, Default)]
pub struct Roster {
    known: AtomicUsize,
    has_death: AtomicBool,
    events: Mutex<ExitLog>,
    bells: Mutex<Vec<Arc<Doorbell>>>,
    broadcaster: OnceLock<Arc<dyn Broadcaster>>,
}

#[derive(Debug, Default)]
struct ExitLog {
    all: Vec<ExitEvent>,
    last: HashMap<u32, usize>,
    deaths: Vec<usize>,
    /// For each rank, the last rank that was reported as the cause of its failure.
    causes: HashMap<u32, u32>,
}

impl ExitLog {
    /// Returns whether an exit is new. A closing rank can still leave or die, but nothing follows `Left` or `Died`.
    fn is_new(&self, rank: u32, exit: &Exit) -> bool {
        let last = self.last.get(&rank).map(|at| &self.all[*at].exit);
        last.is_none_or(|last| last.order() < exit.order())
    }

    /// Stores an event; returns false if it is not new.
    fn push(&mut self, event: ExitEvent) -> bool {
        if !self.is_new(event.rank, &event.exit) {
            return false;
        }
        self.last.insert(event.rank, self.all.len());
        if let Exit::Died(_) = event.exit {
            self.deaths.push(self.all.len());
        }
        self.all.push(event);
        true
    }
}

impl Roster {
    /// Returns the number of events. It is one acquire load, cheap enough for every iteration of a waiting loop.
    #[inline]
    pub fn event_count(&self) -> usize {
        // SYNC roster-known (acquire)
        self.known.load(Ordering::Acquire)
    }

    /// Returns whether any rank has died. It takes no lock, so it can be called during a panic.
    pub fn has_death(&self) -> bool {
        self.has_death.load(Ordering::Relaxed)
    }

    /// Returns whether a rank is known to have left the job normally.
    pub fn has_left(&self, rank: u32) -> bool {
        let events = self.events();
        events.last.get(&rank).is_some_and(|at| events.all[*at].exit == Exit::Left)
    }

    /// Returns the events after the first `seen`.
    pub fn since(&self, seen: usize) -> Vec<ExitEvent> {
        let events = self.events();
        events.all.get(seen..).unwrap_or(&[]).to_vec()
    }

    /// Passes a new exit to the broadcaster, and records it here at once unless the broadcaster will return it.
    pub fn report(&self, rank: u32, exit: Exit) {
        let event = ExitEvent { rank, exit };
        if self.is_new(&event)
            && self.broadcaster.get().is_none_or(|broadcaster| broadcaster.broadcast(&event))
        {
            self.learn(event);
        }
    }

    fn is_new(&self, event: &ExitEvent) -> bool {
        self.events().is_new(event.rank, &event.exit)
    }

    fn events(&self) -> MutexGuard<'_, ExitLog> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an exit in this process only, and wakes all subscribers if it is a death.
    pub fn learn(&self, event: ExitEvent) {
        {
            let mut events = self.events();
            if !events.push(event.clone()) {
                return;
            }
            self.publish(&events);
        }
        // Loggers are foreign code, and are called without the lock.
        if let Exit::Died(cause) = event.exit {
            log::info!("rank {}: {cause}", event.rank);
            self.wake();
        }
    }

    /// Records, in this process only, the deaths of these ranks for one cause, in this order. Ranks that are known to
    /// have left or died are skipped. The events share the text. Wakes all subscribers if a death is new.
    pub fn learn_deaths(&self, ranks: impl IntoIterator<Item = u32>, cause: &str) {
        let cause: Arc<str> = cause.into();
        let mut new = Vec::new();
        {
            let mut events = self.events();
            let died = || Exit::Died(Arc::clone(&cause));
            new.extend(ranks.into_iter().filter(|rank| events.push(ExitEvent { rank: *rank, exit: died() })));
            self.publish(&events);
        }
        // Loggers are foreign code, and are called without the lock.
        match &new[..] {
            [] => return,
            [rank] => log::info!("rank {rank}: {cause}"),
            [rank, others @ ..] => log::info!("rank {rank} and {} other ranks: {cause}", others.len()),
        }
        self.wake();
    }

    /// Updates the values that are read without the lock.
    fn publish(&self, events: &ExitLog) {
        self.has_death.store(!events.deaths.is_empty(), Ordering::Relaxed);
        // SYNC roster-known (release)
        self.known.store(events.all.len(), Ordering::Release);
    }

    fn wake(&self) {
        let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.iter().for_each(|bell| bell.wake());
    }

    /// Passes every new exit that is reported here from now on to `broadcaster`; only the first call has an effect.
    pub fn set_broadcaster(&self, broadcaster: Arc<dyn Broadcaster>) {
        let _ = self.broadcaster.set(broadcaster);
    }

    /// Requests the normal exits that were reported in other processes; returns at once.
    pub fn request_exits(&self) {
        if let Some(broadcaster) = self.broadcaster.get() {
            broadcaster.request_exits();
        }
    }

    /// Records, here and with the broadcaster, that a call of `rank` fails because rank `first` has failed or has
    /// stopped taking part; returns at once.
    pub fn report_cause(&self, rank: u32, first: u32) {
        let before = self.events().causes.insert(rank, first);
        if before != Some(first)
            && let Some(broadcaster) = self.broadcaster.get()
        {
            broadcaster.report_cause(rank, first);
        }
    }

    /// Wakes the owner of this doorbell at every death from now on.
    pub fn subscribe(&self, bell: Arc<Doorbell>) {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).push(bell);
    }

    /// Returns the first death, if any.
    pub fn first_death(&self) -> Option<ExitEvent> {
        self.first_death_among(|_| true)
    }

    /// Returns the death that caused the others: the first one, unless [reports](Self::report_cause) trace it back to
    /// the death of another rank.
    pub fn cause(&self) -> Option<ExitEvent> {
        let events = self.events();
        let death_of =
            |rank: u32| events.deaths.iter().map(|at| &events.all[*at]).find(|death| death.rank == rank);
        let mut cause = &events.all[*events.deaths.first()?];
        // At most one step for each death, because two ranks may name each other.
        for _ in &events.deaths {
            match events.causes.get(&cause.rank).and_then(|first| death_of(*first)) {
                Some(death) if !is_caused_by(&death.exit, cause.rank) => cause = death,
                _ => break,
            }
        }
        Some(cause.clone())
    }

    /// Returns the first death among the ranks for which `predicate` returns true.
    pub fn first_death_among(&self, predicate: impl Fn(u32) -> bool) -> Option<ExitEvent> {
        let events = self.events();
        events.deaths.iter().map(|at| &events.all[*at]).find(|death| predicate(death.rank)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_for_one_cause_share_its_text() {
        let roster = Roster::default();
        roster.learn_deaths([7, 3, 7, 5], "was lost");
        let events = roster.since(0);
        assert_eq!(events.iter().map(|event| event.rank).collect::<Vec<_>>(), [7, 3, 5]);
        let causes: Vec<&Arc<str>> = events
            .iter()
            .map(|event| match &event.exit {
                Exit::Died(cause) => cause,
                exit => panic!("{exit:?}"),
            })
            .collect();
        assert!(causes.iter().all(|cause| Arc::ptr_eq(cause, causes[0])));
    }

    #[test]
    fn closing_rank_can_still_leave_or_die() {
        let roster = Roster::default();
        let died = |why: &str| Exit::Died(why.into());
        let finishing = || Exit::ClosingExcept([7].into());
        let reported = [
            (3, finishing()),
            (3, finishing()),
            (3, Exit::Closing),
            (3, finishing()),
            (1, died("first")),
            (3, Exit::Closing),
            (3, died("second")),
            (3, Exit::Left),
            (1, Exit::Left),
            (2, Exit::Left),
            (2, Exit::Closing),
            (2, died("too late")),
        ];
        reported.into_iter().for_each(|(rank, exit)| roster.report(rank, exit));
        roster.learn_deaths(1..5, "the launcher is gone");
        let lost = died("the launcher is gone");
        let known = [
            (3, finishing()),
            (3, Exit::Closing),
            (1, died("first")),
            (3, died("second")),
            (2, Exit::Left),
            (4, lost),
        ];
        let known = known.map(|(rank, exit)| ExitEvent { rank, exit });
        assert_eq!((roster.since(0), roster.event_count()), (known.to_vec(), known.len()));
        assert_eq!(roster.since(3), known[3..]);
        assert_eq!([2, 3, 9].map(|rank| roster.has_left(rank)), [true, false, false]);
        assert_eq!(roster.first_death(), Some(known[2].clone()));
        assert_eq!(roster.first_death_among(|rank| rank > 1), Some(known[3].clone()));
        assert_eq!(roster.first_death_among(|rank| rank == 2), None);
    }
}

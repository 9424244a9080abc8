//! Who has died and who has left: the one source every wait looks at.
//!
//! A death concerns everybody, and everybody is told and woken. A good end concerns who waits for that rank, if anybody
//! does: it is kept where it was said, wakes nobody, and is told to those processes that [`ask`](Roster::ask), which is what
//! an engine does that has looked for messages for some time. So a job whose ranks leave in good order hears of none.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::doorbell::Doorbell;

/// How a rank's part in the job ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exit {
    /// It is closing, but in these contexts: there it still takes part in operations that it [drives](crate::Engine::spawn).
    ClosingExcept(Arc<[u64]>),
    /// It will post no more receives and start no more messages; those it has started are with its devices.
    Closing,
    /// It has left in good order, and all it sent has arrived.
    Left,
    /// It has died; the text says how.
    Died(Arc<str>),
}

impl Exit {
    /// Whether the rank posts no more receives in a context, and starts no more messages there, though it is alive.
    pub(crate) fn is_closing_in(&self, context: u64) -> bool {
        match self {
            Exit::ClosingExcept(contexts) => !contexts.contains(&context),
            Exit::Closing | Exit::Left => true,
            Exit::Died(_) => false,
        }
    }

    /// Ends are told of a rank in the order of these numbers, and none twice.
    fn order(&self) -> u8 {
        match self {
            Exit::ClosingExcept(_) => 0,
            Exit::Closing => 1,
            Exit::Left | Exit::Died(_) => 2,
        }
    }
}

/// One rank's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExitEvent {
    /// The rank in the world.
    pub rank: u32,
    /// What happened.
    pub exit: Exit,
}

/// Whether the account of a death says that it follows from that of `rank`.
fn follows(end: &Exit, rank: u32) -> bool {
    matches!(end, Exit::Died(cause) if cause.contains(&format!("rank {rank} has died")))
}

/// Carries what this process finds out to the other processes.
pub trait Broadcaster: Send + Sync + fmt::Debug {
    /// Passes on an event that was reported here; returns whether it is to be known here at once.
    ///
    /// If not it comes back by [`Roster::learn`], after what everybody has to know first: one death entails others, and
    /// all shall name the first.
    fn broadcast(&self, event: &ExitEvent) -> bool;

    /// Asks the other processes' ranks for their good ends, which come by [`Roster::learn`] when there are any: deaths come
    /// unasked. Returns at once; to ask again before the answer has come is to ask once.
    fn ask(&self);

    /// Passes on that a call of `rank`, which is one of this process, fails because of rank `first`, which has said that it has
    /// failed, or refuses a message: if both end by it, `first` is the cause. Returns at once.
    fn reported_causes(&self, rank: u32, first: u32);
}

/// What is known of the ranks' ends, in the order it became known.
#[derive(Debug, Default)]
pub struct Roster {
    known: AtomicUsize,
    has_death: AtomicBool,
    events: Mutex<Events>,
    bells: Mutex<Vec<Arc<Doorbell>>>,
    carrier: OnceLock<Arc<dyn Broadcaster>>,
}

#[derive(Debug, Default)]
struct Events {
    all: Vec<ExitEvent>,
    /// By rank, the place of what is known of it last.
    last: HashMap<u32, usize>,
    /// The places of the deaths.
    deaths: Vec<usize>,
    /// By rank, the last one that it was told to have failed before it.
    told: HashMap<u32, u32>,
}

impl Events {
    /// Whether this can still be said of a rank: one that is closing may leave or die, and then nothing more.
    fn is_news(&self, rank: u32, end: &Exit) -> bool {
        let last = self.last.get(&rank).map(|at| &self.all[*at].exit);
        last.is_none_or(|last| last.order() < end.order())
    }

    /// Keeps an event if it is news; returns whether it was.
    fn push(&mut self, event: ExitEvent) -> bool {
        if !self.is_news(event.rank, &event.exit) {
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
    /// Returns how many events there are; a relaxed load, for every turn of a waiting loop.
    #[inline]
    pub fn event_count(&self) -> usize {
        // SYNC roster-known (acquire)
        self.known.load(Ordering::Acquire)
    }

    /// Returns whether any rank has died; without a lock, also in the middle of a panic.
    pub fn has_death(&self) -> bool {
        self.has_death.load(Ordering::Relaxed)
    }

    /// Returns the events after the first `seen`.
    pub fn since(&self, seen: usize) -> Vec<ExitEvent> {
        let events = self.events();
        events.all.get(seen..).unwrap_or(&[]).to_vec()
    }

    /// Makes a rank's end known, here and by the carrier elsewhere, and wakes everybody if it is a death.
    pub fn report(&self, rank: u32, end: Exit) {
        let event = ExitEvent { rank, exit: end };
        if self.is_news(&event) && self.carrier.get().is_none_or(|carrier| carrier.broadcast(&event)) {
            self.learn(event);
        }
    }

    fn is_news(&self, event: &ExitEvent) -> bool {
        self.events().is_news(event.rank, &event.exit)
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an end known that was reported elsewhere, and wakes everybody if it is a death.
    pub fn learn(&self, event: ExitEvent) {
        {
            let mut events = self.events();
            if !events.push(event.clone()) {
                return;
            }
            self.publish(&events);
        }
        // Others' loggers are called without the lock.
        if let Exit::Died(cause) = event.exit {
            log::info!("rank {}: {cause}", event.rank);
            self.wake();
        }
    }

    /// Makes known that all of these ranks have died, except those whose end is known already.
    pub fn report_died(&self, ranks: impl IntoIterator<Item = u32>, cause: &str) {
        let cause: Arc<str> = cause.into();
        {
            let mut events = self.events();
            for rank in ranks {
                events.push(ExitEvent { rank, exit: Exit::Died(Arc::clone(&cause)) });
            }
            self.publish(&events);
        }
        self.wake();
    }

    /// Lets those know who look without the lock.
    fn publish(&self, events: &Events) {
        self.has_death.store(!events.deaths.is_empty(), Ordering::Relaxed);
        // SYNC roster-known (release)
        self.known.store(events.all.len(), Ordering::Release);
    }

    fn wake(&self) {
        let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.iter().for_each(|bell| bell.wake());
    }

    /// Passes every event that is reported here from now on to `carrier`; the first one given stays.
    pub fn set_broadcaster(&self, carrier: Arc<dyn Broadcaster>) {
        let _ = self.carrier.set(carrier);
    }

    /// Asks for the good ends that were reported elsewhere; returns at once.
    pub fn request_exits(&self) {
        if let Some(carrier) = self.carrier.get() {
            carrier.ask();
        }
    }

    /// Takes note, here and elsewhere, that a call of `rank` fails because rank `first` has failed or does not go on with it;
    /// returns at once.
    pub fn report_cause(&self, rank: u32, first: u32) {
        let before = self.events().told.insert(rank, first);
        if before != Some(first)
            && let Some(carrier) = self.carrier.get()
        {
            carrier.reported_causes(rank, first);
        }
    }

    /// Wakes this doorbell at every death from now on.
    pub fn subscribe(&self, bell: Arc<Doorbell>) {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).push(bell);
    }

    /// Returns the first death, if any.
    pub fn first_death(&self) -> Option<ExitEvent> {
        self.first_death_among(|_| true)
    }

    /// Returns the death that the others follow from: the first, or, if its rank was [told](Self::report_cause) of another one that
    /// has died, too, that one's.
    pub fn cause(&self) -> Option<ExitEvent> {
        let events = self.events();
        let death_of =
            |rank: u32| events.deaths.iter().map(|at| &events.all[*at]).find(|death| death.rank == rank);
        let mut cause = &events.all[*events.deaths.first()?];
        // As often as there are deaths: two may name each other.
        for _ in &events.deaths {
            match events.told.get(&cause.rank).and_then(|first| death_of(*first)) {
                Some(death) if !follows(&death.exit, cause.rank) => cause = death,
                _ => break,
            }
        }
        Some(cause.clone())
    }

    /// Returns the first death of a rank that `counts`: the others may follow from it.
    pub fn first_death_among(&self, counts: impl Fn(u32) -> bool) -> Option<ExitEvent> {
        let events = self.events();
        events.deaths.iter().map(|at| &events.all[*at]).find(|death| counts(death.rank)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_is_closing_ends_once_more() {
        let roster = Roster::default();
        let died = |why: &str| Exit::Died(why.into());
        let finishing = || Exit::ClosingExcept([7].into());
        let said = [
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
        said.into_iter().for_each(|(rank, end)| roster.report(rank, end));
        roster.report_died(1..5, "the launcher is gone");
        let lost = died("the launcher is gone");
        let known = [
            (3, finishing()),
            (3, Exit::Closing),
            (1, died("first")),
            (3, died("second")),
            (2, Exit::Left),
            (4, lost),
        ];
        let known = known.map(|(rank, end)| ExitEvent { rank, exit: end });
        assert_eq!((roster.since(0), roster.event_count()), (known.to_vec(), known.len()));
        assert_eq!(roster.since(3), known[3..]);
        assert_eq!(roster.first_death(), Some(known[2].clone()));
        assert_eq!(roster.first_death_among(|rank| rank > 1), Some(known[3].clone()));
        assert_eq!(roster.first_death_among(|rank| rank == 2), None);
    }
}

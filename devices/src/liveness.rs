//! Who has died and who has left: the one source every wait looks at.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::doorbell::Doorbell;

/// How a rank's part in the job ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// It will post no more receives and start no more messages; those it has started are with its devices.
    Closing,
    /// It has left in good order, and all it sent has arrived.
    Left,
    /// It has died; the text says how.
    Died(Arc<str>),
}

/// One rank's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The rank in the world.
    pub rank: u32,
    /// What happened.
    pub end: End,
}

impl Event {
    /// Whether nothing new can be said of the rank after this.
    fn settles(&self, other: &Event) -> bool {
        self.rank == other.rank && (self.end == other.end || self.end != End::Closing)
    }
}

/// Carries what this process finds out to the other processes.
pub trait Carrier: Send + Sync + fmt::Debug {
    /// Passes on an event that was reported here; returns whether it is to be known here at once.
    ///
    /// If not it comes back by [`Roster::hear`], after what everybody has to know first: one death entails others, and
    /// all shall name the first.
    fn carry(&self, event: &Event) -> bool;
}

/// What is known of the ranks' ends, in the order it became known.
#[derive(Debug, Default)]
pub struct Roster {
    known: AtomicUsize,
    events: Mutex<Vec<Event>>,
    bells: Mutex<Vec<Arc<Doorbell>>>,
    carrier: OnceLock<Arc<dyn Carrier>>,
}

impl Roster {
    /// Returns how many events there are; a relaxed load, for every turn of a waiting loop.
    #[inline]
    pub fn known(&self) -> usize {
        // SYNC roster-known (acquire)
        self.known.load(Ordering::Acquire)
    }

    /// Returns the events after the first `seen`.
    pub fn since(&self, seen: usize) -> Vec<Event> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.get(seen..).unwrap_or(&[]).to_vec()
    }

    /// Makes a rank's end known, here and by the carrier elsewhere, and wakes everybody.
    pub fn report(&self, rank: u32, end: End) {
        let event = Event { rank, end };
        if self.is_news(&event) && self.carrier.get().is_none_or(|carrier| carrier.carry(&event)) {
            self.hear(event);
        }
    }

    fn is_news(&self, event: &Event) -> bool {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        !events.iter().any(|earlier| earlier.settles(event))
    }

    /// Makes an end known that was reported elsewhere, and wakes everybody.
    pub fn hear(&self, event: Event) {
        {
            let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            if events.iter().any(|earlier| earlier.settles(&event)) {
                return;
            }
            events.push(event);
            // SYNC roster-known (release)
            self.known.store(events.len(), Ordering::Release);
        }
        self.wake();
    }

    /// Makes known that all of these ranks have died, except those whose end is known already.
    pub fn report_lost(&self, ranks: impl IntoIterator<Item = u32>, cause: &str) {
        let cause: Arc<str> = cause.into();
        {
            let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            let over = events.iter().filter(|e| e.end != End::Closing);
            let over: HashSet<u32> = over.map(|e| e.rank).collect();
            let lost = ranks.into_iter().filter(|rank| !over.contains(rank));
            events.extend(lost.map(|rank| Event { rank, end: End::Died(Arc::clone(&cause)) }));
            // SYNC roster-known (release)
            self.known.store(events.len(), Ordering::Release);
        }
        self.wake();
    }

    fn wake(&self) {
        let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.iter().for_each(|bell| bell.wake());
    }

    /// Passes every event that is reported here from now on to `carrier`; the first one given stays.
    pub fn forward(&self, carrier: Arc<dyn Carrier>) {
        let _ = self.carrier.set(carrier);
    }

    /// Wakes this doorbell at every event from now on.
    pub fn subscribe(&self, bell: Arc<Doorbell>) {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).push(bell);
    }

    /// Returns the first death, if any.
    pub fn first_death(&self) -> Option<Event> {
        self.first_death_among(|_| true)
    }

    /// Returns the first death of a rank that `counts`: the others may follow from it.
    pub fn first_death_among(&self, counts: impl Fn(u32) -> bool) -> Option<Event> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().find(|e| matches!(e.end, End::Died(_)) && counts(e.rank)).cloned()
    }
}

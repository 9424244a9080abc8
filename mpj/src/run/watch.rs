//! The state of each rank of this process, so that a job that hangs or is interrupted can be reported and ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mpj_devices::{Engine, Exit};

use crate::report::{RankStats, RankWaits, State, stats_table, table};

/// The ranks of this process.
#[derive(Debug)]
pub(crate) struct Watch {
    places: BTreeMap<u32, Mutex<Place>>,
    /// The statistics of the ranks that have exited, if the user requested them.
    stats: Mutex<BTreeMap<u32, RankStats>>,
}

/// The progress of a rank through its life.
#[derive(Default, Debug)]
pub(super) enum Place {
    #[default]
    Starting,
    Running(Weak<Engine>),
    /// Its function has returned; it leaves the job.
    Returned(Weak<Engine>),
}

impl Place {
    fn engine(&self) -> Option<Arc<Engine>> {
        match self {
            Place::Starting => None,
            Place::Running(engine) | Place::Returned(engine) => engine.upgrade(),
        }
    }

    fn state(&self) -> State {
        match (self, self.engine()) {
            (Place::Starting, _) => State::Silent("has not started"),
            (Place::Running(_), Some(engine)) => State::Told(RankWaits::of(&engine)),
            // It may still wait for what it has sent to be received.
            (Place::Returned(_), Some(engine)) if !engine.waits().is_empty() => {
                State::Told(RankWaits::of(&engine))
            }
            _ => State::Silent("has ended"),
        }
    }
}

impl Watch {
    pub(crate) fn new(ranks: impl IntoIterator<Item = u32>) -> Arc<Self> {
        let places = ranks.into_iter().map(|rank| (rank, Mutex::default())).collect();
        Arc::new(Watch { places, stats: Mutex::default() })
    }

    /// Records the state of a rank.
    pub(super) fn note(&self, rank: u32, place: Place) {
        if let Some(known) = self.places.get(&rank) {
            *lock(known) = place;
        }
    }

    /// Stores the traffic of a rank.
    pub(super) fn keep(&self, rank: u32, stats: RankStats) {
        lock(&self.stats).insert(rank, stats);
    }

    /// Returns the table of the ranks' traffic, if there is any.
    pub(super) fn stats(&self) -> Option<String> {
        let stats = lock(&self.stats);
        (!stats.is_empty()).then(|| stats_table(self.places.len() as u32, &stats))
    }

    /// Returns which rank waits for what, each line after a line break.
    pub(crate) fn table(&self) -> String {
        table(&self.places.iter().map(|(rank, place)| (*rank, lock(place).state())).collect())
    }

    /// Returns whether there is nothing to report: one rank, which does not wait.
    pub(super) fn is_plain(&self) -> bool {
        let waits =
            |place: &Mutex<Place>| lock(place).engine().is_some_and(|engine| !engine.waits().is_empty());
        self.places.len() == 1 && !self.places.values().any(waits)
    }

    /// Makes every call of every rank fail.
    pub(crate) fn end(&self, cause: &str) {
        for (rank, place) in &self.places {
            let engine = lock(place).engine();
            if let Some(engine) = engine {
                engine.roster().report(*rank, Exit::Died(cause.into()));
                engine.fail_all(cause);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

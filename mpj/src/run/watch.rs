//! The state of each rank of this process, to report and end a job that hangs or is interrupted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mpj_devices::{Engine, Exit};

use super::{TraceHandle, job_waits, print_error};
use crate::boot::Boot;
use crate::report::{RankReport, RankStats, RankWaits, stats_table, waits_table};

#[derive(Debug)]
pub(crate) struct Watch {
    phases: BTreeMap<u32, Mutex<RankPhase>>,
    /// The statistics of the ranks that have left, if the user requested them.
    stats: Mutex<BTreeMap<u32, RankStats>>,
    trace: TraceHandle,
    /// The boot of a rank of this process, if other processes of the job might host ranks.
    boot: Option<Arc<dyn Boot>>,
}

#[derive(Default, Debug)]
pub(super) enum RankPhase {
    #[default]
    Starting,
    Running(Weak<Engine>),
    /// The rank's function has returned or panicked, and the rank leaves the job.
    Returned(Weak<Engine>),
}

impl RankPhase {
    fn engine(&self) -> Option<Arc<Engine>> {
        match self {
            RankPhase::Starting => None,
            RankPhase::Running(engine) | RankPhase::Returned(engine) => engine.upgrade(),
        }
    }

    fn report(&self) -> RankReport {
        match (self, self.engine()) {
            (RankPhase::Starting, _) => RankReport::Missing("has not started"),
            (RankPhase::Running(_), Some(engine)) => RankReport::Waits(RankWaits::of(&engine)),
            // The rank may still wait until its messages are received.
            (RankPhase::Returned(_), Some(engine)) if !engine.waits().is_empty() => {
                RankReport::Waits(RankWaits::of(&engine))
            }
            _ => RankReport::Missing("has exited"),
        }
    }
}

impl Watch {
    pub(crate) fn new(ranks: impl IntoIterator<Item = u32>, trace: TraceHandle) -> Arc<Self> {
        let phases = ranks.into_iter().map(|rank| (rank, Mutex::default())).collect();
        Arc::new(Watch { phases, stats: Mutex::default(), trace, boot: None })
    }

    /// Creates the watch of the ranks with these boots.
    pub(super) fn of_boots(boots: &[Arc<dyn Boot>], trace: TraceHandle) -> Arc<Self> {
        let phases = boots.iter().map(|boot| (boot.rank(), Mutex::default())).collect();
        Arc::new(Watch { phases, stats: Mutex::default(), trace, boot: boots.first().cloned() })
    }

    pub(super) fn set_phase(&self, rank: u32, phase: RankPhase) {
        if let Some(current) = self.phases.get(&rank) {
            *lock(current) = phase;
        }
    }

    pub(super) fn add_stats(&self, rank: u32, stats: RankStats) {
        lock(&self.stats).insert(rank, stats);
    }

    pub(super) fn stats(&self) -> Option<String> {
        let stats = lock(&self.stats);
        (!stats.is_empty()).then(|| stats_table(self.phases.keys().copied(), &stats))
    }

    /// Returns what each rank of this process waits for.
    pub(super) fn reports(&self) -> BTreeMap<u32, RankReport> {
        self.phases.iter().map(|(rank, phase)| (*rank, lock(phase).report())).collect()
    }

    /// Returns the waits of the ranks of this process.
    pub(crate) fn table(&self) -> String {
        waits_table(&self.reports())
    }

    /// Returns the waits that this process must print before the job ends: of all ranks of the job, or of its own ranks
    /// if rank 0 does not respond; `None` if rank 0 prints them.
    pub(super) fn job_table(&self) -> Option<String> {
        let boot = self.boot.as_ref().filter(|_| self.has_other_processes());
        boot.map_or_else(|| Some(self.table()), |boot| job_waits::table(self, boot.as_ref()))
    }

    /// Returns whether other processes host ranks of the job.
    pub(super) fn has_other_processes(&self) -> bool {
        self.boot.as_ref().is_some_and(|boot| boot.size() as usize > self.phases.len())
    }

    /// Returns whether the table would have no information: the only rank does not wait.
    pub(super) fn has_nothing_to_report(&self) -> bool {
        let waits =
            |phase: &Mutex<RankPhase>| lock(phase).engine().is_some_and(|engine| !engine.waits().is_empty());
        self.phases.len() == 1 && !self.phases.values().any(waits)
    }

    /// Completes the trace of a process that exits although its ranks still run.
    pub(super) fn end_trace(&self) {
        for phase in self.phases.values() {
            let engine = lock(phase).engine();
            if let Some(engine) = engine {
                engine.trace_open_waits();
                let _ = engine.close_trace().inspect_err(|why| print_error(why));
            }
        }
        self.trace.join();
    }

    pub(crate) fn fail_all(&self, cause: &str) {
        for (rank, phase) in &self.phases {
            let engine = lock(phase).engine();
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

//! All ranks of a job.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use mpj_datatypes::Equivalent;
use mpj_devices::config::{Config, Number};
use mpj_devices::{Engine, Exit, OpenError, RankPool, Registry, Stats};

use crate::boot::{Boot, KvsCards};
use crate::collective::tuning::Tuning;
use crate::comm::Intracomm;
use crate::error::{Error, ErrorClass, Result};
use crate::raw;
use crate::report::{RankStats, stats_table};
use crate::run::{TraceGuard, print_error};
use crate::types::PoolSlice;

/// Whether a program prints the traffic of its ranks.
pub(crate) const STATS: Number = Number {
    name: "STATS",
    default: 0,
    range: (0, 1),
    help: "1: a table at the end says what each rank has moved, and how",
};

/// The communicator of all ranks, and this rank's part in the job.
///
/// It is a handle: clones refer to the same rank. The rank leaves the job when its function has returned, or, after
/// [`init`](crate::init), when the last clone is dropped. It waits until its messages have been sent, and notifies the
/// other ranks.
#[derive(Clone, Debug)]
pub struct World {
    comm: Intracomm,
    boot: Arc<dyn Boot>,
    /// Whether the rank prints its traffic when it leaves.
    prints_stats: bool,
    _membership: Option<Arc<FinalizeGuard>>,
}

/// Leaves the job when it is dropped.
#[derive(Debug)]
struct FinalizeGuard {
    world: World,
    /// Dropped last.
    _traced: TraceGuard,
}

impl Drop for FinalizeGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.world.report_death("panicked");
        } else {
            let stats = self.world.finalize().map(|stats| BTreeMap::from([(0, stats)]));
            stats.iter().for_each(|stats| print_error(&stats_table(1, stats)));
        }
    }
}

impl World {
    /// Joins a job.
    pub(crate) fn join(boot: Arc<dyn Boot>, registry: &Registry, config: &Config) -> Result<Self> {
        let refuse = |why: String| Error::new(ErrorClass::Other, "start", why);
        let site = boot.site().map_err(refuse)?;
        let cards = Arc::new(KvsCards(Arc::clone(&boot)));
        let engine = Engine::open(site, registry, config, cards, boot.roster())?;
        boot.attach_engine(&engine);
        let comm = Intracomm::new(raw::Comm::world(engine, Tuning::new(config))?);
        let tells_stats = config.number(&STATS) != 0;
        Ok(World { comm, boot, prints_stats: tells_stats, _membership: None })
    }

    /// Makes the last clone leave the job, and end its trace, when it is dropped.
    pub(crate) fn finalize_on_drop(self, traced: TraceGuard) -> Self {
        World { _membership: Some(Arc::new(FinalizeGuard { world: self.clone(), _traced: traced })), ..self }
    }

    /// Returns the communicator, to keep or pass on.
    pub fn comm(&self) -> &Intracomm {
        &self.comm
    }

    /// Returns the start-up service.
    pub fn boot(&self) -> &Arc<dyn Boot> {
        &self.boot
    }

    /// Ends the whole job: every rank's pending operations fail, and the exit code is `code`, whether the ranks are
    /// processes or the threads of [`run_with`](crate::run_with). The system keeps its lowest eight bits; where these
    /// are 0 and `code` is not, it is 1.
    ///
    /// The call returns, so that the caller can drop its values in order and exit. All its later calls fail as well.
    pub fn abort(&self, code: i32, why: &str) {
        self.boot.abort(code, why);
    }

    /// Returns the traffic of this rank since it started: messages and bytes, by device and by path, and the copies
    /// made. With `mpjrun --stats`, and `MPJ_STATS=1` for programs without a launcher, a table of all ranks is printed
    /// at the end.
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// let before = world.stats().copies();
    /// if world.rank() == 0 {
    ///     world.send(&[0u8; 100], 1, 0)?;
    ///     let after = world.stats().copies();
    ///     // Into the device; the receiver copies it out.
    ///     assert_eq!((after.number - before.number, after.bytes - before.bytes), (1, 100));
    /// } else {
    ///     world.recv(&mut [0u8; 100], 0, 0)?;
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Returns the pool of this rank. If the rank reaches others of its host by a device with shared memory, these can
    /// read the blocks in place: a message in such a block that is sent by [`isend`](Intracomm::isend) need not be
    /// copied, see [`recv_block`](Intracomm::recv_block). Without such a device, or when `MPJ_SHM_POOL_MIB` is used up, it
    /// is an ordinary pool.
    pub fn pool(&self) -> &RankPool {
        self.engine().pool()
    }

    /// Returns a slice of `len` copies of `value` in a block of the [pool](Self::pool).
    ///
    /// ```
    /// # mpj::threads(1, |world| {
    /// let mut numbers = world.alloc_slice(1u32, 1000)?;
    /// numbers[999] += 6;
    /// assert_eq!(numbers.iter().sum::<u32>(), 1006);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`ErrorClass::Count`] if its size in bytes overflows, [`ErrorClass::NoMem`] if memory is exhausted,
    /// [`ErrorClass::Type`] if the alignment of the items is more than a page.
    pub fn alloc_slice<T: Equivalent>(&self, value: T, len: usize) -> Result<PoolSlice<T>> {
        PoolSlice::new(self.pool(), value, len)
    }

    /// Returns the devices that could not be opened, and why: a job may go by another one than was thought.
    /// ```
    /// # mpj::threads(2, |world| {
    /// let refused: Vec<&str> = world.failed_devices().iter().map(|error| error.device).collect();
    /// assert_eq!(refused, ["shmdev", "ibvdev", "niodev"]); // threads need none
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    pub fn failed_devices(&self) -> &[OpenError] {
        self.engine().failed_devices()
    }

    /// Returns the engine under this rank: tests run the conformance suite of devices on it.
    #[doc(hidden)]
    pub fn engine(&self) -> &Arc<Engine> {
        self.comm.as_raw().engine()
    }

    /// Ends the trace of this rank, if it is traced.
    fn close_trace(&self) {
        if let Err(why) = self.engine().close_trace() {
            print_error(&format_args!("rank {}: {why}", self.rank()));
        }
    }

    /// Leaves the job in an orderly way. Returns the rank's traffic, if the user requested it and no launcher prints
    /// it.
    pub(crate) fn finalize(&self) -> Option<RankStats> {
        self.engine().close();
        self.close_trace();
        let stats = self.prints_stats.then(|| RankStats::of(&self.stats()))?;
        if self.boot.has_launcher() {
            self.boot.tell_stats(stats);
            return None;
        }
        Some(stats)
    }

    /// Leaves the job with a failure that is reported to the other ranks, unless it only follows from another rank's.
    pub(crate) fn report_death(&self, cause: &str) {
        self.boot.roster().report(self.comm.as_raw().rank(), Exit::Died(cause.into()));
        self.engine().fail_all_and_wait(cause);
        self.close_trace();
    }
}

impl Deref for World {
    type Target = Intracomm;

    fn deref(&self) -> &Intracomm {
        &self.comm
    }
}

/// Returns seconds since some fixed moment of this host (MPI_Wtime).
pub fn wtime() -> f64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_secs_f64()
}

/// Returns the resolution of [`wtime`] in seconds (MPI_Wtick).
pub fn wtick() -> f64 {
    1e-9
}

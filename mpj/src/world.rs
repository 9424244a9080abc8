//! The communicator of all ranks of a job.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use mpj_datatypes::Equivalent;
use mpj_devices::config::{Config, Number};
use mpj_devices::{Engine, Exit, OpenError, RankPool, Registry, Stats};

use crate::boot::{Boot, KvsCards};
use crate::collective::parameters;
use crate::comm::Intracomm;
use crate::error::{Error, ErrorClass, Result};
use crate::raw;
use crate::report::{RankStats, stats_table};
use crate::run::{TraceGuard, print_error};
use crate::types::PoolSlice;

pub(crate) const STATS: Number = Number {
    name: "STATS",
    default: 0,
    range: (0, 1),
    help: "1: at the normal end of the job, print the traffic of each rank by protocol",
};

/// The communicator of all ranks, and this rank's part in the job.
///
/// Clones refer to the same rank. The rank leaves the job when its function has returned, or, after
/// [`init`](crate::init), when the last clone is dropped. Before it leaves, it completes the sends that it has started.
#[derive(Clone, Debug)]
pub struct World {
    comm: Intracomm,
    boot: Arc<dyn Boot>,
    prints_stats: bool,
    _finalize: Option<Arc<FinalizeGuard>>,
}

#[derive(Debug)]
struct FinalizeGuard {
    world: World,
    /// Dropped after the rank has closed its trace file.
    _trace: TraceGuard,
}

impl Drop for FinalizeGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.world.report_death("panicked");
        } else {
            let stats = self.world.finalize().map(|stats| BTreeMap::from([(0, stats)]));
            stats.iter().for_each(|stats| print_error(&stats_table(1, stats)));
        }
        self.world.boot.leave();
    }
}

impl World {
    pub(crate) fn join(boot: Arc<dyn Boot>, registry: &Registry, config: &Config) -> Result<Self> {
        let error = |why: String| Error::new(ErrorClass::Other, "start", why);
        let site = boot.site().map_err(error)?;
        let cards = Arc::new(KvsCards(Arc::clone(&boot)));
        let engine = Engine::open(site, registry, config, cards, boot.roster())?;
        boot.attach_engine(&engine);
        let comm =
            Intracomm::new(raw::Comm::world(engine, boot.hosts(), Arc::new(parameters::rules(config)))?);
        let prints_stats = config.number(&STATS) != 0;
        Ok(World { comm, boot, prints_stats, _finalize: None })
    }

    /// Makes the drop of the last clone finalize the rank, and then close `trace`.
    pub(crate) fn finalize_on_drop(self, trace: TraceGuard) -> Self {
        World { _finalize: Some(Arc::new(FinalizeGuard { world: self.clone(), _trace: trace })), ..self }
    }

    /// Returns the communicator of all ranks, to clone or pass on.
    pub fn comm(&self) -> &Intracomm {
        &self.comm
    }

    /// Returns the start-up service.
    pub fn boot(&self) -> &Arc<dyn Boot> {
        &self.boot
    }

    /// Aborts the whole job (MPI_Abort): `mpjrun` terminates all processes; if the ranks are threads, all operations
    /// fail. The exit code of the job is the lowest eight bits of `code`, or 1 if these are 0 and `code` is not.
    ///
    /// The call returns, so that the caller can clean up and exit. The caller must not wait for other ranks any more.
    pub fn abort(&self, code: i32, why: &str) {
        self.boot.abort(code, why);
    }

    /// Returns the traffic of this rank since it started: messages and bytes, by device and by path, and copies. At the
    /// end of the job, `mpjrun --stats`, or `MPJ_STATS=1` except with [`threads`](crate::threads), prints a table.
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// let before = world.stats().copies();
    /// if world.rank() == 0 {
    ///     world.send(&[0u8; 100], 1, 0)?;
    ///     let after = world.stats().copies();
    ///     // One copy into the device. The receiver copies it out.
    ///     assert_eq!((after.number - before.number, after.bytes - before.bytes), (1, 100));
    /// } else {
    ///     world.recv(&mut [0u8; 100], 0, 0)?;
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Returns the pool of this rank. Ranks that share memory with this rank can read its blocks in place: if
    /// [`isend`](Intracomm::isend) sends a block, [`recv_block`](Intracomm::recv_block) and, in another process,
    /// [`recv_buffer`](Intracomm::recv_buffer) need not copy it. The request then completes when the receiver drops the
    /// message. Without shared memory, or when `MPJ_SHM_POOL_MIB` is used up, the pool allocates private memory.
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
    /// [`ErrorClass::Type`] if the block is not aligned for the items, which is possible only above 4096 bytes.
    pub fn alloc_slice<T: Equivalent>(&self, value: T, len: usize) -> Result<PoolSlice<T>> {
        PoolSlice::new(self.pool(), value, len)
    }

    /// Returns the devices that could not be opened, with the reasons.
    /// ```
    /// # mpj::threads(2, |world| {
    /// let failed: Vec<&str> = world.failed_devices().iter().map(|error| error.device).collect();
    /// assert_eq!(failed, ["shmdev", "ibvdev", "niodev"]); // threads of one process do not need them
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    pub fn failed_devices(&self) -> &[OpenError] {
        self.engine().failed_devices()
    }

    /// Returns the engine of this rank, for tests.
    #[doc(hidden)]
    pub fn engine(&self) -> &Arc<Engine> {
        self.comm.as_raw().engine()
    }

    fn close_trace(&self) {
        if let Err(why) = self.engine().close_trace() {
            print_error(&format_args!("rank {}: {why}", self.rank()));
        }
    }

    /// Leaves the job in order (MPI_Finalize). Returns the traffic of the rank if this process must print it.
    pub(crate) fn finalize(&self) -> Option<RankStats> {
        self.engine().close();
        self.close_trace();
        let stats = self.prints_stats.then(|| RankStats::of(&self.stats()))?;
        if self.boot.has_launcher() {
            self.boot.report_stats(stats);
            return None;
        }
        Some(stats)
    }

    /// Reports a failure to the other ranks, and leaves the job.
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

/// Returns the seconds since the first call in this process (MPI_Wtime).
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

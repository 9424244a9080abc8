//! The communicator of all ranks of a job.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use mpj_datatypes::Equivalent;
use mpj_devices::config::{Config, Number, PROGRESS};
use mpj_devices::{DriverFd, Engine, Exit, OpenError, RankPool, Registry, Stats};

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
/// [`init`](crate::init), when the last clone is dropped. Before it leaves, it completes the sends and the collectives
/// that it has started.
#[derive(Clone, Debug)]
pub struct World {
    comm: Intracomm,
    boot: Arc<dyn Boot>,
    prints_stats: bool,
    alone: Arc<OnceLock<Result<Intracomm>>>,
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
            let rank = self.world.boot.rank();
            let stats = self.world.finalize().map(|stats| BTreeMap::from([(rank, stats)]));
            stats.iter().for_each(|stats| print_error(&stats_table([rank], stats)));
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
        if config.choice(&PROGRESS) {
            engine.start_progress_thread().map_err(error)?;
        }
        let comm =
            Intracomm::new(raw::Comm::world(engine, Arc::clone(&boot), Arc::new(parameters::rules(config)))?);
        let prints_stats = config.number(&STATS) != 0;
        Ok(World { comm, boot, prints_stats, alone: Arc::default(), _finalize: None })
    }

    /// Makes the drop of the last clone finalize the rank, and then close `trace`.
    pub(crate) fn finalize_on_drop(self, trace: TraceGuard) -> Self {
        World { _finalize: Some(Arc::new(FinalizeGuard { world: self.clone(), _trace: trace })), ..self }
    }

    /// Returns the communicator of all ranks, to clone or pass on.
    pub fn comm(&self) -> &Intracomm {
        &self.comm
    }

    /// Returns the name of the host, as its system knows it (MPI_Get_processor_name).
    pub fn processor_name(&self) -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// Returns the start-up service.
    pub fn boot(&self) -> &Arc<dyn Boot> {
        &self.boot
    }

    /// Returns the communicator of this rank alone (MPI_COMM_SELF). No message is needed to create it.
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// let alone = world.self_comm()?;
    /// assert_eq!((alone.rank(), alone.size()), (0, 1));
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// This rank has too many communicators.
    pub fn self_comm(&self) -> Result<&Intracomm> {
        let alone = self.alone.get_or_init(|| self.comm.as_raw().alone().map(Intracomm::new));
        alone.as_ref().map_err(Error::clone)
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
    /// [`ErrorClass::Type`] if the block is not aligned for a `T`, which is possible only for an alignment above 4096.
    pub fn alloc_slice<T: Equivalent>(&self, value: T, len: usize) -> Result<PoolSlice<T>> {
        PoolSlice::new(self.pool(), value, len)
    }

    /// Returns a descriptor for the event loop of an executor. It is readable when this rank has work, such as a message
    /// that has arrived; then the loop must call [`DriverFd::progress`], which completes operations and wakes the
    /// futures that wait for them. As long as the value exists, no progress thread is started for futures.
    ///
    /// With tokio, one task of the runtime is enough:
    /// ```
    /// use mpj::World;
    /// use tokio::io::{Interest, unix::AsyncFd};
    ///
    /// # #[allow(deprecated, reason = "its replacement is unsafe, because the descriptor must stay the same")]
    /// async fn drive(world: World) -> Result<(), mpj::BoxError> {
    ///     let driver = AsyncFd::with_interest(world.driver_fd()?, Interest::READABLE)?;
    ///     loop {
    ///         driver.readable().await?.clear_ready();
    ///         driver.get_ref().progress();
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), mpj::JobError> {
    /// mpj::threads(2, |world| {
    ///     let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    ///     runtime.block_on(async {
    ///         let driving = tokio::spawn(drive(world.clone()));
    ///         let other = 1 - world.rank();
    ///         let sending = world.isend(vec![world.rank(); 100_000], other, 0)?;
    ///         let (received, _status) = world.irecv(vec![0; 100_000], other, 0)?.await?;
    ///         sending.await?;
    ///         assert_eq!(received, [other; 100_000]);
    ///         driving.abort();
    ///         Ok::<(), mpj::BoxError>(())
    ///     })
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// This rank has such a descriptor already, the process has no descriptors left, or the system has none of this
    /// kind: it is available on Linux.
    pub fn driver_fd(&self) -> Result<DriverFd> {
        let why = |error: std::io::Error| Error::new(ErrorClass::Other, "driver_fd", error.to_string());
        self.engine().driver().map_err(why)
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

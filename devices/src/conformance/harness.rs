//! Runs a case with threads as ranks, and panics if it hangs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::{Case, LocalCardExchange, Member};
use crate::config::Config;
use crate::device::Driver;
use crate::sys;
use crate::{
    Doorbell, Engine, Exit, HostId, Hosts, Hub, IbvDriver, JobKey, NioDriver, Registry, Roster, Segment,
    ShmDriver, Site, SmDriver,
};

/// The time after which a case counts as stuck. Every case needs far less.
const LIVENESS: Duration = Duration::from_secs(if cfg!(miri) { 3600 } else { 60 });

/// Returns the time limit on this machine. In the machine of `devices/check/rdma-vm` the processor is emulated, and
/// every network operation costs processor time.
fn liveness() -> Duration {
    if std::env::var_os("RDMA_VM").is_some() { LIVENESS * 6 } else { LIVENESS }
}

#[derive(Debug)]
struct RankThread {
    rank: u32,
    size: u32,
    board: Arc<LocalCardExchange>,
    roster: Arc<Roster>,
    registry: Registry,
    config: Config,
}

/// Maps the job's memory again, as the process of another rank would.
fn attach(segment: &Segment, ranks: u32) -> Arc<Segment> {
    // SAFETY: the duplicate is only attached.
    #[expect(unsafe_code, reason = "see above")]
    let fd = unsafe { segment.descriptor() }.try_clone_to_owned();
    // SAFETY: it is a duplicate of a segment's descriptor, and only segments write to the memory.
    #[expect(unsafe_code, reason = "see above")]
    let view = unsafe { Segment::attach(fd.unwrap(), ranks) };
    view.unwrap()
}

impl RankThread {
    fn run(self, case: &Case) {
        let RankThread { rank, size, board, roster, registry, config } = self;
        let site = Site::new(rank, size, Arc::new(Doorbell::new().unwrap()));
        let engine = Engine::open(site, &registry, &config, board.of(rank), roster).unwrap();
        let member = Member::join(engine).unwrap();
        (case.run)(&member);
        if !member.is_dead() {
            member.engine.close();
        }
    }
}

/// Returns the reason why a device is unavailable on this host, if it needs hardware that is missing.
pub fn unavailable(device: &str) -> Option<String> {
    if device != IbvDriver::NAME {
        return None;
    }
    let site = Site::new(0, 2, Arc::new(Doorbell::new().unwrap()));
    let driver = IbvDriver::new(Arc::new(JobKey { job: 1, secret: [7; 32] }));
    driver.open(&site, &Config::default()).err().map(|refused| refused.to_string())
}

/// Runs `case` on `ranks` threads, with the devices that `choose` selects from the available ones.
///
/// # Panics
/// If a rank panics, or if the case does not end in 60 seconds (longer under Miri or on an emulated processor). The
/// message names the ranks that are stuck.
pub fn run_threads(choose: impl Fn(Registry) -> Registry, config: &Config, ranks: u32, case: &'static Case) {
    let (hub, board, roster) =
        (Hub::new(0..ranks), Arc::<LocalCardExchange>::default(), Arc::<Roster>::default());
    let memory = sys::HAS_SHARED_MEMORY.then(|| Segment::create(ranks, config).unwrap());
    let here = Hosts::single_host(ranks).ranks_of(HostId(0));
    let key = Arc::new(JobKey { job: 1, secret: [7; 32] });
    let (done, outcomes) = channel();
    for rank in 0..ranks {
        let (board, roster, config) = (Arc::clone(&board), Arc::clone(&roster), config.clone());
        let mut all = Registry::empty().with(SmDriver::new(Arc::clone(&hub)));
        if let Some(memory) = &memory {
            all = all.with(ShmDriver::new(attach(memory, ranks), here.clone()));
        }
        let registry =
            choose(all.with(IbvDriver::new(Arc::clone(&key))).with(NioDriver::new(Arc::clone(&key))));
        let rank_thread = RankThread { rank, size: ranks, board, roster, registry, config };
        let done = done.clone();
        let thread = std::thread::Builder::new().name(format!("{}/{rank}", case.name));
        let _detached = thread.spawn(move || run_rank(rank_thread, case, &done)).unwrap();
    }
    let mut first: Option<String> = None;
    let mut left: Vec<u32> = (0..ranks).collect();
    let limit = Instant::now() + liveness();
    while !left.is_empty() {
        match outcomes.recv_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok((rank, outcome)) => {
                left.retain(|other| *other != rank);
                if let Err(why) = outcome {
                    first.get_or_insert(format!("rank {rank}: {why}"));
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                // End these ranks, so that the next case has the cores.
                left.iter().for_each(|rank| roster.report(*rank, Exit::Died("stuck".into())));
                let cause = first.map(|f| format!(" after {f}")).unwrap_or_default();
                panic!("{} with {ranks} ranks: ranks {left:?} are stuck{cause}", case.name);
            }
        }
    }
    if let Some(first) = first {
        panic!("{} with {ranks} ranks: {first}", case.name);
    }
}

fn run_rank(rank_thread: RankThread, case: &Case, done: &Sender<(u32, Result<(), String>)>) {
    let (rank, roster) = (rank_thread.rank, Arc::clone(&rank_thread.roster));
    let outcome = catch_unwind(AssertUnwindSafe(|| rank_thread.run(case))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("panicked").to_owned();
        roster.report(rank, Exit::Died(text.as_str().into()));
        text
    });
    // If the case timed out, the receiver is gone.
    let _ = done.send((rank, outcome));
}

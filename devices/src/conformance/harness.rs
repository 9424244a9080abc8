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

/// The time after which a case counts as stuck.
const TIME_LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 3600 } else { 60 });

/// Returns the time limit on this machine. Scripts that run tests in an emulator set `TEST_TIME_FACTOR`.
fn time_limit() -> Duration {
    let factor = std::env::var("TEST_TIME_FACTOR").ok().and_then(|factor| factor.parse().ok());
    TIME_LIMIT * factor.unwrap_or(1)
}

#[derive(Debug)]
struct RankThread {
    rank: u32,
    size: u32,
    cards: Arc<LocalCardExchange>,
    roster: Arc<Roster>,
    registry: Registry,
    config: Config,
}

/// Maps the segment again, as the process of another rank would.
fn attach(segment: &Segment, ranks: u32) -> Arc<Segment> {
    // SAFETY: only a duplicate of the descriptor is used, and it is only attached.
    #[expect(unsafe_code, reason = "see above")]
    let fd = unsafe { segment.descriptor() }.try_clone_to_owned();
    // SAFETY: it is a duplicate of a segment's descriptor, and only segments write to the memory.
    #[expect(unsafe_code, reason = "see above")]
    let view = unsafe { Segment::attach(fd.unwrap(), ranks) };
    view.unwrap()
}

impl RankThread {
    fn run(self, case: &Case) {
        let RankThread { rank, size, cards, roster, registry, config } = self;
        let site = Site::new(rank, size, Arc::new(Doorbell::new().unwrap()));
        let engine = Engine::open(site, &registry, &config, cards.of(rank), roster).unwrap();
        let member = Member::join(engine).unwrap();
        (case.run)(&member);
        if !member.is_dead() {
            member.engine.close();
        }
    }
}

/// Returns why `ibvdev` cannot be opened on this host; `None` if it can, and for other devices.
pub fn unavailable(device: &str) -> Option<String> {
    if device != IbvDriver::NAME {
        return None;
    }
    let site = Site::new(0, 2, Arc::new(Doorbell::new().unwrap()));
    let driver = IbvDriver::new(Arc::new(JobKey { job: 1, secret: [7; 32] }));
    driver.open(&site, &Config::default()).err().map(|refused| refused.to_string())
}

/// Runs `case` on `ranks` threads, with the devices that `choose` selects from all that this build has.
///
/// # Panics
/// If a rank panics, or if the case does not end within 60 seconds (longer under Miri, or if `TEST_TIME_FACTOR` is
/// set). The message names the rank that panicked first and the ranks that are stuck.
pub fn run_threads(choose: impl Fn(Registry) -> Registry, config: &Config, ranks: u32, case: &'static Case) {
    let (hub, cards, roster) =
        (Hub::new(0..ranks), Arc::<LocalCardExchange>::default(), Arc::<Roster>::default());
    let memory = sys::HAS_SHARED_MEMORY.then(|| Segment::create(ranks, config).unwrap());
    let here = Hosts::single_host(ranks).ranks_of(HostId(0));
    let key = Arc::new(JobKey { job: 1, secret: [7; 32] });
    let (done, outcomes) = channel();
    for rank in 0..ranks {
        let (cards, roster, config) = (Arc::clone(&cards), Arc::clone(&roster), config.clone());
        let mut all = Registry::empty().with(SmDriver::new(Arc::clone(&hub)));
        if let Some(memory) = &memory {
            all = all.with(ShmDriver::new(attach(memory, ranks), here.clone()));
        }
        let registry =
            choose(all.with(IbvDriver::new(Arc::clone(&key))).with(NioDriver::new(Arc::clone(&key))));
        let rank_thread = RankThread { rank, size: ranks, cards, roster, registry, config };
        let done = done.clone();
        let thread = std::thread::Builder::new().name(format!("{}/{rank}", case.name));
        let _detached = thread.spawn(move || run_rank(rank_thread, case, &done)).unwrap();
    }
    let mut first_failure: Option<String> = None;
    let mut running: Vec<u32> = (0..ranks).collect();
    let deadline = Instant::now() + time_limit();
    while !running.is_empty() {
        match outcomes.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((rank, outcome)) => {
                running.retain(|other| *other != rank);
                if let Err(why) = outcome {
                    first_failure.get_or_insert(format!("rank {rank}: {why}"));
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                // Fail the calls of these ranks, so that their threads end and leave the cores to the next case.
                running.iter().for_each(|rank| roster.report(*rank, Exit::Died("stuck".into())));
                let cause = first_failure.map(|f| format!(" after {f}")).unwrap_or_default();
                panic!("{} with {ranks} ranks: ranks {running:?} are stuck{cause}", case.name);
            }
        }
    }
    if let Some(first_failure) = first_failure {
        panic!("{} with {ranks} ranks: {first_failure}", case.name);
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

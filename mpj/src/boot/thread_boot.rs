//! Start-up without a launcher: the ranks are threads of this process, or the process is the only rank.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use mpj_devices::{
    Callback, Doorbell, Exit, ExitEvent, Hosts, Hub, IbvDriver, NioDriver, Registry, Roster, ShmDriver, Site,
    SmDriver,
};

use super::{Boot, LocalRanks};

/// One rank's [`Boot`] in a job whose ranks are threads.
#[derive(Clone, Debug)]
pub struct ThreadBoot {
    rank: u32,
    job: Arc<Job>,
}

#[derive(Debug)]
struct Job {
    hosts: Hosts,
    hub: Arc<Hub>,
    roster: Arc<Roster>,
    abort_code: OnceLock<i32>,
    kvs: Mutex<KeyValueStore>,
    fence_released: Condvar,
}

#[derive(Default)]
struct KeyValueStore {
    values: HashMap<(u32, String), Vec<u8>>,
    waiting_gets: HashMap<(u32, String), Vec<Callback<Vec<u8>>>>,
    fences_done: u64,
    ranks_at_fence: u32,
}

impl fmt::Debug for KeyValueStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyValueStore({} values, {} gets waiting)", self.values.len(), self.waiting_gets.len())
    }
}

/// The interval at which a rank that waits at a fence checks for exits of other ranks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Returns why a rank with this exit will never reach a fence, or `None` if it still might.
fn exit_reason(ExitEvent { rank, exit }: &ExitEvent) -> Option<String> {
    match exit {
        Exit::ClosingExcept(_) | Exit::Closing => None,
        Exit::Left => Some(format!("rank {rank} has left the job")),
        Exit::Died(cause) => Some(format!("rank {rank} {cause}")),
    }
}

impl ThreadBoot {
    /// Creates a job of `size` threads and returns the [`Boot`] of each rank, in order of rank.
    pub fn ranks(size: u32) -> LocalRanks {
        let job = Job::new(size);
        let boot = |rank| Arc::new(ThreadBoot { rank, job: Arc::clone(&job) }) as Arc<dyn Boot>;
        (0..size).map(boot).collect()
    }

    /// Creates the [`Boot`] of a process without a launcher: a job of one rank.
    pub fn singleton() -> ThreadBoot {
        ThreadBoot { rank: 0, job: Job::new(1) }
    }
}

impl Job {
    fn new(size: u32) -> Arc<Job> {
        let (hub, roster, kvs) = (Hub::new(0..size), Arc::default(), Mutex::default());
        let hosts = Hosts::single_host(size);
        Arc::new(Job { hosts, hub, roster, abort_code: OnceLock::new(), kvs, fence_released: Condvar::new() })
    }
}

impl Boot for ThreadBoot {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn hosts(&self) -> Hosts {
        self.job.hosts.clone()
    }

    fn site(&self) -> Result<Site, String> {
        let bell = Doorbell::new().map_err(|e| format!("cannot create the doorbell: {e}"))?;
        Ok(Site::new(self.rank, self.size(), Arc::new(bell)))
    }

    fn registry(&self) -> Registry {
        Registry::empty()
            .with(SmDriver::new(Arc::clone(&self.job.hub)))
            .with_unavailable(
                ShmDriver::NAME,
                "needs shared memory between processes: start the program with mpjrun",
            )
            .with_unavailable(IbvDriver::NAME, "needs a job key: start the program with mpjrun")
            .with_unavailable(NioDriver::NAME, "needs a job key: start the program with mpjrun")
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), String> {
        let mut kvs = self.job.kvs.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.rank, key.to_owned());
        let waiting_gets = kvs.waiting_gets.remove(&key).unwrap_or_default();
        kvs.values.insert(key, value.to_vec());
        drop(kvs);
        waiting_gets.into_iter().for_each(|then| then(Ok(value.to_vec())));
        Ok(())
    }

    fn get(&self, rank: u32, key: &str, then: Callback<Vec<u8>>) {
        let key = (rank, key.to_owned());
        let mut kvs = self.job.kvs.lock().unwrap_or_else(PoisonError::into_inner);
        let value = kvs.values.get(&key).cloned();
        match value {
            Some(value) => {
                drop(kvs);
                then(Ok(value));
            }
            None => kvs.waiting_gets.entry(key).or_default().push(then),
        }
    }

    fn fence(&self) -> Result<(), String> {
        let mut kvs = self.job.kvs.lock().unwrap_or_else(PoisonError::into_inner);
        let round = kvs.fences_done;
        kvs.ranks_at_fence += 1;
        if kvs.ranks_at_fence == self.size() {
            kvs.ranks_at_fence = 0;
            kvs.fences_done += 1;
            self.job.fence_released.notify_all();
        }
        while kvs.fences_done == round {
            if let Some(why) = self.job.roster.since(0).iter().find_map(exit_reason) {
                kvs.ranks_at_fence -= 1;
                return Err(why);
            }
            let wait = self.job.fence_released.wait_timeout(kvs, POLL_INTERVAL);
            kvs = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.job.roster)
    }

    fn abort(&self, code: i32, why: &str) {
        if self.job.roster.has_left(self.rank) {
            return;
        }
        let _ = self.job.abort_code.set(code);
        let cause = format!("aborted the job with code {code}: {why}");
        // The threads of other ranks cannot be terminated. Report all ranks as dead, so that every operation fails.
        self.job.roster.report(self.rank, Exit::Died(cause.as_str().into()));
        for rank in (0..self.size()).filter(|rank| *rank != self.rank) {
            self.job.roster.report(rank, Exit::Died(format!("rank {} {cause}", self.rank).into()));
        }
    }

    fn abort_code(&self) -> Option<i32> {
        self.job.abort_code.get().copied()
    }
}

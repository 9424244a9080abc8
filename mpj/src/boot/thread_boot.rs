//! Start-up of ranks that are threads of this process.

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
    /// The code of the first rank that aborted the job.
    aborted: OnceLock<i32>,
    board: Mutex<KeyValueStore>,
    changed: Condvar,
}

#[derive(Default)]
struct KeyValueStore {
    values: HashMap<(u32, String), Vec<u8>>,
    /// The callbacks of [`Boot::get`] calls for values that were not put yet.
    asked: HashMap<(u32, String), Vec<Callback<Vec<u8>>>>,
    fences: u64,
    waiting: u32,
}

impl fmt::Debug for KeyValueStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board({} values, {} asked for)", self.values.len(), self.asked.len())
    }
}

/// How often a rank that waits at a fence checks whether another rank has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Returns why the rank will never reach a fence again, if the event says so.
fn exit_reason(ExitEvent { rank, exit: end }: &ExitEvent) -> Option<String> {
    match end {
        Exit::ClosingExcept(_) | Exit::Closing => None,
        Exit::Left => Some(format!("rank {rank} has left the job")),
        Exit::Died(cause) => Some(format!("rank {rank} {cause}")),
    }
}

impl ThreadBoot {
    /// Creates a job of `size` threads and returns the [`Boot`] of each rank, in order of rank.
    pub fn ranks(size: u32) -> LocalRanks {
        let job = Job::new(size);
        let face = |rank| Arc::new(ThreadBoot { rank, job: Arc::clone(&job) }) as Arc<dyn Boot>;
        (0..size).map(face).collect()
    }

    /// Creates the [`Boot`] of a process without a launcher: a job of one rank.
    pub fn singleton() -> ThreadBoot {
        ThreadBoot { rank: 0, job: Job::new(1) }
    }
}

impl Job {
    fn new(size: u32) -> Arc<Job> {
        let (hub, roster, board) = (Hub::new(0..size), Arc::default(), Mutex::default());
        let hosts = Hosts::one(size);
        Arc::new(Job { hosts, hub, roster, aborted: OnceLock::new(), board, changed: Condvar::new() })
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
        let bell = Doorbell::new().map_err(|e| format!("no doorbell to sleep on: {e}"))?;
        Ok(Site::new(self.rank, self.size(), Arc::new(bell)))
    }

    fn registry(&self) -> Registry {
        Registry::empty()
            .with(SmDriver::new(Arc::clone(&self.job.hub)))
            .without(ShmDriver::NAME, "this job has no shared memory: start it with mpjrun")
            .without(IbvDriver::NAME, "the job has no key to know its ranks by: start it with mpjrun")
            .without(NioDriver::NAME, "the job has no key to know its ranks by: start it with mpjrun")
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), String> {
        let mut board = self.job.board.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.rank, key.to_owned());
        let asked = board.asked.remove(&key).unwrap_or_default();
        board.values.insert(key, value.to_vec());
        drop(board);
        asked.into_iter().for_each(|then| then(Ok(value.to_vec())));
        Ok(())
    }

    fn get(&self, rank: u32, key: &str, then: Callback<Vec<u8>>) {
        let key = (rank, key.to_owned());
        let mut board = self.job.board.lock().unwrap_or_else(PoisonError::into_inner);
        let value = board.values.get(&key).cloned();
        match value {
            Some(value) => {
                drop(board);
                then(Ok(value));
            }
            None => board.asked.entry(key).or_default().push(then),
        }
    }

    fn fence(&self) -> Result<(), String> {
        let mut board = self.job.board.lock().unwrap_or_else(PoisonError::into_inner);
        let round = board.fences;
        board.waiting += 1;
        if board.waiting == self.size() {
            board.waiting = 0;
            board.fences += 1;
            self.job.changed.notify_all();
        }
        while board.fences == round {
            if let Some(why) = self.job.roster.since(0).iter().find_map(exit_reason) {
                return Err(why);
            }
            board =
                self.job.changed.wait_timeout(board, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.job.roster)
    }

    fn abort(&self, code: i32, why: &str) {
        let _ = self.job.aborted.set(code);
        let cause = format!("aborted the job with code {code}: {why}");
        self.job.roster.report(self.rank, Exit::Died(cause.into()));
    }

    fn abort_code(&self) -> Option<i32> {
        self.job.aborted.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fence_waits_for_a_rank_that_has_ended() {
        for (end, says) in [(Exit::Left, "left"), (Exit::Died("was lost".into()), "was lost")] {
            let faces = ThreadBoot::ranks(2);
            let (tell, told) = std::sync::mpsc::channel();
            let face = Arc::clone(&faces[0]);
            std::thread::spawn(move || tell.send(face.fence()));
            faces[1].roster().report(1, Exit::Closing);
            faces[1].roster().report(1, end);
            let why = told.recv_timeout(Duration::from_secs(60)).expect("it waits for ever").unwrap_err();
            assert!(why.contains("rank 1") && why.contains(says), "{why}");
        }
        // A rank may exit immediately after it has passed the fence.
        std::thread::scope(|scope| {
            for face in ThreadBoot::ranks(2) {
                scope.spawn(move || {
                    face.fence().unwrap();
                    face.roster().report(face.rank(), Exit::Left);
                });
            }
        });
    }
}

//! The progress thread of a rank, which makes progress while no other thread does.
//!
//! It exists if the parameter [`PROGRESS`] requests it, or after a future was pending without a driver descriptor
//! ([`AsyncWait`]). In the second case it runs only while futures are pending.
//!
//! ```text
//!            needed               another thread waits
//!   PARKED ----------> DRIVING ----------------------> STANDING BY
//!      ^                  |  ^                              |
//!      +------------------+  +------------------------------+
//!          not needed          no pass of other threads for RELIEF,
//!                              or a future begins to wait
//! ```
//! A driving thread holds the progress lock and sleeps on the doorbell. A thread that then waits for an operation of
//! its own would be notified by the progress thread, which takes longer than polling. So it asks the progress thread
//! for the lock, which the progress thread takes back when no other thread has made progress for [`RELIEF`].
//! `driver_fd.rs` describes the alternative for programs with an event loop.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::blocked::WaitReason;
use super::{Engine, lock};
use crate::config::Choice;

/// Whether a rank has a progress thread from the start.
pub const PROGRESS: Choice<bool> = Choice {
    name: "PROGRESS",
    values: &[("calls", false), ("thread", true)],
    help: "progress only in calls of the program (calls), or also by a thread of each rank (thread)",
};

/// The time without a progress pass of other threads after which the progress thread takes the lock back. Together with
/// [`MAX_RELIEF`], it limits the delay of a message that arrives while the program computes.
const RELIEF: Duration = Duration::from_millis(1);

/// The longest time between two checks while another thread holds the progress lock, for example in a long receive.
const MAX_RELIEF: Duration = Duration::from_millis(8);

/// The state that the progress thread shares with the other threads of the rank.
#[derive(Debug, Default)]
struct Shared {
    /// Number of pending futures.
    futures: AtomicUsize,
    /// Number of [driver descriptors](super::DriverFd), whose owners make progress for futures.
    drivers: AtomicUsize,
    /// Whether the thread runs even if no future is pending.
    is_permanent: AtomicBool,
    is_stopped: AtomicBool,
    /// Whether the thread holds the progress lock, or waits for it.
    is_driving: AtomicBool,
    /// Whether another thread wants the progress lock, or has taken it.
    is_relieved: AtomicBool,
    thread: Mutex<ThreadState>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum ThreadState {
    #[default]
    NotStarted,
    Started,
    /// The system refused to start it.
    Failed,
}

impl Shared {
    fn is_needed(&self) -> bool {
        self.is_permanent.load(Ordering::SeqCst)
            || (self.futures.load(Ordering::SeqCst) > 0 && self.drivers.load(Ordering::SeqCst) == 0)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Parks until the thread is needed; returns false if it must end.
    fn park(&self) -> bool {
        let mut state = lock(&self.thread);
        while !self.is_stopped() && !self.is_needed() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !self.is_stopped()
    }

    fn notify(&self) {
        // The lock orders this after the check of a thread that is about to park.
        drop(lock(&self.thread));
        self.changed.notify_all();
    }
}

/// The progress thread of an engine.
#[derive(Debug, Default)]
pub(crate) struct Background(Arc<Shared>);

impl Background {
    /// Asks the progress thread for the progress lock. Returns whether it was driving and was not asked yet.
    #[inline]
    pub(super) fn relieve(&self) -> bool {
        self.0.is_driving.load(Ordering::Relaxed) && !self.0.is_relieved.swap(true, Ordering::SeqCst)
    }

    /// Makes the thread end soon.
    pub(super) fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::SeqCst);
        self.0.notify();
    }
}

/// The wait of a future for an operation of an engine. Until it is dropped, the progress thread or the owner of a
/// [`DriverFd`](super::DriverFd) makes progress.
pub struct AsyncWait {
    engine: Arc<Engine>,
    /// The number of the wait in the list of blocked threads and futures.
    blocked: u64,
}

impl AsyncWait {
    /// Declares that a future waits for the operation that `what` describes, and starts the progress thread unless a
    /// driver descriptor exists. Returns `None` if the thread is needed and cannot be started, for example because the
    /// engine is closed; the task must then poll.
    pub fn begin(engine: &Arc<Engine>, what: WaitReason) -> Option<Self> {
        let shared = &engine.background.0;
        shared.futures.fetch_add(1, Ordering::SeqCst);
        let wait = AsyncWait { engine: Arc::clone(engine), blocked: engine.waits.add(what) };
        (shared.drivers.load(Ordering::SeqCst) > 0 || engine.start_background()).then_some(wait)
    }
}

impl Drop for AsyncWait {
    fn drop(&mut self) {
        // The thread parks when it next checks. Waking it for that would cost more than one needless sleep.
        self.engine.background.0.futures.fetch_sub(1, Ordering::SeqCst);
        self.engine.waits.remove(self.blocked);
    }
}

impl fmt::Debug for AsyncWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsyncWait")
    }
}

impl Engine {
    /// Starts the progress thread, which then runs until the engine is closed.
    ///
    /// # Errors
    /// The system refuses to start a thread, or the engine is closed.
    pub fn start_progress_thread(self: &Arc<Self>) -> Result<(), String> {
        self.background.0.is_permanent.store(true, Ordering::SeqCst);
        match self.start_background() {
            true => Ok(()),
            false => Err("no progress thread: the system refused it, or the engine is closed".into()),
        }
    }

    /// Makes the progress thread end soon: this rank leaves the job.
    pub(super) fn stop_background(&self) {
        self.background.stop();
        if self.background.relieve() {
            self.site.bell.wake();
        }
    }

    /// Counts a driver descriptor: from now on its owner makes progress for futures.
    pub(super) fn add_driver(&self) {
        self.background.0.drivers.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes a driver descriptor from the count. Futures that are still pending get a progress thread.
    pub(super) fn remove_driver(self: &Arc<Self>) {
        let shared = &self.background.0;
        if shared.drivers.fetch_sub(1, Ordering::SeqCst) == 1 && shared.futures.load(Ordering::SeqCst) > 0 {
            self.start_background();
        }
    }

    /// Starts the thread, or wakes it if it is parked or stands by. Returns false if it cannot be started or must end.
    fn start_background(self: &Arc<Self>) -> bool {
        let shared = &self.background.0;
        let mut state = lock(&shared.thread);
        if shared.is_stopped() {
            return false;
        }
        if *state == ThreadState::NotStarted {
            let (engine, shared) = (Arc::downgrade(self), Arc::clone(shared));
            let name = format!("progress {}", self.site.rank);
            let spawned = std::thread::Builder::new().name(name).spawn(move || run(&engine, &shared));
            *state = spawned.map_or(ThreadState::Failed, |_| ThreadState::Started);
        }
        let is_started = *state == ThreadState::Started;
        shared.is_relieved.store(false, Ordering::SeqCst);
        drop(state);
        shared.changed.notify_all();
        is_started
    }

    /// Makes progress until the thread is not needed or is asked for the progress lock.
    fn drive(&self, shared: &Shared) {
        shared.is_driving.store(true, Ordering::SeqCst);
        let is_done =
            || shared.is_stopped() || shared.is_relieved.load(Ordering::SeqCst) || !shared.is_needed();
        self.wait_in_background(|| is_done().then_some(()));
        shared.is_driving.store(false, Ordering::SeqCst);
    }

    /// Waits while other threads make progress and no future begins to wait: each time for [`RELIEF`], and longer while
    /// another thread holds the lock.
    fn stand_by(&self, shared: &Shared) {
        let (mut seen, mut time) = (None, RELIEF);
        while !shared.is_stopped() && shared.is_relieved.load(Ordering::SeqCst) {
            let state = lock(&shared.thread);
            drop(shared.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner));
            let now = self.pass_count();
            if now.is_some() && now == seen {
                break;
            }
            time = if now.is_some() { RELIEF } else { MAX_RELIEF.min(2 * time) };
            seen = now;
        }
        shared.is_relieved.store(false, Ordering::SeqCst);
    }
}

fn run(engine: &Weak<Engine>, shared: &Shared) {
    while shared.park() {
        let Some(engine) = engine.upgrade() else { return };
        engine.drive(shared);
        if shared.is_relieved.load(Ordering::SeqCst) {
            engine.stand_by(shared);
        }
    }
}

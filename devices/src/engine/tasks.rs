//! Tasks: operations of several steps, such as non-blocking collectives. Threads that make progress poll the tasks,
//! even if no thread waits for them.
//!
//! A waiting thread polls the tasks after it has made progress and before it sleeps, a testing thread in each test. The
//! thread releases the progress lock first, because a step can take long or call a user's function, which can wait for
//! messages. While such a function waits or tests, its thread polls the other tasks, up to the depth [`MAX_NESTING`].

mod poll_state;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use poll_state::PollState;

use super::channel::Channel;
use super::{Engine, lock};
use crate::deferred_drop;

/// At this depth of nested polls, `poll_tasks` has no effect, because the stack of a thread is limited.
const MAX_NESTING: u32 = 16;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

struct NestingGuard;

impl NestingGuard {
    fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        NestingGuard
    }
}

impl Drop for NestingGuard {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// An operation of several steps: see [`Engine::spawn`].
pub trait ProgressTask: fmt::Debug + Send + Sync {
    /// Advances as far as possible without blocking; returns whether the task is complete.
    ///
    /// One thread at a time calls it, and holds no lock of the engine. It is not called again after it has returned
    /// true. It must not panic.
    fn poll(&self) -> bool;
}

#[derive(Debug, Default)]
pub(super) struct TaskList {
    /// Number of tasks. If it is 0, progress reads nothing else.
    count: AtomicUsize,
    list: Mutex<Vec<Arc<TaskEntry>>>,
}

#[derive(Debug)]
struct TaskEntry {
    task: Arc<dyn ProgressTask>,
    context: u64,
    state: PollState,
}

impl TaskList {
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    pub(super) fn contexts(&self) -> Vec<u64> {
        let mut contexts: Vec<u64> = lock(&self.list).iter().map(|task| task.context).collect();
        contexts.sort_unstable();
        contexts.dedup();
        contexts
    }
}

impl Engine {
    /// Adds a task of a channel. The engine polls it now and while threads of this rank make progress, and keeps it
    /// until it is complete.
    ///
    /// A rank that [closes](Self::close) completes its tasks first. A task that is spawned later must complete at
    /// once: see [`is_closed`](Self::is_closed).
    pub fn spawn(&self, channel: &Channel, task: Arc<dyn ProgressTask>) {
        let task = Arc::new(TaskEntry { task, context: channel.context, state: PollState::new() });
        let mut list = lock(&self.tasks.list);
        list.push(Arc::clone(&task));
        self.tasks.count.store(list.len(), Ordering::Relaxed);
        drop(list);
        self.poll_task(&task, true);
        deferred_drop::with_deferred_drops(|| drop(task));
        deferred_drop::run_deferred_drops();
    }

    /// Returns whether this rank has begun to leave the job.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Returns whether this rank is leaving the job and has completed its tasks, or was failed by `fail_all`.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Polls all tasks. If another thread is polling a task and `has_progress` is true, that thread polls once more.
    /// The caller does not hold the progress lock.
    #[cold]
    pub(super) fn poll_tasks(&self, has_progress: bool) {
        if DEPTH.get() >= MAX_NESTING {
            return;
        }
        let tasks = lock(&self.tasks.list).clone();
        for task in &tasks {
            self.poll_task(task, has_progress);
        }
        deferred_drop::with_deferred_drops(|| drop(tasks));
        deferred_drop::run_deferred_drops();
    }

    fn poll_task(&self, task: &Arc<TaskEntry>, has_progress: bool) {
        let nesting = NestingGuard::begin();
        if !task.state.poll(has_progress, || task.task.poll()) {
            return;
        }
        drop(nesting);
        let mut list = lock(&self.tasks.list);
        list.retain(|other| !Arc::ptr_eq(other, task));
        self.tasks.count.store(list.len(), Ordering::Relaxed);
        drop(list);
        // No frame announces the completion, so wake the waiting threads.
        self.wake_all();
    }
}

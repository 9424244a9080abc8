//! Operations of several steps that the engine drives though nobody waits for them, as a collective that does not block.
//!
//! Whoever makes progress drives them, when it has moved something and before it sleeps, and gives the turn up first: a step
//! may take long, call a function of the user's, and wait for messages itself. What that thread waits for is noticed when
//! the step has ended. While such a function waits or looks its thread drives the others, and so on, but no deeper than
//! [`NESTED`]: it comes back to them when the function has returned.

mod hand;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hand::PollState;

use super::channel::Channel;
use super::{Engine, lock};
use crate::later;

/// How many operations a thread drives at once, each in a step of the one before: its stack has an end.
const NESTED: u32 = 16;

thread_local! {
    /// How many this thread drives.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A step that this thread takes, until it is dropped.
struct Step;

impl Step {
    fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Step
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// An operation of several steps: see [`Engine::spawn`].
pub trait ProgressTask: fmt::Debug + Send + Sync {
    /// Goes on as far as it can without waiting for others; returns whether it has ended.
    ///
    /// One thread at a time calls it, without a lock of the engine's, and no more when it has ended. It must not panic.
    fn poll(&self) -> bool;
}

/// The operations that a rank drives.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// How many there are: all that is looked at where there are none.
    open: AtomicUsize,
    list: Mutex<Vec<Arc<TaskEntry>>>,
}

#[derive(Debug)]
struct TaskEntry {
    driven: Arc<dyn ProgressTask>,
    context: u64,
    hand: PollState,
}

impl Tasks {
    /// Whether there are any.
    #[inline]
    pub(super) fn are_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    /// Returns the contexts in which they are.
    pub(super) fn contexts(&self) -> Vec<u64> {
        let mut contexts: Vec<u64> = lock(&self.list).iter().map(|task| task.context).collect();
        contexts.sort_unstable();
        contexts.dedup();
        contexts
    }
}

impl Engine {
    /// Drives an operation of a channel to its end, whether or not anybody waits for it: polls it now, and whenever a thread of this
    /// rank makes progress. The engine holds it until it has ended.
    ///
    /// A rank that [leaves](Self::close) drives it to its end before. One that is started later has to end at once: see
    /// [`is_closed`](Self::is_closed).
    pub fn spawn(&self, channel: &Channel, driven: Arc<dyn ProgressTask>) {
        let task = Arc::new(TaskEntry { driven, context: channel.context, hand: PollState::new() });
        let mut list = lock(&self.tasks.list);
        list.push(Arc::clone(&task));
        self.tasks.open.store(list.len(), Ordering::Relaxed);
        drop(list);
        self.poll_task(&task, true);
        later::with_deferred_drops(|| drop(task));
        later::run_deferred_drops();
    }

    /// Whether this rank takes part in nothing more.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Drives all operations, after something has moved or before a sleep. The caller does not hold the turn.
    #[cold]
    pub(super) fn poll_tasks(&self, is_news: bool) {
        if DEPTH.get() >= NESTED {
            return;
        }
        let open = lock(&self.tasks.list).clone();
        for task in &open {
            self.poll_task(task, is_news);
        }
        // One that has ended may be nobody else's any more.
        later::with_deferred_drops(|| drop(open));
        later::run_deferred_drops();
    }

    fn poll_task(&self, task: &Arc<TaskEntry>, is_news: bool) {
        let step = Step::begin();
        if !task.hand.poll(is_news, || task.driven.poll()) {
            return;
        }
        drop(step);
        let mut list = lock(&self.tasks.list);
        list.retain(|one| !Arc::ptr_eq(one, task));
        self.tasks.open.store(list.len(), Ordering::Relaxed);
        drop(list);
        // Its end is news that no frame brings.
        self.wake_all();
    }
}

//! Listeners: an operation notifies its listener when it is complete.

use std::sync::Arc;
use std::task::Waker;

use crate::deferred_drop;
use crate::fence;
use crate::message::KeepAlive;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

/// The receiver of the notification that an operation is complete.
#[derive(Clone, Debug)]
pub enum Listener {
    /// Wakes a task. The waker is foreign code, so it runs after this thread has released the locks of its rank.
    Task(Waker),
    /// Adds the number to a list.
    List(Arc<ReadyList>, usize),
    /// Drops the owner of the operation's memory.
    Drop(KeepAlive),
}

impl Listener {
    /// Notifies the listener.
    pub fn notify(self) {
        match self {
            Listener::Task(waker) => deferred_drop::wake_deferred(waker),
            Listener::List(list, number) => list.push(number),
            Listener::Drop(owner) => drop(owner),
        }
    }

    /// Returns the list and the number, which identify the entry of a list; `None` for other listeners.
    pub fn entry(&self) -> Option<(*const ReadyList, usize)> {
        match self {
            Listener::List(list, number) => Some((Arc::as_ptr(list), *number)),
            Listener::Task(_) | Listener::Drop(_) => None,
        }
    }

    /// Notifies a list that is replaced by another [entry](Self::entry), because its owner might still wait. A replaced
    /// waker is not notified: it is a former waker of the same future.
    pub fn notify_replaced(self, by: Option<(*const ReadyList, usize)>) {
        if self.entry().is_some_and(|entry| Some(entry) != by) {
            self.notify();
        } else {
            deferred_drop::drop_deferred(self);
        }
    }
}

/// Makes every thread that completes an operation from now on see the listeners that this thread has registered.
///
/// After this call, a thread that has registered a listener must check whether the operation is already complete.
/// Returns false if the system refuses the fence; then the notification might be missing, and the thread must poll.
#[must_use]
pub fn fence_listeners() -> bool {
    fence::heavy_fence()
}

/// The numbers of the notified listeners, in order: of operations that have completed, or whose listener was
/// [replaced](Listener::notify_replaced).
#[derive(Debug, Default)]
pub struct ReadyList {
    /// The length of `numbers`.
    len: AtomicUsize,
    numbers: Mutex<std::collections::VecDeque<usize>>,
}

impl ReadyList {
    /// Adds a number.
    pub fn push(&self, number: usize) {
        let mut numbers = lock(&self.numbers);
        numbers.push_back(number);
        self.len.store(numbers.len(), Ordering::Release);
    }

    /// Takes the oldest number.
    pub fn pop(&self) -> Option<usize> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut numbers = lock(&self.numbers);
        let number = numbers.pop_front();
        self.len.store(numbers.len(), Ordering::Release);
        number
    }
}

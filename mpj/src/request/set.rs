//! Sets of requests, whose completed ones are found without a search, except those that must be polled.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::{Engine, Listener, ReadyList, WaitReason, fence_listeners};

use super::wait_many::Waitable;
use crate::raw::{deadline, wait_on};

/// Many pending operations, each with a key of the user, in order of completion. Operations that completed before the
/// first wait after their insertion are in order of insertion.
///
/// A completed operation adds itself to a list, so the time to find it does not depend on the number of pending ones.
/// The set polls operations that cannot do so, such as partitioned messages, and operations that are in several sets.
/// For fewer than about ten requests, a `Vec` and [`wait_any`](crate::wait_any) are as fast.
/// ```
/// use mpj::RequestSet;
///
/// # mpj::threads(4, |world| {
/// if world.rank() == 0 {
///     let mut pending = RequestSet::new();
///     for worker in 1..world.size() {
///         pending.insert(worker, world.irecv([0u64; 1], worker, 0)?);
///     }
///     let mut total = 0;
///     while let Some((worker, outcome)) = pending.wait_next() {
///         let ([number], _status) = outcome?;
///         assert_eq!(number, 10 * worker as u64);
///         total += number;
///     }
///     assert_eq!(total, 60);
/// } else {
///     world.send(&[10 * world.rank() as u64], 0, 0)?;
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
/// Operations of different types go into one set as [references](Waitable::request_ref):
/// ```
/// use mpj::{RequestSet, Waitable};
///
/// # mpj::threads(2, |world| {
/// let other = 1 - world.rank();
/// let (text, number) = (world.irecv(vec!['?'; 2], other, 0)?, world.irecv([0u8; 1], other, 1)?);
/// world.send(&['h', 'i'], other, 0)?;
/// world.send(&[7u8], other, 1)?;
/// let mut pending = RequestSet::new();
/// pending.insert("text", text.request_ref());
/// pending.insert("number", number.request_ref());
/// for (key, outcome) in pending.drain() {
///     assert_eq!(outcome?.bytes(), if key == "text" { 8 } else { 1 });
/// }
/// assert_eq!((text.wait()?.0, number.wait()?.0), (vec!['h', 'i'], [7]));
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
/// Dropping the set drops its operations.
pub struct RequestSet<K, O> {
    slots: Vec<Option<(K, O)>>,
    free: Vec<usize>,
    /// The slots whose operations do not notify `ready` yet.
    unregistered: Vec<usize>,
    /// The slots whose operations might not notify `ready`: operations that take no listener, such as partitioned
    /// messages; operations whose listener was replaced; all if the system has refused the fence. Also operations that
    /// reuse a slot with an old notification.
    polled: Vec<usize>,
    /// The slots of operations that have completed, and perhaps others.
    ready: Arc<ReadyList>,
    /// The engines of the operations.
    engines: Vec<Arc<Engine>>,
}

impl<K, O> Default for RequestSet<K, O> {
    fn default() -> Self {
        RequestSet {
            slots: Vec::new(),
            free: Vec::new(),
            unregistered: Vec::new(),
            polled: Vec::new(),
            ready: Arc::default(),
            engines: Vec::new(),
        }
    }
}

impl<K, O> RequestSet<K, O> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of operations whose outcome has not been returned yet.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether the outcomes of all operations have been returned.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K, O: Waitable> RequestSet<K, O> {
    /// Adds an operation. The key is returned with its outcome; it need not be unique.
    pub fn insert(&mut self, key: K, operation: O) {
        if let Some(engine) = operation.request_ref().engine()
            && !self.engines.iter().any(|known| Arc::ptr_eq(known, engine))
        {
            self.engines.push(Arc::clone(engine));
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some((key, operation));
        self.unregistered.push(slot);
    }

    /// Waits until an operation has completed, removes it, and returns its key and outcome; `None` if the set is empty.
    pub fn wait_next(&mut self) -> Option<(K, O::Outcome)> {
        self.next_until(None)
    }

    /// Waits as [`wait_next`](Self::wait_next) does, but at most for `limit`. Returns `None` if no operation has
    /// completed by then, or if the set is empty.
    pub fn wait_next_timeout(&mut self, limit: Duration) -> Option<(K, O::Outcome)> {
        self.next_until(deadline(limit))
    }

    /// Returns the key and the outcome of an operation that has completed, and removes it. If none has, makes progress
    /// once and checks again.
    pub fn test_next(&mut self) -> Option<(K, O::Outcome)> {
        self.register();
        if let Some(found) = self.pop() {
            return Some(found);
        }
        for engine in &self.engines {
            engine.progress();
        }
        self.pop()
    }

    /// Returns an iterator that waits for the operations in order of completion, until the set is empty. Those that
    /// completed before the first wait come in order of insertion. Operations that were not returned stay in the set.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, O::Outcome)> {
        std::iter::from_fn(|| self.wait_next())
    }

    fn next_until(&mut self, end: Option<Instant>) -> Option<(K, O::Outcome)> {
        while !self.is_empty() {
            self.register();
            if let Some(found) = self.pop() {
                return Some(found);
            }
            let slot = self.wait_for_slot(end)?;
            if let Some(found) = self.take(slot) {
                return Some(found);
            }
        }
        None
    }

    fn wait_for_slot(&self, end: Option<Instant>) -> Option<usize> {
        wait_on(&self.engines, end, || self.completed(), || self.describe())
    }

    /// Returns the slot of an operation that has completed, or a slot to check again.
    fn completed(&self) -> Option<usize> {
        self.ready.pop().or_else(|| self.polled.iter().copied().find(|slot| self.is_complete(*slot)))
    }

    fn describe(&self) -> WaitReason {
        let mut pending = self.slots.iter().flatten().map(|(_, operation)| operation.request_ref());
        let first = pending.find_map(|operation| operation.wait_reason());
        first.unwrap_or_else(|| WaitReason::call("operations")).with_others(self.len() - 1, true)
    }

    fn is_complete(&self, slot: usize) -> bool {
        self.slots[slot].as_ref().is_some_and(|(_, operation)| operation.request_ref().is_complete())
    }

    /// Makes the operations notify `ready`, with one fence for all that were inserted since the last call.
    fn register(&mut self) {
        if self.unregistered.is_empty() {
            return;
        }
        let slots = std::mem::take(&mut self.unregistered);
        let mut pending = Vec::new();
        for slot in slots {
            let Some((_, operation)) = &self.slots[slot] else { continue };
            let operation = operation.request_ref();
            if operation.is_complete() {
                self.ready.push(slot);
                continue;
            }
            match operation.listen(Listener::List(Arc::clone(&self.ready), slot)) {
                true => pending.push(slot),
                false => self.polled.push(slot),
            }
        }
        if pending.is_empty() {
            return;
        }
        let is_fenced = fence_listeners();
        for slot in pending {
            if self.is_complete(slot) {
                // It might have completed before it was registered. At worst, a second notification makes a later
                // operation in this slot a polled one.
                self.ready.push(slot);
            } else if !is_fenced {
                self.polled.push(slot);
            }
        }
    }

    fn pop(&mut self) -> Option<(K, O::Outcome)> {
        while let Some(slot) = self.completed() {
            if let Some(found) = self.take(slot) {
                return Some(found);
            }
        }
        None
    }

    /// Removes the operation of a slot if it has completed.
    fn take(&mut self, slot: usize) -> Option<(K, O::Outcome)> {
        if !self.is_complete(slot) {
            // Another set has become the listener of the operation, or the notification was for an earlier operation of
            // this slot. Poll the slot: two sets that both registered again would notify each other for ever.
            if self.slots[slot].is_some() && !self.polled.contains(&slot) {
                self.polled.push(slot);
            }
            return None;
        }
        let (key, operation) = self.slots[slot].take()?;
        self.free.push(slot);
        self.polled.retain(|polled| *polled != slot);
        Some((key, operation.wait()))
    }
}

impl<K: fmt::Debug, O> fmt::Debug for RequestSet<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.slots.iter().flatten().map(|(key, _)| key);
        f.debug_set().entries(keys).finish()
    }
}

//! The completion of one operation, and the handles that set and observe it.

mod listener;
#[cfg(all(test, loom))]
mod model;
mod receive;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::PoisonError;

use crate::deferred_drop;
use crate::fault::Fault;
use crate::fence::LightFence;
use crate::message::{Envelope, KeepAlive, Target};
use crate::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use crate::sync::cell::UnsafeCell;
use crate::sync::thread_local;

pub use listener::{Listener, ReadyList, fence_listeners};
pub use receive::Receive;
pub(crate) use receive::RecvCompleter;

/// The outcome of an operation: the envelope of the message, or the fault.
pub type Outcome = Result<Envelope, Fault>;

/// The state of an operation when the call that starts it returns.
#[derive(Debug)]
pub enum Started {
    /// The operation is complete.
    Done(Envelope),
    /// The operation is pending; this handle observes its completion.
    Pending(Completion),
}

/// The state that the two handles share. It has its own cache lines, because other cores might use neighbouring data.
///
/// The [`Completer`] stores [`COMPLETE`], and then checks for a listener, without a locked instruction. A thread that
/// registers a listener stores the pointer, executes the [heavy fence](fence_listeners), and then checks the state. So
/// at least one of the two threads sees the other's write. The completer stores [`RELEASED`] after its check, because
/// the node must not be recycled before.
///
/// # Invariants
/// 1. The [`Completer`] stores [`COMPLETE`] and then [`RELEASED`], each once, and does not touch the node after that.
///    The drop of the [`Completion`] then recycles the node. A completion that is dropped earlier adds the node to
///    [`DETACHED`].
/// 2. `outcome` is written before `state` is [`COMPLETE`], and read only after `state` was seen not to be [`PENDING`].
/// 3. `target` is initialised as long as the [`RecvCompleter`] of the node exists. Nothing else uses it.
/// 4. `listener` is null or comes from `Box::into_raw`. A thread that swaps a pointer out owns it.
#[repr(align(64))]
struct Node {
    state: AtomicU8,
    listener: AtomicPtr<Listener>,
    outcome: UnsafeCell<MaybeUninit<Outcome>>,
    target: UnsafeCell<MaybeUninit<Target>>,
}

const PENDING: u8 = 0;
/// The outcome can be read.
const COMPLETE: u8 = 1;
/// The completer does not use the node any more.
const RELEASED: u8 = 2;

// SAFETY: by the invariants each field has one user at a time; `state` hands over the outcome.
unsafe impl Send for Node {}
// SAFETY: as above; after the completion the outcome is only read.
unsafe impl Sync for Node {}

const NODE_CACHE_MAX: usize = 256;

thread_local! {
    #[expect(clippy::vec_box, reason = "handles point to the nodes, so the nodes must not move")]
    static NODE_CACHE: RefCell<Vec<Box<Node>>> = const { RefCell::new(Vec::new()) };
}

impl Node {
    #[inline]
    fn is_complete(&self) -> bool {
        // SYNC completion (acquire)
        self.state.load(Ordering::Acquire) != PENDING
    }

    /// Returns whether the completer has stored the outcome and does not use the node any more.
    #[inline]
    fn is_released(&self) -> bool {
        // SYNC completion (acquire)
        self.state.load(Ordering::Acquire) == RELEASED
    }

    #[inline]
    fn has_listener(&self) -> bool {
        // SYNC completion-listener (the fences order it)
        !self.listener.load(Ordering::Relaxed).is_null()
    }

    #[cold]
    fn swap_listener(&self, new: *mut Listener) -> Option<Box<Listener>> {
        let old = NonNull::new(self.listener.swap(new, Ordering::AcqRel))?;
        // SAFETY: invariant 4.
        Some(unsafe { Box::from_raw(old.as_ptr()) })
    }

    #[inline]
    fn alloc() -> NonNull<Node> {
        let cached = NODE_CACHE.try_with(|cache| cache.borrow_mut().pop()).ok().flatten();
        NonNull::from(Box::leak(cached.unwrap_or_else(Node::new)))
    }

    #[cold]
    fn new() -> Box<Node> {
        let outcome = UnsafeCell::new(MaybeUninit::uninit());
        let target = UnsafeCell::new(MaybeUninit::uninit());
        let listener = AtomicPtr::new(ptr::null_mut());
        Box::new(Node { state: AtomicU8::new(PENDING), listener, outcome, target })
    }

    /// # Safety
    /// The outcome was written and not dropped, and nothing else uses it.
    unsafe fn drop_outcome(&self) {
        // SAFETY: the caller's promise.
        self.outcome.with_mut(|outcome| unsafe { outcome.cast::<Outcome>().drop_in_place() });
    }

    /// Puts a node into the thread's cache, or frees it.
    ///
    /// # Safety
    /// Nothing else uses the node, and its outcome is dropped.
    unsafe fn recycle(node: NonNull<Node>) {
        // SAFETY: the node was leaked by `alloc`, and nobody else uses it.
        let mut node = unsafe { Box::from_raw(node.as_ptr()) };
        // The completer did not see the listener.
        if node.has_listener() {
            drop_listener(node.swap_listener(ptr::null_mut()));
        }
        node.state = AtomicU8::new(PENDING);
        let _ = NODE_CACHE.try_with(|cache| {
            let mut cache = cache.borrow_mut();
            if cache.len() < NODE_CACHE_MAX {
                cache.push(node);
            }
        });
    }
}

/// Observes the outcome of an operation. It holds no reference to the user's memory.
pub struct Completion(NonNull<Node>);

// SAFETY: `Node` is `Send` and `Sync`.
unsafe impl Send for Completion {}
// SAFETY: as above.
unsafe impl Sync for Completion {}

/// The handle that completes an operation, exactly once. Dropping it fails the operation with [`Fault::Cancelled`], so
/// that no thread waits for ever.
pub(crate) struct Completer(NonNull<Node>);

// SAFETY: `Node` is `Send` and `Sync`.
unsafe impl Send for Completer {}
// SAFETY: as above.
unsafe impl Sync for Completer {}

#[inline]
pub(crate) fn pair() -> (Completer, Completion) {
    let node = Node::alloc();
    (Completer(node), Completion(node))
}

impl Completion {
    fn node(&self) -> &Node {
        // SAFETY: the node lives until both handles are gone.
        unsafe { self.0.as_ref() }
    }

    /// Returns a number that identifies the operation while either handle exists.
    pub(crate) fn id(&self) -> usize {
        self.0.addr().get()
    }

    /// Registers the listener of the operation, and replaces an earlier one. The thread must then call
    /// [`fence_listeners`] and check the [outcome](Self::outcome): if the operation was already complete, the listener
    /// might not be notified.
    ///
    /// If the earlier listener is another entry of a list, that list is notified: see [`Listener::notify_replaced`].
    pub fn listen(&self, listener: Listener) {
        let entry = listener.entry();
        if let Some(old) = self.node().swap_listener(Box::into_raw(Box::new(listener))) {
            old.notify_replaced(entry);
        }
    }

    /// Returns whether a listener is registered and was not notified yet.
    pub fn is_listening(&self) -> bool {
        self.node().has_listener()
    }

    /// Returns the outcome if the operation is complete. The engine does not access its buffer afterwards.
    #[inline]
    pub fn outcome(&self) -> Option<&Outcome> {
        if !self.node().is_complete() {
            return None;
        }
        // SAFETY: the completion was seen: by invariant 2 the outcome is there, and is not written again.
        Some(self.node().outcome.with(|outcome| unsafe { &*outcome.cast::<Outcome>() }))
    }
}

impl Completion {
    /// Drops the handle now, and the owner of the operation's memory when the operation is complete.
    ///
    /// If the system refuses the [fence](fence_listeners), the owner might be dropped later.
    pub fn drop_with_memory(self, owner: KeepAlive) {
        let this = ManuallyDrop::new(self);
        let replaced = this.node().swap_listener(Box::into_raw(Box::new(Listener::Drop(owner))));
        // If the completer misses the listener after a refused fence, the recycling of the node drops it.
        let _ = fence_listeners();
        match this.outcome() {
            None => detach(Detached(this.0)),
            Some(_) => drop(ManuallyDrop::into_inner(this)),
        }
        // The drop of a waker may panic. A panic before the lines above would drop the owner of memory that is in use.
        drop_listener(replaced);
    }

    /// Converts the handle into the present state of the operation.
    ///
    /// # Errors
    /// The fault, if the operation has already failed.
    pub fn started(self) -> Result<Started, Fault> {
        match self.outcome() {
            None => Ok(Started::Pending(self)),
            Some(outcome) => outcome.clone().map(Started::Done),
        }
    }
}

impl Drop for Completion {
    #[inline]
    fn drop(&mut self) {
        if !self.node().is_released() {
            let listener = self.node().swap_listener(ptr::null_mut());
            detach(Detached(self.0));
            return drop_listener(listener);
        }
        // SAFETY: invariant 1: the completer does not use the node any more; invariant 2: the outcome was written.
        unsafe { self.node().drop_outcome() };
        // SAFETY: as above.
        unsafe { Node::recycle(self.0) };
    }
}

/// Drops a listener that was not notified, after this thread has released its locks: a waker is foreign code.
#[cold]
fn drop_listener(listener: Option<Box<Listener>>) {
    if let Some(listener) = listener {
        deferred_drop::drop_deferred(listener);
    }
}

struct Detached(NonNull<Node>);

// SAFETY: `Node` is `Send`.
unsafe impl Send for Detached {}

/// Nodes whose [`Completion`] was dropped before the operation was complete, and the length of the list at which the
/// next addition recycles the complete ones. Because of this list, a completer need not check whether its
/// completion still exists, which would take a locked instruction.
static DETACHED: std::sync::Mutex<(Vec<Detached>, usize)> = std::sync::Mutex::new((Vec::new(), RECLAIM_MIN));

/// The smallest length of the list at which an addition searches it for complete nodes.
const RECLAIM_MIN: usize = 64;

#[cold]
fn detach(node: Detached) {
    let mut guard = DETACHED.lock().unwrap_or_else(PoisonError::into_inner);
    let (nodes, limit) = &mut *guard;
    nodes.push(node);
    if nodes.len() >= *limit {
        drop(guard);
        reclaim();
    }
}

fn reclaim() {
    let lock = || DETACHED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut nodes = std::mem::take(&mut lock().0);
    nodes.retain(|Detached(at)| {
        // SAFETY: the node lives until it is recycled, below.
        let node = unsafe { at.as_ref() };
        if !node.is_released() {
            return true;
        }
        // SAFETY: invariants 1 and 2, as in the drop of a completion.
        unsafe { node.drop_outcome() };
        // SAFETY: as above; the node leaves the list.
        unsafe { Node::recycle(*at) };
        false
    });
    let mut guard = lock();
    guard.0.append(&mut nodes);
    guard.1 = RECLAIM_MIN.max(2 * guard.0.len());
}

impl Completer {
    /// Completes the operation. The caller has already dropped the source or target.
    #[inline]
    pub(crate) fn complete(self, outcome: Outcome) {
        ManuallyDrop::new(self).store(|| outcome);
    }

    pub(crate) fn id(&self) -> usize {
        self.0.addr().get()
    }

    pub(crate) fn is_for(&self, completion: &Completion) -> bool {
        self.0 == completion.0
    }

    /// Stores the outcome; the handle must not be used afterwards.
    #[inline]
    fn store(&mut self, outcome: impl FnOnce() -> Outcome) {
        // SAFETY: the node lives until both handles are gone.
        let node = unsafe { self.0.as_ref() };
        // SAFETY: invariant 2: the state is `PENDING`, so the outcome is not read.
        node.outcome.with_mut(|place| unsafe { place.write(MaybeUninit::new(outcome())) });
        // SYNC completion (release)
        node.state.store(COMPLETE, Ordering::Release);
        LightFence::new().fence();
        let listener = if node.has_listener() { node.swap_listener(ptr::null_mut()) } else { None };
        // SYNC completion (release): the last access to the node.
        node.state.store(RELEASED, Ordering::Release);
        if let Some(listener) = listener {
            listener.notify();
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.store(|| Err(Fault::Cancelled));
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completion").field(&self.outcome()).finish()
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completer")
    }
}

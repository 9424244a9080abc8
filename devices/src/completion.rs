//! How one operation ends, and who sees it.

#[cfg(all(test, loom))]
mod model;
mod receive;

use std::cell::RefCell;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::sync::PoisonError;

use crate::fault::Fault;
use crate::layout::{Envelope, Target};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::cell::UnsafeCell;
use crate::sync::thread_local;

pub use receive::Receive;
pub(crate) use receive::RecvCompleter;

/// What an operation came to: the envelope of the message, or why there is none.
pub type Outcome = Result<Envelope, Fault>;

/// An operation that was started.
#[derive(Debug)]
pub enum Started {
    /// It has ended already.
    Done(Envelope),
    /// It will end here.
    Pending(Completion),
}

/// The cell between the two handles; a line of its own, as they are used on different cores.
///
/// # Invariants
/// 1. The [`Completer`] stores `ended` once, and does not touch the node after that. The node is the [`Completion`]'s to give
///    back, or, if that goes before the end, the list's of the [abandoned](abandon).
/// 2. `outcome` is written before `ended` is stored, and read only after it was seen.
/// 3. `target` is there as long as a [`Receiving`] of the node is, which alone uses it.
#[repr(align(64))]
struct Node {
    is_complete: AtomicBool,
    outcome: UnsafeCell<MaybeUninit<Outcome>>,
    target: UnsafeCell<MaybeUninit<Target>>,
}

// SAFETY: by the invariants each field has one user at a time, handed over by `ended`.
unsafe impl Send for Node {}
// SAFETY: as above; after the end the outcome is only read.
unsafe impl Sync for Node {}

/// Nodes that a thread keeps for its next operations.
const SPARE: usize = 256;

thread_local! {
    #[expect(clippy::vec_box, reason = "handles point to them: they stay where they are")]
    static SPARES: RefCell<Vec<Box<Node>>> = const { RefCell::new(Vec::new()) };
}

impl Node {
    #[inline]
    fn has_ended(&self) -> bool {
        // SYNC completion (acquire)
        self.is_complete.load(Ordering::Acquire)
    }

    #[inline]
    fn take() -> NonNull<Node> {
        let spare = SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten();
        NonNull::from(Box::leak(spare.unwrap_or_else(Node::new)))
    }

    #[cold]
    fn new() -> Box<Node> {
        let outcome = UnsafeCell::new(MaybeUninit::uninit());
        let target = UnsafeCell::new(MaybeUninit::uninit());
        Box::new(Node { is_complete: AtomicBool::new(false), outcome, target })
    }

    /// Drops the outcome.
    ///
    /// # Safety
    /// It was written and not dropped, and nobody else uses it.
    unsafe fn drop_outcome(&self) {
        // SAFETY: the caller's promise.
        self.outcome.with_mut(|outcome| unsafe { outcome.cast::<Outcome>().drop_in_place() });
    }

    /// Takes a node back that its last owner is done with.
    ///
    /// # Safety
    /// Nobody else uses it, and its outcome is dropped.
    unsafe fn recycle(node: NonNull<Node>) {
        // SAFETY: it was leaked by `take`, and nobody else uses it.
        let mut node = unsafe { Box::from_raw(node.as_ptr()) };
        node.is_complete = AtomicBool::new(false);
        let _ = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < SPARE {
                spares.push(node);
            }
        });
    }
}

/// The place where an operation's outcome can be seen; it holds nothing of the user's memory.
pub struct Completion(NonNull<Node>);

// SAFETY: `Node` is `Send` and `Sync`.
unsafe impl Send for Completion {}
// SAFETY: as above.
unsafe impl Sync for Completion {}

/// The right, and the duty, to end an operation. Dropped without an outcome it ends the operation as abandoned, so that
/// nobody waits for ever.
pub(crate) struct Completer(NonNull<Node>);

// SAFETY: `Node` is `Send` and `Sync`.
unsafe impl Send for Completer {}
// SAFETY: as above.
unsafe impl Sync for Completer {}

/// Makes the two handles of a new operation.
#[inline]
pub(crate) fn pair() -> (Completer, Completion) {
    let node = Node::take();
    (Completer(node), Completion(node))
}

impl Completion {
    fn node(&self) -> &Node {
        // SAFETY: the node lives until both handles are gone.
        unsafe { self.0.as_ref() }
    }

    /// Returns a number that no other operation has while one of the two handles is there.
    pub(crate) fn id(&self) -> usize {
        self.0.addr().get()
    }

    /// Returns the outcome if the operation has ended. From then on the engine does not touch its memory.
    #[inline]
    pub fn outcome(&self) -> Option<&Outcome> {
        if !self.node().has_ended() {
            return None;
        }
        // SAFETY: the end was seen: by invariant 2 the outcome is there, and nobody writes it any more.
        Some(self.node().outcome.with(|outcome| unsafe { &*outcome.cast::<Outcome>() }))
    }
}

impl Completion {
    /// Tells what was started.
    ///
    /// # Errors
    /// What it failed with, if it has.
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
        if !self.node().has_ended() {
            return detach(Abandoned(self.0));
        }
        // SAFETY: invariant 1: the ender is gone, the node is ours; invariant 2: the outcome was written.
        unsafe { self.node().drop_outcome() };
        // SAFETY: as above.
        unsafe { Node::recycle(self.0) };
    }
}

/// The node of an operation that nobody waits for, and that may not have ended.
struct Abandoned(NonNull<Node>);

// SAFETY: `Node` is `Send`.
unsafe impl Send for Abandoned {}

/// The nodes of operations that nobody waits for: whoever adds one looks now and then which have ended. So an ender, who
/// would have to ask with a locked instruction, need not know whether somebody waits.
static ABANDONED: std::sync::Mutex<(Vec<Abandoned>, usize)> = std::sync::Mutex::new((Vec::new(), FEW));

/// So many are not looked at.
const FEW: usize = 64;

#[cold]
fn detach(node: Abandoned) {
    let mut guard = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    let (nodes, limit) = &mut *guard;
    nodes.push(node);
    if nodes.len() >= *limit {
        drop(guard);
        reclaim();
    }
}

/// Takes the nodes back whose operations have ended.
fn reclaim() {
    let lock = || ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut nodes = std::mem::take(&mut lock().0);
    nodes.retain(|Abandoned(node)| {
        // SAFETY: it lives until it is kept, below.
        let ended = unsafe { node.as_ref() };
        if !ended.has_ended() {
            return true;
        }
        // SAFETY: invariants 1 and 2, as in the drop of a completion.
        unsafe { ended.drop_outcome() };
        // SAFETY: as above; it leaves the list.
        unsafe { Node::recycle(*node) };
        false
    });
    let mut guard = lock();
    guard.0.append(&mut nodes);
    guard.1 = FEW.max(2 * guard.0.len());
}

impl Completer {
    /// Ends the operation. The caller has dropped the source or target before.
    #[inline]
    pub(crate) fn complete(self, outcome: Outcome) {
        ManuallyDrop::new(self).put(|| outcome);
    }

    /// Returns the number that the other handle has, too.
    pub(crate) fn id(&self) -> usize {
        self.0.addr().get()
    }

    /// Whether this is the other handle of `completion`.
    pub(crate) fn is_for(&self, completion: &Completion) -> bool {
        self.0 == completion.0
    }

    /// Puts the outcome down; the handle is used up.
    #[inline]
    fn put(&mut self, outcome: impl FnOnce() -> Outcome) {
        // SAFETY: the node lives until both handles are gone.
        let node = unsafe { self.0.as_ref() };
        // SAFETY: invariant 2: the end has not been stored, so that nobody reads.
        node.outcome.with_mut(|place| unsafe { place.write(MaybeUninit::new(outcome())) });
        // SYNC completion (release)
        node.is_complete.store(true, Ordering::Release);
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.put(|| Err(Fault::Cancelled));
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completion").field(&self.outcome()).finish()
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ender")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    fn dead(cause: &Arc<str>) -> Outcome {
        Err(Fault::Dead { rank: 1, cause: Arc::clone(cause) })
    }

    #[test]
    fn the_outcome_is_seen_once_it_is_there() {
        let cause: Arc<str> = "a test".into();
        for _ in 0..3 * SPARE {
            let (ender, completion) = pair();
            assert!(ender.is_for(&completion) && completion.outcome().is_none());
            ender.complete(dead(&cause));
            assert_eq!(completion.outcome(), Some(&dead(&cause)));
        }
        assert_eq!(Arc::strong_count(&cause), 1, "every outcome was dropped");
    }

    #[test]
    fn either_may_go_first() {
        let cause: Arc<str> = "a test".into();
        let (ender, completion) = pair();
        drop(completion);
        ender.complete(dead(&cause));
        reclaim();
        assert_eq!(Arc::strong_count(&cause), 1);
        let (ender, completion) = pair();
        drop(ender);
        assert_eq!(completion.outcome(), Some(&Err(Fault::Cancelled)));
    }

    #[test]
    fn handles_on_two_threads() {
        let cause: Arc<str> = "a test".into();
        thread::scope(|scope| {
            let (enders, taken) = std::sync::mpsc::sync_channel::<Completer>(64);
            let other = Arc::clone(&cause);
            scope.spawn(move || taken.into_iter().for_each(|ender| ender.complete(dead(&other))));
            for round in 0..if cfg!(miri) { 100 } else { 20_000 } {
                let (ender, completion) = pair();
                enders.send(ender).expect("the other thread goes on");
                if round % 3 != 0 {
                    while completion.outcome().is_none() {
                        thread::yield_now();
                    }
                    assert_eq!(completion.outcome(), Some(&dead(&cause)));
                }
            }
            drop(enders);
        });
        reclaim();
        assert_eq!(Arc::strong_count(&cause), 1);
    }

    #[test]
    fn operations_that_nobody_waits_for_leave_nothing_behind() {
        let cause: Arc<str> = "a test".into();
        let mut open = Vec::new();
        for round in 0..20 * FEW {
            let (ender, completion) = pair();
            drop(completion);
            if round % 2 == 0 {
                ender.complete(dead(&cause))
            } else {
                open.push(ender)
            }
            // Other tests have theirs in the list, too.
            assert!(Arc::strong_count(&cause) <= 2 + 2 * FEW.max(2 * open.len()), "round {round}");
        }
        open.into_iter().for_each(|ender| ender.complete(dead(&cause)));
        reclaim();
        assert_eq!(Arc::strong_count(&cause), 1);
    }
}

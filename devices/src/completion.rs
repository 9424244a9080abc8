//! How one operation ends, and who sees it.

#[cfg(all(test, loom))]
mod model;

use std::cell::RefCell;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

use crate::fault::Fault;
use crate::layout::Envelope;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::cell::UnsafeCell;
use crate::sync::thread_local;

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
/// 1. `state` goes from `OPEN` to `ENDED` by the [`Ender`] or to `ALONE` by the [`Completion`], each once; who finds the
///    other's mark there is the last, and owns the node from then on.
/// 2. `outcome` is written before `ENDED` is stored, and read only after it was seen.
#[repr(align(64))]
struct Node {
    state: AtomicU8,
    outcome: UnsafeCell<MaybeUninit<Outcome>>,
}

/// Both handles are there, and nothing has happened.
const OPEN: u8 = 0;
/// The operation has ended; the ender is gone.
const ENDED: u8 = 1;
/// Nobody waits any more.
const ALONE: u8 = 2;

// SAFETY: by the invariants each field has one user at a time, handed over by `state`.
unsafe impl Send for Node {}
// SAFETY: as above; after `ENDED` the outcome is only read.
unsafe impl Sync for Node {}

/// Nodes that a thread keeps for its next operations.
const SPARE: usize = 256;

thread_local! {
    #[expect(clippy::vec_box, reason = "handles point to them: they stay where they are")]
    static SPARES: RefCell<Vec<Box<Node>>> = const { RefCell::new(Vec::new()) };
}

impl Node {
    fn take() -> NonNull<Node> {
        let spare = SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten();
        let node = spare.unwrap_or_else(|| {
            let outcome = UnsafeCell::new(MaybeUninit::uninit());
            Box::new(Node { state: AtomicU8::new(OPEN), outcome })
        });
        NonNull::from(Box::leak(node))
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
    unsafe fn keep(node: NonNull<Node>) {
        // SAFETY: it was leaked by `take`, and nobody else uses it.
        let mut node = unsafe { Box::from_raw(node.as_ptr()) };
        node.state = AtomicU8::new(OPEN);
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
pub(crate) struct Ender(NonNull<Node>);

// SAFETY: `Node` is `Send` and `Sync`.
unsafe impl Send for Ender {}
// SAFETY: as above.
unsafe impl Sync for Ender {}

/// Makes the two handles of a new operation.
#[inline]
pub(crate) fn pair() -> (Ender, Completion) {
    let node = Node::take();
    (Ender(node), Completion(node))
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
        // SYNC completion (acquire)
        if self.node().state.load(Ordering::Acquire) != ENDED {
            return None;
        }
        // SAFETY: `ENDED` was seen: by invariant 2 the outcome is there, and nobody writes it any more.
        Some(self.node().outcome.with(|outcome| unsafe { &*outcome.cast::<Outcome>() }))
    }
}

impl Drop for Completion {
    #[inline]
    fn drop(&mut self) {
        // SYNC completion (acquire): a plain look first, as most operations have ended by now.
        let ended = self.node().state.load(Ordering::Acquire) == ENDED
            || self.node().state.swap(ALONE, Ordering::AcqRel) == ENDED;
        if !ended {
            return;
        }
        // SAFETY: invariant 1: the ender is gone, the node is ours; invariant 2: the outcome was written.
        unsafe { self.node().drop_outcome() };
        // SAFETY: as above.
        unsafe { Node::keep(self.0) };
    }
}

impl Ender {
    /// Ends the operation. The caller has dropped the source or target before.
    #[inline]
    pub(crate) fn end(self, outcome: Outcome) {
        ManuallyDrop::new(self).put(outcome);
    }

    /// Returns the number that the other handle has, too.
    pub(crate) fn id(&self) -> usize {
        self.0.addr().get()
    }

    /// Whether this is the other handle of `completion`.
    pub(crate) fn ends(&self, completion: &Completion) -> bool {
        self.0 == completion.0
    }

    /// Puts the outcome down; the handle is used up.
    #[inline]
    fn put(&mut self, outcome: Outcome) {
        // SAFETY: the node lives until both handles are gone.
        let node = unsafe { self.0.as_ref() };
        // SAFETY: invariant 2: `ENDED` has not been stored, so that nobody reads.
        node.outcome.with_mut(|place| unsafe { place.write(MaybeUninit::new(outcome)) });
        // SYNC completion (release)
        if node.state.swap(ENDED, Ordering::AcqRel) == ALONE {
            // SAFETY: invariant 1: the other handle is gone, and nobody reads; it was written above.
            unsafe { node.drop_outcome() };
            // SAFETY: as above.
            unsafe { Node::keep(self.0) };
        }
    }
}

impl Drop for Ender {
    fn drop(&mut self) {
        self.put(Err(Fault::Cancelled));
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completion").field(&self.outcome()).finish()
    }
}

impl fmt::Debug for Ender {
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
            assert!(ender.ends(&completion) && completion.outcome().is_none());
            ender.end(dead(&cause));
            assert_eq!(completion.outcome(), Some(&dead(&cause)));
        }
        assert_eq!(Arc::strong_count(&cause), 1, "every outcome was dropped");
    }

    #[test]
    fn either_may_go_first() {
        let cause: Arc<str> = "a test".into();
        let (ender, completion) = pair();
        drop(completion);
        ender.end(dead(&cause));
        assert_eq!(Arc::strong_count(&cause), 1);
        let (ender, completion) = pair();
        drop(ender);
        assert_eq!(completion.outcome(), Some(&Err(Fault::Cancelled)));
    }

    #[test]
    fn handles_on_two_threads() {
        let cause: Arc<str> = "a test".into();
        thread::scope(|scope| {
            let (enders, taken) = std::sync::mpsc::sync_channel::<Ender>(64);
            let other = Arc::clone(&cause);
            scope.spawn(move || taken.into_iter().for_each(|ender| ender.end(dead(&other))));
            for round in 0..20_000 {
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
        assert_eq!(Arc::strong_count(&cause), 1);
    }
}

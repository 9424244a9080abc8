//! What a scope and its requests share: the operations that the scope has to see end.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpj_devices::{Completion, Outcome, Started, Wait};

use crate::comm::Intracomm;
use crate::raw::About;
use crate::raw::abort_on_unwind;

/// Operations kept without a lock.
const NEAR: usize = 64;

/// The operations of a scope that have not been waited for.
///
/// A new operation tries the slot after the last one's: in a window of up to [`NEAR`] operations it is free. If it is
/// not, the operation goes to a list under a lock.
#[derive(Debug)]
pub(super) struct Desk {
    comm: Intracomm,
    near: [Slot; NEAR],
    next: AtomicUsize,
    far: Mutex<Far>,
}

/// Where an operation is kept; its holder alone may take it away.
#[derive(Debug)]
pub(super) enum Place {
    Near(usize),
    Far(usize),
}

/// # Invariants
/// 1. Whoever sets `held` makes the one [`Place`] of the slot, whose holder alone touches `completion`, until `held` is
///    unset; through a shared place it is only read. When the scope has ended, no place is used any more, and the desk
///    itself is the holder.
#[derive(Default)]
struct Slot {
    held: AtomicBool,
    completion: UnsafeCell<Option<Completion>>,
}

// SAFETY: by invariant 1 the completion, which is `Send` and `Sync`, is written by one thread alone.
unsafe impl Sync for Slot {}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.held).finish()
    }
}

#[derive(Debug, Default)]
struct Far {
    slots: Vec<Option<Completion>>,
    free: Vec<usize>,
}

impl Desk {
    pub(super) fn new(comm: Intracomm) -> Self {
        let near = std::array::from_fn(|_| Slot::default());
        Desk { comm, near, next: AtomicUsize::new(0), far: Mutex::default() }
    }

    pub(super) fn comm(&self) -> &Intracomm {
        &self.comm
    }

    fn far(&self) -> MutexGuard<'_, Far> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an operation that has not ended.
    #[inline]
    pub(super) fn keep(&self, completion: Completion) -> Place {
        let at = self.next.load(Ordering::Relaxed) % NEAR;
        let slot = &self.near[at];
        if slot.held.swap(true, Ordering::Acquire) {
            return self.keep_far(completion);
        }
        // A hint: if threads overwrite each other's, one of them finds the slot held.
        self.next.store(at + 1, Ordering::Relaxed);
        // SAFETY: invariant 1: the slot was free, and is ours.
        let place = unsafe { &mut *slot.completion.get() };
        *place = Some(completion);
        Place::Near(at)
    }

    #[cold]
    fn keep_far(&self, completion: Completion) -> Place {
        let mut far = self.far();
        let at = far.free.pop().unwrap_or_else(|| {
            far.slots.push(None);
            far.slots.len() - 1
        });
        far.slots[at] = Some(completion);
        Place::Far(at)
    }

    /// Lets `look` see an operation.
    #[inline]
    fn see<R>(&self, place: &Place, look: impl FnOnce(Option<&Completion>) -> R) -> R {
        match place {
            // SAFETY: invariant 1: by the place, nobody writes.
            Place::Near(at) => look(unsafe { &*self.near[*at].completion.get() }.as_ref()),
            Place::Far(at) => look(self.far().slots[*at].as_ref()),
        }
    }

    /// Returns the outcome if the operation has ended.
    #[inline]
    pub(super) fn outcome(&self, place: &Place) -> Option<Outcome> {
        self.see(place, |completion| completion.and_then(Completion::outcome).cloned())
    }

    /// Waits until the operation has ended, and forgets it.
    #[inline]
    pub(super) fn settle(&self, place: Place, about: About) -> Outcome {
        let raw = self.comm.as_raw();
        let outcome = raw.engine().wait_for(&mut (), |()| self.outcome(&place), |()| about.wait(raw.p2p()));
        match place {
            Place::Near(at) => {
                let slot = &self.near[at];
                // SAFETY: invariant 1: the place is ours, and used up.
                let completion = unsafe { &mut *slot.completion.get() };
                *completion = None;
                slot.held.store(false, Ordering::Release);
            }
            Place::Far(at) => {
                let mut far = self.far();
                far.slots[at] = None;
                far.free.push(at);
            }
        }
        outcome
    }

    /// Takes a receive back if it has not matched.
    pub(super) fn cancel(&self, place: &Place) -> bool {
        let raw = self.comm.as_raw();
        self.see(place, |completion| completion.is_some_and(|c| raw.engine().cancel(raw.p2p(), c)))
    }

    /// Waits until every operation has ended; if the scope has panicked, takes back what has not matched, sends too: those
    /// who would receive them may be waiting for something that will not come, as the panic is told to nobody before.
    ///
    /// # Safety
    /// The scope has ended: no place is used any more.
    pub(super) unsafe fn close(&self, panicked: bool) {
        let raw = self.comm.as_raw();
        let end = |completion: Completion| {
            if panicked {
                raw.engine().withdraw(raw.p2p(), &completion);
            }
            // Whatever it failed with, it has ended.
            let _ = raw.engine().wait_as(Started::Pending(completion), || Wait::call("the end of a scope"));
        };
        abort_on_unwind(|| {
            for slot in self.near.iter().filter(|slot| slot.held.load(Ordering::Acquire)) {
                // SAFETY: invariant 1: the scope has ended.
                let completion = unsafe { &mut *slot.completion.get() };
                completion.take().into_iter().for_each(end);
            }
            let far = std::mem::take(&mut *self.far());
            far.slots.into_iter().flatten().for_each(end);
        });
    }
}

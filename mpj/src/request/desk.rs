//! What a scope and its requests share: the operations that the scope has to see end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpj_devices::{Completion, Outcome, Started, Wait};

use super::slot::Slot;
use crate::comm::Intracomm;
use crate::raw::About;
use crate::raw::abort_on_unwind;

/// Operations kept without a lock.
const NEAR: usize = 64;

/// The operations of a scope that have not been waited for.
///
/// A new operation tries the slot after the last one's: in a window of up to [`NEAR`] operations it is free. If it is
/// not, the operation goes to a list under a lock.
///
/// # Invariants
/// 1. For each slot of `near` that is held there is at most one [`Place`]: whoever has it is the slot's holder, and lends
///    the right to look with every reference to it. When the scope has ended, no place is used any more.
#[derive(Debug)]
pub(super) struct Desk {
    comm: Intracomm,
    near: [Slot<Completion>; NEAR],
    next: AtomicUsize,
    far: Mutex<Far>,
}

/// Where an operation is kept; its holder alone may take it away.
#[derive(Debug)]
pub(super) enum Place {
    Near(usize),
    Far(usize),
}

#[derive(Debug, Default)]
struct Far {
    slots: Vec<Option<Completion>>,
    free: Vec<usize>,
}

impl Desk {
    pub(super) fn new(comm: Intracomm) -> Self {
        let near = std::array::from_fn(|_| Slot::new());
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
        if let Err(completion) = self.near[at].hold(completion) {
            return self.keep_far(completion);
        }
        // A hint, written without a lock: if two threads write the same slot's number, one of them finds the slot held.
        self.next.store(at + 1, Ordering::Relaxed);
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
            // SAFETY: invariant 1: by the place.
            Place::Near(at) => unsafe { self.near[*at].see(look) },
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
            // SAFETY: invariant 1: the place is ours, and used up.
            Place::Near(at) => unsafe { self.near[at].free() },
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
            for slot in &self.near {
                // SAFETY: invariant 1: the scope has ended.
                unsafe { slot.take() }.into_iter().for_each(end);
            }
            let far = std::mem::take(&mut *self.far());
            far.slots.into_iter().flatten().for_each(end);
        });
    }
}

//! The operations of a scope that have not completed, shared by the scope and its requests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpj_devices::{Completion, Started, WaitReason};

use super::slots::{self, Slots};
use crate::comm::Intracomm;
use crate::error::Result;
use crate::raw::OpInfo;
use crate::raw::abort_on_unwind;
use crate::status::Status;

/// Number of operations that are stored without a lock.
const NEAR: usize = 64;

/// The operations of a scope that have not been waited for.
///
/// An operation of the thread that opened the scope is stored in the slot after that of the previous operation. The
/// slot is free unless the operation stored in it [`NEAR`] operations ago still occupies it. If it is occupied, or if
/// another thread starts the operation, the operation is stored in a list under a lock.
///
/// A scope with few operations is cheap: when it ends, only the slots that were used are checked. Storing an operation
/// in a slot executes no locked instruction, which would wait until the messages just sent have reached the other core.
///
/// # Invariants
/// 1. For each occupied slot of `near` there is at most one [`OpSlot`]. Its owner holds the slot, and every reference
///    to the `OpSlot` permits reading the slot. After the scope has ended, no `OpSlot` is used any more.
#[derive(Debug)]
pub(super) struct ScopeOps<'c> {
    comm: &'c Intracomm,
    /// The thread that opened the scope, and stays in it until [`close`](Self::close) is called.
    owner: usize,
    slots: Slots<'c, ScopedOp, NEAR>,
    /// Number of operations of the owner. It wraps from `2 * NEAR - 1` to `NEAR`, so it tells for ever whether every
    /// slot was used.
    count: AtomicUsize,
    overflow: Mutex<OverflowSlots>,
    /// Whether an operation was ever stored in `far`.
    went_far: AtomicBool,
}

thread_local! {
    static MARK: u8 = const { 0 };
}

/// Returns a number that identifies the calling thread while it lives: the address of a thread-local variable.
#[inline]
fn thread_marker() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// The memory of the operations that are stored without a lock.
pub(super) type Room = slots::SlotMemory<ScopedOp, NEAR>;

/// An operation that might still be pending.
#[derive(Debug)]
pub(super) struct ScopedOp {
    completion: Completion,
    about: OpInfo,
}

impl ScopedOp {
    #[inline(always)]
    fn outcome(&self) -> Option<Result<Status>> {
        self.completion.outcome().map(|outcome| self.about.told(outcome))
    }
}

/// The slot of an operation; only its owner may free it.
#[derive(Debug)]
pub(super) enum OpSlot {
    Inline(u32),
    Overflow(u32),
}

#[derive(Debug, Default)]
struct OverflowSlots {
    slots: Vec<Option<ScopedOp>>,
    free: Vec<u32>,
    /// Slots, of this list and of `near`, of operations that were pending when their request was detached.
    given_up: Vec<OpSlot>,
    /// The next insertion frees the completed operations of `given_up` if it holds more slots than this.
    sweep_at: usize,
}

impl OverflowSlots {
    fn free(&mut self, at: u32) {
        self.slots[at as usize] = None;
        self.free.push(at);
    }
}

fn has_ended(open: Option<&ScopedOp>) -> bool {
    open.is_none_or(|open| open.completion.outcome().is_some())
}

impl<'c> ScopeOps<'c> {
    #[inline(always)]
    pub(super) fn new(comm: &'c Intracomm, room: &'c mut Room) -> Self {
        ScopeOps {
            comm,
            owner: thread_marker(),
            slots: Slots::new(room),
            count: AtomicUsize::new(0),
            overflow: Mutex::default(),
            went_far: AtomicBool::new(false),
        }
    }

    pub(super) fn comm(&self) -> &'c Intracomm {
        self.comm
    }

    fn overflow(&self) -> MutexGuard<'_, OverflowSlots> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores an operation that might still be pending.
    #[inline(always)]
    pub(super) fn insert(&self, completion: Completion, about: OpInfo) -> OpSlot {
        if thread_marker() != self.owner {
            return self.keep_far(ScopedOp { completion, about });
        }
        let count = self.count.load(Ordering::Relaxed);
        let at = count % NEAR;
        // If the slot is still occupied, the next operation tries the following one. See `count` for the wrap.
        self.count.store(if count == 2 * NEAR - 1 { NEAR } else { count + 1 }, Ordering::Relaxed);
        if !self.slots.is_free(at) {
            return self.keep_far(ScopedOp { completion, about });
        }
        // SAFETY: only the thread that opened the scope reaches this line, and the slot is free.
        unsafe { self.slots.insert(at, ScopedOp { completion, about }) };
        OpSlot::Inline(at as u32)
    }

    #[cold]
    fn keep_far(&self, open: ScopedOp) -> OpSlot {
        self.went_far.store(true, Ordering::Relaxed);
        let mut far = self.overflow();
        if far.given_up.len() > far.sweep_at {
            self.free_ended(&mut far);
        }
        let at = far.free.pop().unwrap_or_else(|| {
            far.slots.push(None);
            // 2^32 operations would take more memory than there is.
            (far.slots.len() - 1) as u32
        });
        far.slots[at as usize] = Some(open);
        OpSlot::Overflow(at)
    }

    /// Returns the number of slots.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        NEAR + self.overflow().slots.len()
    }

    /// Calls `look` with an operation.
    #[inline(always)]
    fn with<R>(&self, place: &OpSlot, look: impl FnOnce(Option<&ScopedOp>) -> R) -> R {
        match place {
            // SAFETY: invariant 1: the reference to the `OpSlot` permits reading the slot.
            OpSlot::Inline(at) => unsafe { self.slots.see(*at as usize, |open| look(Some(open))) },
            OpSlot::Overflow(at) => look(self.overflow().slots[*at as usize].as_ref()),
        }
    }

    /// Returns the outcome if the operation has completed.
    #[inline(always)]
    pub(super) fn outcome(&self, place: &OpSlot) -> Option<Result<Status>> {
        self.with(place, |open| open.and_then(ScopedOp::outcome))
    }

    /// Returns the description of the operation, for wait reports.
    pub(super) fn about(&self, place: &OpSlot) -> Option<OpInfo> {
        self.with(place, |open| open.map(|open| open.about))
    }

    /// Waits until the operation has completed, and frees its slot.
    #[inline]
    pub(super) fn wait(&self, place: OpSlot) -> Result<Status> {
        // This path is inlined, unlike `settle_later`, so that the outcome of a completed operation is not copied.
        if let Some(outcome) = self.outcome(&place) {
            self.free(place);
            return outcome;
        }
        self.settle_later(place)
    }

    fn settle_later(&self, place: OpSlot) -> Result<Status> {
        let raw = self.comm.as_raw();
        let what = || {
            let about = self.about(&place);
            about.map_or_else(|| WaitReason::call("an operation"), |about| about.wait(raw.p2p()))
        };
        let outcome = raw.engine().wait_for(&mut (), |()| self.outcome(&place), |()| what());
        self.free(place);
        outcome
    }

    /// Cancels a receive that has not matched, and detaches it.
    pub(super) fn cancel_and_detach(&self, place: OpSlot) {
        self.cancel(&place);
        self.detach(place);
    }

    /// Detaches an operation: its slot is freed after it has completed.
    pub(super) fn detach(&self, place: OpSlot) {
        if self.with(&place, has_ended) {
            self.free(place);
        } else {
            self.overflow().given_up.push(place);
        }
    }

    #[inline]
    fn free(&self, place: OpSlot) {
        match place {
            // SAFETY: invariant 1: we own the `OpSlot`, and this consumes it.
            OpSlot::Inline(at) => unsafe { self.slots.free(at as usize) },
            OpSlot::Overflow(at) => self.overflow().free(at),
        }
    }

    /// Frees the slots of detached operations that have completed.
    fn free_ended(&self, far: &mut OverflowSlots) {
        for place in std::mem::take(&mut far.given_up) {
            match place {
                OpSlot::Inline(at) => {
                    // SAFETY: invariant 1: `detach` moved the `OpSlot` into this list, so we own it.
                    let ended = unsafe { self.slots.see(at as usize, |open| has_ended(Some(open))) };
                    if ended { self.free(place) } else { far.given_up.push(place) }
                }
                OpSlot::Overflow(at) if has_ended(far.slots[at as usize].as_ref()) => far.free(at),
                place => far.given_up.push(place),
            }
        }
        // Doubling the limit bounds how often each entry is checked, whatever their number.
        far.sweep_at = 2 * far.given_up.len();
    }

    /// Flushes the coalesced sends of this rank.
    #[inline]
    pub(super) fn flush_held(&self) {
        self.comm.as_raw().engine().flush_coalesced();
    }

    /// Cancels a receive that has not matched; returns whether it was cancelled.
    pub(super) fn cancel(&self, place: &OpSlot) -> bool {
        let raw = self.comm.as_raw();
        self.with(place, |open| {
            open.is_some_and(|open| raw.engine().cancel_receive(raw.p2p(), &open.completion))
        })
    }

    /// Waits until every operation has completed. If the scope has panicked, cancels the unmatched operations first.
    ///
    /// Sends are cancelled, too: their receivers might wait for messages that this rank will not send, because the
    /// panic is reported only after this call.
    ///
    /// # Safety
    /// The scope has ended: no `OpSlot` is used any more.
    pub(super) unsafe fn close(&self, panicked: bool) {
        let raw = self.comm.as_raw();
        let end = |ScopedOp { completion, .. }: ScopedOp| {
            if panicked {
                raw.engine().cancel(raw.p2p(), &completion);
            }
            // A failed operation has completed, too.
            let _ = raw
                .engine()
                .wait_described(Started::Pending(completion), || WaitReason::call("the end of a scope"));
        };
        abort_on_unwind(|| {
            self.flush_held();
            for at in 0..self.count.load(Ordering::Relaxed).min(NEAR) {
                // SAFETY: invariant 1: the scope has ended.
                unsafe { self.slots.take(at) }.into_iter().for_each(end);
            }
            // Only threads inside the scope set the flag, and the scope has ended.
            if self.went_far.load(Ordering::Relaxed) {
                let far = std::mem::take(&mut *self.overflow());
                far.slots.into_iter().flatten().for_each(end);
            }
        });
    }
}

//! The operations of a scope, shared by the scope and its requests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpj_devices::{Completion, Listener, Started, WaitReason, run_deferred_drops, with_deferred_drops};

use super::slots::{self, Slots};
use crate::error::Result;
use crate::raw::{Comm, OpInfo, abort_on_unwind};
use crate::status::Status;

const INLINE_SLOTS: usize = 64;

/// The operations of a scope that might be pending.
///
/// The thread that opened the scope stores each operation in the next inline slot. If that slot is occupied, or if
/// another thread starts the operation, it is stored in a list under a lock. An inline slot needs no locked
/// instruction: on x86, such an instruction waits until other cores see the stores of the messages just sent.
///
/// # Invariants
/// 1. For each occupied inline slot there is at most one [`OpSlot`]. Its owner holds the slot, and every reference
///    to the `OpSlot` permits reading the slot. After the scope has ended, no `OpSlot` is used any more.
#[derive(Debug)]
pub(super) struct ScopeOps<'c> {
    comm: &'c Comm,
    /// The [`thread_marker`] of the thread that opened the scope; this thread also calls [`close`](Self::close).
    owner: usize,
    slots: Slots<'c, ScopedOp, INLINE_SLOTS>,
    /// The number of operations of the owner. It wraps from `2 * INLINE_SLOTS - 1` to `INLINE_SLOTS`, so that `close`
    /// checks only the slots that were tried.
    count: AtomicUsize,
    overflow: Mutex<OverflowSlots>,
    /// Whether an operation was ever stored in `overflow`.
    overflowed: AtomicBool,
}

thread_local! {
    static MARKER: u8 = const { 0 };
}

/// Returns a number that identifies the calling thread while it lives: the address of a thread-local variable.
#[inline]
fn thread_marker() -> usize {
    MARKER.with(|marker| std::ptr::from_ref(marker).addr())
}

pub(super) type InlineMemory = slots::SlotMemory<ScopedOp, INLINE_SLOTS>;

/// An operation that might still be pending.
#[derive(Debug)]
pub(super) struct ScopedOp {
    completion: Completion,
    info: OpInfo,
}

impl ScopedOp {
    #[inline(always)]
    fn outcome(&self, comm: &Comm) -> Option<Result<Status>> {
        self.completion.outcome().map(|outcome| self.info.to_result(comm, outcome))
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
    /// The slots, inline or in this list, of operations that were pending when their request was dropped.
    detached: Vec<OpSlot>,
    /// If `detached` has more slots than this, the next insertion in this list frees those of completed operations.
    sweep_at: usize,
}

impl OverflowSlots {
    fn free(&mut self, at: u32) {
        self.slots[at as usize] = None;
        self.free.push(at);
    }
}

fn is_complete(op: Option<&ScopedOp>) -> bool {
    op.is_none_or(|op| op.completion.outcome().is_some())
}

impl<'c> ScopeOps<'c> {
    #[inline(always)]
    pub(super) fn new(comm: &'c Comm, memory: &'c mut InlineMemory) -> Self {
        ScopeOps {
            comm,
            owner: thread_marker(),
            slots: Slots::new(memory),
            count: AtomicUsize::new(0),
            overflow: Mutex::default(),
            overflowed: AtomicBool::new(false),
        }
    }

    pub(super) fn comm(&self) -> &'c Comm {
        self.comm
    }

    fn overflow(&self) -> MutexGuard<'_, OverflowSlots> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    pub(super) fn insert(&self, completion: Completion, info: OpInfo) -> OpSlot {
        if thread_marker() != self.owner {
            return self.insert_overflow(ScopedOp { completion, info });
        }
        let count = self.count.load(Ordering::Relaxed);
        let at = count % INLINE_SLOTS;
        // Even if the slot is occupied, the next operation tries the following one.
        self.count
            .store(if count == 2 * INLINE_SLOTS - 1 { INLINE_SLOTS } else { count + 1 }, Ordering::Relaxed);
        if !self.slots.is_free(at) {
            return self.insert_overflow(ScopedOp { completion, info });
        }
        // SAFETY: only the thread that opened the scope reaches this line, and the slot is free.
        unsafe { self.slots.insert(at, ScopedOp { completion, info }) };
        OpSlot::Inline(at as u32)
    }

    #[cold]
    fn insert_overflow(&self, op: ScopedOp) -> OpSlot {
        self.overflowed.store(true, Ordering::Relaxed);
        let mut overflow = self.overflow();
        if overflow.detached.len() > overflow.sweep_at {
            self.sweep_completed(&mut overflow);
        }
        let at = overflow.free.pop().unwrap_or_else(|| {
            overflow.slots.push(None);
            // The memory does not suffice for 2^32 operations.
            (overflow.slots.len() - 1) as u32
        });
        overflow.slots[at as usize] = Some(op);
        OpSlot::Overflow(at)
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        INLINE_SLOTS + self.overflow().slots.len()
    }

    #[inline(always)]
    fn with<R>(&self, slot: &OpSlot, f: impl FnOnce(Option<&ScopedOp>) -> R) -> R {
        match slot {
            // SAFETY: invariant 1: the reference to the `OpSlot` permits reading the slot.
            OpSlot::Inline(at) => unsafe { self.slots.with(*at as usize, |op| f(Some(op))) },
            OpSlot::Overflow(at) => f(self.overflow().slots[*at as usize].as_ref()),
        }
    }

    #[inline(always)]
    pub(super) fn outcome(&self, slot: &OpSlot) -> Option<Result<Status>> {
        self.with(slot, |op| op.and_then(|op| op.outcome(self.comm)))
    }

    pub(super) fn info(&self, slot: &OpSlot) -> Option<OpInfo> {
        self.with(slot, |op| op.map(|op| op.info))
    }

    /// As [`with`](Self::with), for an access that can wake a task. The wake-up happens after the lock was released.
    fn with_wakes<R>(&self, slot: &OpSlot, f: impl FnOnce(Option<&ScopedOp>) -> R) -> R {
        let value = with_deferred_drops(|| self.with(slot, f));
        run_deferred_drops();
        value
    }

    pub(super) fn listen(&self, slot: &OpSlot, listener: Listener) {
        self.with_wakes(slot, |op| match op {
            Some(op) => op.completion.listen(listener),
            None => listener.notify(),
        });
    }

    pub(super) fn is_listening(&self, slot: &OpSlot) -> bool {
        self.with(slot, |op| op.is_some_and(|op| op.completion.is_listening()))
    }

    /// Waits until the operation has completed, and frees its slot.
    #[inline]
    pub(super) fn wait(&self, slot: OpSlot) -> Result<Status> {
        // Inlined, so that the outcome of a completed operation is not copied.
        if let Some(outcome) = self.outcome(&slot) {
            self.free(slot);
            return outcome;
        }
        self.wait_slow(slot)
    }

    fn wait_slow(&self, slot: OpSlot) -> Result<Status> {
        let raw = self.comm;
        let what = || {
            let info = self.info(&slot);
            info.map_or_else(|| WaitReason::call("an operation"), |info| info.wait_reason(raw.p2p()))
        };
        let outcome = raw.engine().wait_for(&mut (), |()| self.outcome(&slot), |()| what());
        self.free(slot);
        outcome
    }

    pub(super) fn cancel_and_detach(&self, slot: OpSlot) {
        self.cancel(&slot);
        self.detach(slot);
    }

    /// Detaches an operation: its slot is freed after the operation has completed.
    pub(super) fn detach(&self, slot: OpSlot) {
        if self.with(&slot, is_complete) {
            self.free(slot);
        } else {
            self.overflow().detached.push(slot);
        }
    }

    #[inline]
    fn free(&self, slot: OpSlot) {
        match slot {
            // SAFETY: invariant 1: we own the `OpSlot`, and this consumes it.
            OpSlot::Inline(at) => unsafe { self.slots.remove(at as usize) },
            OpSlot::Overflow(at) => self.overflow().free(at),
        }
    }

    /// Frees the slots of detached operations that have completed.
    fn sweep_completed(&self, overflow: &mut OverflowSlots) {
        for slot in std::mem::take(&mut overflow.detached) {
            match slot {
                OpSlot::Inline(at) => {
                    // SAFETY: invariant 1: `detach` moved the `OpSlot` into this list, so we own it.
                    let complete = unsafe { self.slots.with(at as usize, |op| is_complete(Some(op))) };
                    if complete { self.free(slot) } else { overflow.detached.push(slot) }
                }
                OpSlot::Overflow(at) if is_complete(overflow.slots[at as usize].as_ref()) => {
                    overflow.free(at)
                }
                slot => overflow.detached.push(slot),
            }
        }
        // Doubling the limit bounds the average number of checks of each entry.
        overflow.sweep_at = 2 * overflow.detached.len();
    }

    #[inline]
    pub(super) fn flush_coalesced(&self) {
        self.comm.engine().flush_coalesced();
    }

    /// Cancels a receive that has not matched; returns whether it was cancelled.
    pub(super) fn cancel(&self, slot: &OpSlot) -> bool {
        let raw = self.comm;
        let cancel = |op: &ScopedOp| raw.engine().cancel_receive(raw.p2p(), &op.completion);
        self.with_wakes(slot, |op| op.is_some_and(cancel))
    }

    /// Waits for each operation. If the scope has panicked, first cancels that operation if it is unmatched.
    ///
    /// Sends are cancelled, too. Otherwise this call might wait for a receiver that first waits for another message,
    /// which this rank will not send. The panic is reported only after this call.
    ///
    /// # Safety
    /// The scope has ended: no `OpSlot` is used any more.
    pub(super) unsafe fn close(&self, panicked: bool) {
        let raw = self.comm;
        let cancel_and_wait = |ScopedOp { completion, .. }: ScopedOp| {
            if panicked {
                raw.engine().cancel(raw.p2p(), &completion);
            }
            let _ = raw
                .engine()
                .wait_described(Started::Pending(completion), || WaitReason::call("the end of a scope"));
        };
        abort_on_unwind(|| {
            self.flush_coalesced();
            for at in 0..self.count.load(Ordering::Relaxed).min(INLINE_SLOTS) {
                // SAFETY: invariant 1: the scope has ended.
                unsafe { self.slots.take(at) }.into_iter().for_each(cancel_and_wait);
            }
            // Relaxed suffices: only threads inside the scope set the flag, and the scope has ended.
            if self.overflowed.load(Ordering::Relaxed) {
                let overflow = std::mem::take(&mut *self.overflow());
                overflow.slots.into_iter().flatten().for_each(cancel_and_wait);
            }
        });
    }
}

//! What a scope and its requests share: the operations that the scope has to see end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpj_devices::{Completion, Started, WaitReason};

use super::slots::{self, Slots};
use crate::comm::Intracomm;
use crate::error::Result;
use crate::raw::OpInfo;
use crate::raw::abort_on_unwind;
use crate::status::Status;

/// Operations kept without a lock.
const NEAR: usize = 64;

/// The operations of a scope that have not been waited for.
///
/// A new operation of the thread that has opened the scope tries the place after the last one's: in a window of up to
/// [`NEAR`] operations it is free. If it is not, the operation goes to a list under a lock, as those of other threads do.
///
/// A scope of few operations costs no more than they do: only the places that they have come to are looked at in the end,
/// and there is no locked instruction, which would wait until the messages just sent have reached the other core.
///
/// # Invariants
/// 1. For each place of `near` that is held there is at most one [`Place`]: whoever has it is the holder, and lends the
///    right to look with every reference to it. When the scope has ended, no place is used any more.
#[derive(Debug)]
pub(super) struct ScopeOps<'c> {
    comm: &'c Intracomm,
    /// Which thread has opened the scope, and is in it until the desk is closed.
    owner: usize,
    near: Slots<'c, ScopedOp, NEAR>,
    /// How many operations of the owner there were, less whole rounds through the places but the first.
    count: AtomicUsize,
    far: Mutex<OverflowSlots>,
    /// Whether an operation was ever kept in `overflow`.
    went_far: AtomicBool,
}

thread_local! {
    static MARK: u8 = const { 0 };
}

/// Returns a number that no other thread has while this one lives: where something of its own lies.
#[inline]
fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// Where the operations lie that are kept without a lock.
pub(super) type Room = slots::Room<ScopedOp, NEAR>;

/// An operation that may not have ended.
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

/// Where an operation is kept; its holder alone may take it away.
#[derive(Debug)]
pub(super) enum OpSlot {
    Inline(u32),
    Overflow(u32),
}

#[derive(Debug, Default)]
struct OverflowSlots {
    slots: Vec<Option<ScopedOp>>,
    free: Vec<u32>,
    /// Places of operations, here and near, that nobody waits for and that had not ended.
    given_up: Vec<OpSlot>,
    /// How many of those there are when they are looked through again.
    many: usize,
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
            owner: this_thread(),
            near: Slots::new(room),
            count: AtomicUsize::new(0),
            far: Mutex::default(),
            went_far: AtomicBool::new(false),
        }
    }

    pub(super) fn comm(&self) -> &'c Intracomm {
        self.comm
    }

    fn overflow(&self) -> MutexGuard<'_, OverflowSlots> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an operation that may not have ended.
    #[inline(always)]
    pub(super) fn insert(&self, completion: Completion, about: OpInfo) -> OpSlot {
        if this_thread() != self.owner {
            return self.keep_far(ScopedOp { completion, about });
        }
        let count = self.count.load(Ordering::Relaxed);
        let at = count % NEAR;
        // One that is held for long is not waited for. Once all places have been come to, the count says so for ever.
        self.count.store(if count == 2 * NEAR - 1 { NEAR } else { count + 1 }, Ordering::Relaxed);
        if !self.near.is_free(at) {
            return self.keep_far(ScopedOp { completion, about });
        }
        // SAFETY: one thread alone comes here, that which has opened the scope, and the place is free.
        unsafe { self.near.hold(at, ScopedOp { completion, about }) };
        OpSlot::Inline(at as u32)
    }

    #[cold]
    fn keep_far(&self, open: ScopedOp) -> OpSlot {
        self.went_far.store(true, Ordering::Relaxed);
        let mut far = self.overflow();
        if far.given_up.len() > far.many {
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

    /// Returns how many places there are.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        NEAR + self.overflow().slots.len()
    }

    /// Lets `look` see an operation.
    #[inline(always)]
    fn see<R>(&self, place: &OpSlot, look: impl FnOnce(Option<&ScopedOp>) -> R) -> R {
        match place {
            // SAFETY: invariant 1: by the place.
            OpSlot::Inline(at) => unsafe { self.near.see(*at as usize, |open| look(Some(open))) },
            OpSlot::Overflow(at) => look(self.overflow().slots[*at as usize].as_ref()),
        }
    }

    /// Returns the outcome if the operation has ended.
    #[inline(always)]
    pub(super) fn outcome(&self, place: &OpSlot) -> Option<Result<Status>> {
        self.see(place, |open| open.and_then(ScopedOp::outcome))
    }

    /// What a thread waits for that waits for the operation.
    pub(super) fn about(&self, place: &OpSlot) -> Option<OpInfo> {
        self.see(place, |open| open.map(|open| open.about))
    }

    /// Waits until the operation has ended, and forgets it.
    #[inline]
    pub(super) fn wait(&self, place: OpSlot) -> Result<Status> {
        // Inlined, unlike what follows: the outcome of one that has ended is not copied from place to place.
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

    /// Takes a receive back if it has not matched, and gives its place up.
    pub(super) fn cancel_and_detach(&self, place: OpSlot) {
        self.cancel(&place);
        self.detach(place);
    }

    /// Gives a place up without waiting for its operation: it is freed when that has ended.
    pub(super) fn detach(&self, place: OpSlot) {
        if self.see(&place, has_ended) {
            self.free(place);
        } else {
            self.overflow().given_up.push(place);
        }
    }

    #[inline]
    fn free(&self, place: OpSlot) {
        match place {
            // SAFETY: invariant 1: the place is ours, and used up.
            OpSlot::Inline(at) => unsafe { self.near.free(at as usize) },
            OpSlot::Overflow(at) => self.overflow().free(at),
        }
    }

    /// Frees the places that were given up, of operations that have ended by now.
    fn free_ended(&self, far: &mut OverflowSlots) {
        for place in std::mem::take(&mut far.given_up) {
            match place {
                // SAFETY: invariant 1: who gave the place up has passed it on.
                OpSlot::Inline(at) if unsafe { self.near.see(at as usize, |open| has_ended(Some(open))) } => {
                    self.free(place);
                }
                OpSlot::Overflow(at) if has_ended(far.slots[at as usize].as_ref()) => far.free(at),
                place => far.given_up.push(place),
            }
        }
        // So that each is looked at a few times, however many there are.
        far.many = 2 * far.given_up.len();
    }

    /// Has what is held back of the sends of this rank leave now.
    #[inline]
    pub(super) fn flush_held(&self) {
        self.comm.as_raw().engine().flush_coalesced();
    }

    /// Takes a receive back if it has not matched.
    pub(super) fn cancel(&self, place: &OpSlot) -> bool {
        let raw = self.comm.as_raw();
        self.see(place, |open| {
            open.is_some_and(|open| raw.engine().cancel_receive(raw.p2p(), &open.completion))
        })
    }

    /// Waits until every operation has ended; if the scope has panicked, takes back what has not matched, sends too: those
    /// who would receive them may be waiting for something that will not come, as the panic is told to nobody before.
    ///
    /// # Safety
    /// The scope has ended: no place is used any more.
    pub(super) unsafe fn close(&self, panicked: bool) {
        let raw = self.comm.as_raw();
        let end = |ScopedOp { completion, .. }: ScopedOp| {
            if panicked {
                raw.engine().cancel(raw.p2p(), &completion);
            }
            // Whatever it failed with, it has ended.
            let _ = raw
                .engine()
                .wait_described(Started::Pending(completion), || WaitReason::call("the end of a scope"));
        };
        abort_on_unwind(|| {
            self.flush_held();
            for at in 0..self.count.load(Ordering::Relaxed).min(NEAR) {
                // SAFETY: invariant 1: the scope has ended.
                unsafe { self.near.take(at) }.into_iter().for_each(end);
            }
            // Whoever set it was in the scope, which has ended.
            if self.went_far.load(Ordering::Relaxed) {
                let far = std::mem::take(&mut *self.overflow());
                far.slots.into_iter().flatten().for_each(end);
            }
        });
    }
}

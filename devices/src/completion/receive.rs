//! Receives. The node of the operation contains the description of the memory to receive into.

use std::fmt;
use std::mem::ManuallyDrop;

use super::{Completer, Completion, Outcome, pair};
use crate::buf::{Buf, BufError};
use crate::data_path::DataPath;
use crate::message::{Envelope, KeepAlive, Target};

/// The [`Completer`] of a receive. The target to receive into is in the node until the completion or
/// [`into_parts`](Self::into_parts), so a move of this handle does not move the target.
pub(crate) struct RecvCompleter(Completer);

/// A receive that is not posted yet.
#[derive(Debug)]
pub struct Receive {
    pub(crate) receiving: RecvCompleter,
    pub(crate) completion: Completion,
}

impl Receive {
    /// Creates a receive into the memory that `buf` describes, by `path` if one is given.
    ///
    /// # Errors
    /// As [`Target::new`].
    ///
    /// # Safety
    /// As [`Target::new`].
    #[inline(always)]
    pub unsafe fn of(buf: Buf, keep: Option<KeepAlive>, path: Option<DataPath>) -> Result<Self, BufError> {
        match buf.plain_bytes() {
            Some(bytes) => {
                // SAFETY: `with` passes a place that is valid for writes; the invariants are the caller's promise.
                Ok(Receive::with(|place| unsafe { Target::write_at(place, buf, bytes, path, keep) }))
            }
            // SAFETY: the caller's promise.
            None => unsafe { Self::of_any(buf, keep, path) },
        }
    }

    /// # Safety
    /// As [`of`](Self::of).
    unsafe fn of_any(buf: Buf, keep: Option<KeepAlive>, path: Option<DataPath>) -> Result<Self, BufError> {
        // SAFETY: the caller's promise.
        let target = unsafe { Target::new(buf, keep)? };
        Ok(Receive::new(target.with_path(path)))
    }

    /// Creates a receive into this target.
    pub fn new(target: Target) -> Self {
        // SAFETY: `with` passes a place that is valid for writes.
        Receive::with(|place| unsafe { place.write(target) })
    }

    #[inline(always)]
    fn with(put: impl FnOnce(*mut Target)) -> Self {
        let (completer, completion) = pair();
        // SAFETY: the node lives until both handles are gone.
        let place = unsafe { &completer.0.as_ref().target };
        // By invariant 3 of the node the place is unused.
        place.with_mut(|place| put(place.cast()));
        Receive { receiving: RecvCompleter(completer), completion }
    }
}

impl RecvCompleter {
    #[inline]
    pub(crate) fn target(&mut self) -> &mut Target {
        // SAFETY: the node lives until both handles are gone.
        let node = unsafe { self.0.0.as_ref() };
        // SAFETY: invariant 3 of the node.
        node.target.with_mut(|target| unsafe { &mut *target.cast::<Target>() })
    }

    /// Drops the target, and then completes the receive.
    #[inline]
    pub(crate) fn complete(self, outcome: Outcome) {
        let mut this = ManuallyDrop::new(self);
        // If the destructor of the memory's owner panics, the receive fails with `Fault::Cancelled`.
        let completer = Completer(this.0.0);
        this.drop_target();
        completer.complete(outcome);
    }

    /// Drops the target, and then completes the receive with a message that has arrived.
    #[inline]
    pub(crate) fn complete_with(self, message: &Envelope) {
        let mut this = ManuallyDrop::new(self);
        let completer = Completer(this.0.0);
        this.drop_target();
        ManuallyDrop::new(completer).store(|| Ok(message.fields()));
    }

    pub(crate) fn into_parts(self) -> (Target, Completer) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the node lives until both handles are gone.
        let node = unsafe { this.0.0.as_ref() };
        // SAFETY: invariant 3 of the node: the target exists, and this copy of it is not used any more.
        let target = node.target.with_mut(|target| unsafe { target.cast::<Target>().read() });
        (target, Completer(this.0.0))
    }

    pub(crate) fn is_for(&self, completion: &Completion) -> bool {
        self.0.is_for(completion)
    }

    pub(crate) fn id(&self) -> usize {
        self.0.id()
    }

    /// Drops the target. It is called once, before the outcome is stored.
    #[inline]
    fn drop_target(&mut self) {
        let target = self.target();
        if !target.is_trivial_drop() {
            // SAFETY: invariant 3 of the node.
            unsafe { std::ptr::drop_in_place(target) };
        }
    }
}

impl Drop for RecvCompleter {
    fn drop(&mut self) {
        self.drop_target();
        // The drop of the completer, which follows, fails the receive with `Fault::Cancelled`.
    }
}

impl fmt::Debug for RecvCompleter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvCompleter")
    }
}

//! Receives: the memory to receive into is described in the node of the operation.

use std::fmt;
use std::mem::ManuallyDrop;

use super::{Completer, Completion, Outcome, pair};
use crate::buf::{Buf, BufError};
use crate::data_path::DataPath;
use crate::message::{Envelope, KeepAlive, Target};

/// The [`Completer`] of a receive, with the target to receive into. The target is in the node from the start of the
/// receive to its completion, and is not moved with the handle.
pub(crate) struct RecvCompleter(Completer);

/// A receive that is not posted yet.
#[derive(Debug)]
pub struct Receive {
    pub(crate) receiving: RecvCompleter,
    pub(crate) completion: Completion,
}

impl Receive {
    /// Creates a receive into the memory that `buf` describes, by `path` if one is given. A target of contiguous
    /// primitives is written in place, field by field.
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
                // SAFETY: a target may be written at the place.
                Ok(Receive::with(|place| unsafe { Target::put(place, buf, bytes, path, keep) }))
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
        Ok(Receive::new(target.by(path)))
    }

    /// Creates a receive into this target.
    pub fn new(target: Target) -> Self {
        // SAFETY: a target may be written at the place.
        Receive::with(|place| unsafe { place.write(target) })
    }

    /// Creates a receive whose target `put` writes at the given address.
    #[inline(always)]
    fn with(put: impl FnOnce(*mut Target)) -> Self {
        let (ender, completion) = pair();
        // SAFETY: the node lives until both handles are gone.
        let place = unsafe { &ender.0.as_ref().target };
        // By invariant 3 of the node the place is unused.
        place.with_mut(|place| put(place.cast()));
        Receive { receiving: RecvCompleter(ender), completion }
    }
}

impl RecvCompleter {
    /// Returns the target to receive into.
    #[inline]
    pub(crate) fn target(&mut self) -> &mut Target {
        // SAFETY: the node lives until both handles are gone.
        let node = unsafe { self.0.0.as_ref() };
        // SAFETY: invariant 3 of the node.
        node.target.with_mut(|target| unsafe { &mut *target.cast::<Target>() })
    }

    /// Completes the receive. The target is dropped before.
    #[inline]
    pub(crate) fn end(self, outcome: Outcome) {
        let mut parted = ManuallyDrop::new(self);
        // The owner of the memory may panic in its destructor: the receive then fails with [`Fault::Cancelled`].
        let ender = Completer(parted.0.0);
        parted.drop_target();
        ender.complete(outcome);
    }

    /// Completes the receive with a message that has arrived. The target is dropped before.
    #[inline]
    pub(crate) fn complete_with(self, message: &Envelope) {
        let mut parted = ManuallyDrop::new(self);
        let ender = Completer(parted.0.0);
        parted.drop_target();
        ManuallyDrop::new(ender).put(|| Ok(message.fields()));
    }

    /// Separates the target from the completer.
    pub(crate) fn into_parts(self) -> (Target, Completer) {
        let parted = ManuallyDrop::new(self);
        // SAFETY: the node lives until both handles are gone.
        let node = unsafe { parted.0.0.as_ref() };
        // SAFETY: invariant 3 of the node: the target exists, and is not used from now on.
        let target = node.target.with_mut(|target| unsafe { target.cast::<Target>().read() });
        (target, Completer(parted.0.0))
    }

    /// Returns whether `completion` belongs to the same operation.
    pub(crate) fn ends(&self, completion: &Completion) -> bool {
        self.0.is_for(completion)
    }

    /// Returns the same number as the other handle.
    pub(crate) fn id(&self) -> usize {
        self.0.id()
    }

    /// Drops the target, before the outcome is stored and only once.
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
        // Dropping the completer completes the receive as cancelled.
    }
}

impl fmt::Debug for RecvCompleter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiving")
    }
}

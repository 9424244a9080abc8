//! Receives: the memory to receive into lies in the node of the operation.

use std::fmt;
use std::mem::ManuallyDrop;

use super::{Completer, Completion, Outcome, pair};
use crate::buf::{Buf, BufError};
use crate::layout::{Envelope, KeepAlive, Target};
use crate::path::DataPath;

/// The [`Completer`] of a receive, with the memory to receive into: it lies in the node from the start of the receive to its
/// end, and is not moved as the receive goes from hand to hand.
pub(crate) struct RecvCompleter(Completer);

/// A receive that is not posted yet.
#[derive(Debug)]
pub struct Receive {
    pub(crate) receiving: RecvCompleter,
    pub(crate) completion: Completion,
}

impl Receive {
    /// Makes a receive into what `buf` describes, by this way if one is given. Primitives in a row are written down where they
    /// stay, field by field.
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

    /// Makes a receive into this memory, which is not moved from now on.
    pub fn new(target: Target) -> Self {
        // SAFETY: a target may be written at the place.
        Receive::with(|place| unsafe { place.write(target) })
    }

    /// Makes a receive into memory that `put` writes down, where nobody else does.
    #[inline(always)]
    fn with(put: impl FnOnce(*mut Target)) -> Self {
        let (ender, completion) = pair();
        // SAFETY: the node lives until both handles are gone.
        let place = unsafe { &ender.0.as_ref().target };
        // By invariant 3 of the node nobody uses the place.
        place.with_mut(|place| put(place.cast()));
        Receive { receiving: RecvCompleter(ender), completion }
    }
}

impl RecvCompleter {
    /// Returns the memory to receive into.
    #[inline]
    pub(crate) fn target(&mut self) -> &mut Target {
        // SAFETY: the node lives until both handles are gone.
        let node = unsafe { self.0.0.as_ref() };
        // SAFETY: invariant 3 of the node.
        node.target.with_mut(|target| unsafe { &mut *target.cast::<Target>() })
    }

    /// Ends the receive. The memory is given back before.
    #[inline]
    pub(crate) fn end(self, outcome: Outcome) {
        let mut parted = ManuallyDrop::new(self);
        // Whoever holds the memory may panic when it is let go of: the receive ends as abandoned then.
        let ender = Completer(parted.0.0);
        parted.drop_target();
        ender.complete(outcome);
    }

    /// Ends the receive with a message that has landed. The memory is given back before.
    #[inline]
    pub(crate) fn complete_with(self, message: &Envelope) {
        let mut parted = ManuallyDrop::new(self);
        let ender = Completer(parted.0.0);
        parted.drop_target();
        ManuallyDrop::new(ender).put(|| Ok(message.fields()));
    }

    /// Takes the memory out.
    pub(crate) fn into_parts(self) -> (Target, Completer) {
        let parted = ManuallyDrop::new(self);
        // SAFETY: the node lives until both handles are gone.
        let node = unsafe { parted.0.0.as_ref() };
        // SAFETY: invariant 3 of the node: it is there, and not used from now on.
        let target = node.target.with_mut(|target| unsafe { target.cast::<Target>().read() });
        (target, Completer(parted.0.0))
    }

    /// Whether `completion` is the other handle.
    pub(crate) fn ends(&self, completion: &Completion) -> bool {
        self.0.is_for(completion)
    }

    /// Returns the number that the other handle has, too.
    pub(crate) fn id(&self) -> usize {
        self.0.id()
    }

    /// Drops the memory, before the node is put down and never again.
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
        // The ender ends the receive as abandoned.
    }
}

impl fmt::Debug for RecvCompleter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiving")
    }
}

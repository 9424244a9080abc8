//! Registered memory in pieces of one length: what messages are sent from and received into.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

use mpj_pool::{Heap, Storage};

use super::verbs::{Domain, Mr, Piece, Place, Use};

/// So many slots of so many bytes, known to the device.
///
/// Who posts a slot owns it no more until its completion has come. That is not checked here: the calls that touch bytes are
/// unsafe.
#[derive(Debug)]
pub(super) struct Slots {
    // Given back before the memory.
    mr: Mr,
    memory: Heap,
    len: usize,
    count: usize,
}

impl Slots {
    pub(super) fn new(domain: &Arc<Domain>, count: usize, len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(64);
        let memory = Heap::create(count * len).map_err(io::Error::other)?;
        // SAFETY: the memory is there for longer than the registration, which is dropped before it.
        let mr = unsafe { Mr::new(domain, memory.base().as_ptr(), count * len, Use::Write) }?;
        Ok(Slots { mr, memory, len, count })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn base(&self, at: usize) -> *mut u8 {
        assert!(at < self.count, "a slot that there is");
        self.memory.base().as_ptr().wrapping_add(at * self.len)
    }

    /// Returns the bytes of a slot, to be written.
    ///
    /// # Safety
    /// The slot is the caller's: neither is it posted, nor used by another.
    pub(super) unsafe fn room(&mut self, at: usize) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the bytes lie in the memory, and are the caller's for as long as the borrow.
        unsafe { std::slice::from_raw_parts_mut(self.base(at).cast(), self.len) }
    }

    /// Returns the first bytes of a slot that a message has come into.
    ///
    /// # Safety
    /// The device has written so many, and the slot is the caller's.
    pub(super) unsafe fn message(&self, at: usize, len: usize) -> &[u8] {
        let len = len.min(self.len);
        // SAFETY: the bytes lie in the memory, were written, and are the caller's for as long as the borrow.
        unsafe { std::slice::from_raw_parts(self.base(at), len) }
    }

    /// Names the first bytes of a slot, to be sent.
    ///
    /// # Panics
    /// If the slot is shorter: the bytes after it are another message's. Callers have filled that many bytes of its
    /// [`room`](Self::room).
    pub(super) fn piece(&self, at: usize, len: usize) -> Piece {
        assert!(len <= self.len, "a message fits in a slot");
        Piece::Registered(self.base(at), len as u32, self.mr.lkey())
    }

    /// Names a slot, to be received into; its completion carries `id`.
    pub(super) fn place(&self, at: usize, id: u64) -> Place {
        Place {
            id,
            addr: self.base(at).expose_provenance() as u64,
            len: self.len as u32,
            lkey: self.mr.lkey(),
        }
    }
}

//! Slots: registered memory in pieces of equal length, for messages.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

use mpj_pool::{Heap, Storage};

use super::verbs::{Mr, MrAccess, ProtectionDomain, RecvSge, SendSge};

/// `count` slots of `len` bytes in one registration.
///
/// From its post to its completion, a slot belongs to the device. The type does not check that, so the methods that
/// access the bytes are unsafe.
#[derive(Debug)]
pub(super) struct Slots {
    // Dropped before the memory.
    mr: Mr,
    memory: Heap,
    len: usize,
    count: usize,
}

impl Slots {
    pub(super) fn new(domain: &Arc<ProtectionDomain>, count: usize, len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(64);
        let memory = Heap::create(count * len).map_err(io::Error::other)?;
        // SAFETY: the memory outlives the registration, which is dropped before it.
        let mr = unsafe { Mr::new(domain, memory.base().as_ptr(), count * len, MrAccess::Write) }?;
        Ok(Slots { mr, memory, len, count })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn base(&self, at: usize) -> *mut u8 {
        assert!(at < self.count, "slot {at} of {}", self.count);
        self.memory.base().as_ptr().wrapping_add(at * self.len)
    }

    /// Returns the bytes of a slot, for writing.
    ///
    /// # Safety
    /// The slot belongs to the caller: it is not posted, and no other code uses it.
    pub(super) unsafe fn bytes_mut(&mut self, at: usize) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the bytes are within the memory, and belong to the caller for as long as the borrow.
        unsafe { std::slice::from_raw_parts_mut(self.base(at).cast(), self.len) }
    }

    /// Returns the first `len` bytes of a slot, which hold a received message.
    ///
    /// # Safety
    /// The device has written that many bytes, and the slot belongs to the caller.
    pub(super) unsafe fn message(&self, at: usize, len: usize) -> &[u8] {
        let len = len.min(self.len);
        // SAFETY: the bytes are within the memory, were written, and belong to the caller for as long as the borrow.
        unsafe { std::slice::from_raw_parts(self.base(at), len) }
    }

    /// Returns the descriptor for sending the first `len` bytes of a slot.
    ///
    /// # Panics
    /// If the slot is shorter than `len`. Otherwise the message would contain bytes of the next slot.
    pub(super) fn send_sge(&self, at: usize, len: usize) -> SendSge {
        assert!(len <= self.len, "a message fits in a slot");
        SendSge::Registered(self.base(at), len as u32, self.mr.lkey())
    }

    /// Returns the descriptor for receiving into a slot. The completion carries `id`.
    pub(super) fn recv_sge(&self, at: usize, id: u64) -> RecvSge {
        RecvSge {
            id,
            addr: self.base(at).expose_provenance() as u64,
            len: self.len as u32,
            lkey: self.mr.lkey(),
        }
    }
}

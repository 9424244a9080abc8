//! Completion queues with their event channel, and shared receive queues.

use core::ffi::c_int;
use core::ptr::{self, NonNull};
use std::fmt;
use std::io;
use std::sync::Arc;

use super::abi::{self, Wc};
use super::context::{Context, check, non_null};
use super::mr::ProtectionDomain;
use crate::sys::{self, BorrowedFd};

/// The maximum number of receives that one call posts, and of completions that the inlet polls in one call.
pub(crate) const BATCH: usize = 64;

pub(crate) struct CompletionQueue {
    raw: NonNull<abi::Cq>,
    channel: NonNull<abi::CompChannel>,
    context: Arc<Context>,
}

// SAFETY: any thread may use the objects of the library, and several threads may do so at once.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for `Send`.
unsafe impl Sync for CompletionQueue {}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionQueue({})", self.context.name())
    }
}

impl CompletionQueue {
    /// Creates a queue with space for `room` completions.
    pub(crate) fn new(context: &Arc<Context>, room: usize) -> io::Result<Arc<Self>> {
        let room = c_int::try_from(room).map_err(io::Error::other)?;
        let functions = context.functions;
        // SAFETY: the context is open.
        let channel = non_null(unsafe { (functions.create_comp_channel)(context.raw.as_ptr()) })?;
        // SAFETY: the context is open, and the channel belongs to it.
        let queue = non_null(unsafe {
            (functions.create_cq)(context.raw.as_ptr(), room, ptr::null_mut(), channel.as_ptr(), 0)
        });
        let raw = queue.inspect_err(|_| {
            // SAFETY: the channel was made above, and nothing uses it.
            unsafe { (functions.destroy_comp_channel)(channel.as_ptr()) };
        })?;
        let queue = CompletionQueue { raw, channel, context: Arc::clone(context) };
        let channel = queue.descriptor().ok_or(io::ErrorKind::Unsupported)?;
        sys::set_nonblocking(channel)?;
        Ok(Arc::new(queue))
    }

    pub(super) fn raw(&self) -> *mut abi::Cq {
        self.raw.as_ptr()
    }

    /// Removes the oldest completions and writes them to `room`. Returns their number.
    #[inline]
    pub(crate) fn poll(&self, room: &mut [Wc]) -> usize {
        // SAFETY: the context is open.
        let poll = unsafe { self.context.raw.as_ref() }.ops.poll_cq;
        let most = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
        // SAFETY: `room` has space for `most` completions.
        let count = unsafe { poll(self.raw.as_ptr(), most, room.as_mut_ptr()) };
        // An error means that the queue is broken and returns no further completion.
        usize::try_from(count).unwrap_or(0)
    }

    /// Makes the descriptor readable when the next completion arrives, and unreadable until then.
    pub(crate) fn arm(&self) {
        let functions = self.context.functions;
        let (mut queue, mut owner) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the two pointers are valid for writes; the descriptor does not block.
        while unsafe { (functions.get_cq_event)(self.channel.as_ptr(), &mut queue, &mut owner) } == 0 {
            // SAFETY: the event was received, and is acknowledged once.
            unsafe { (functions.ack_cq_events)(queue, 1) };
        }
        // SAFETY: the context is open.
        let notify = unsafe { self.context.raw.as_ref() }.ops.req_notify_cq;
        // SAFETY: the queue belongs to the context. If the call fails, a sleeping rank wakes later.
        unsafe { notify(self.raw.as_ptr(), 0) };
    }

    /// Returns a descriptor that is readable when a completion has arrived since [`arm`](Self::arm), or `None` if the
    /// library has none.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the channel lives as long as the queue.
        let channel = unsafe { self.channel.as_ref() };
        // SAFETY: the channel's descriptor is open for as long.
        unsafe { sys::borrow_fd(channel.fd) }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let functions = self.context.functions;
        // SAFETY: the queue pairs that use it hold it, so they have been destroyed.
        unsafe { (functions.destroy_cq)(self.raw.as_ptr()) };
        // SAFETY: its queue has been destroyed.
        unsafe { (functions.destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

pub(crate) struct SharedReceiveQueue {
    raw: NonNull<abi::Srq>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: any thread may use the objects of the library, and several threads may do so at once.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedReceiveQueue {}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedReceiveQueue({})", self.domain.context().name())
    }
}

/// The memory of one receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvSge {
    /// The id that its completion carries.
    pub(crate) id: u64,
    /// The address of the first byte, whose provenance is exposed.
    pub(crate) addr: u64,
    pub(crate) len: u32,
    /// The local key of its registration.
    pub(crate) lkey: u32,
}

impl SharedReceiveQueue {
    /// Creates a queue with space for `room` receives.
    pub(crate) fn new(domain: &Arc<ProtectionDomain>, room: usize) -> io::Result<Arc<Self>> {
        let max_wr = u32::try_from(room).map_err(io::Error::other)?;
        let attr = abi::SrqAttr { max_wr, max_sge: 1, limit: 0 };
        let mut init = abi::SrqInitAttr { owner: ptr::null_mut(), attr };
        let functions = domain.context().functions;
        // SAFETY: the domain belongs to an open context.
        let raw = non_null(unsafe { (functions.create_srq)(domain.raw.as_ptr(), &mut init) })?;
        Ok(Arc::new(SharedReceiveQueue { raw, domain: Arc::clone(domain) }))
    }

    pub(super) fn raw(&self) -> *mut abi::Srq {
        self.raw.as_ptr()
    }

    /// Posts receives in order, at most [`BATCH`].
    ///
    /// # Safety
    /// The memory stays valid, and nothing else accesses it, until the completion with its id has come, or the queue
    /// and all its queue pairs are destroyed.
    pub(crate) unsafe fn post(&self, places: &[RecvSge]) -> io::Result<()> {
        // SAFETY: the queue exists as long as this value.
        let queue = unsafe { self.raw.as_ref() };
        // SAFETY: its context is open.
        let post = unsafe { &*queue.context }.ops.post_srq_recv;
        // SAFETY: the list is valid during the call; the caller's promise for the memory.
        with_list(places, |list| unsafe { post(self.raw.as_ptr(), list, &mut ptr::null_mut()) })
    }
}

/// Calls `post` with a linked list of receives, which is valid during the call.
pub(super) fn with_list(places: &[RecvSge], post: impl FnOnce(*mut abi::RecvWr) -> c_int) -> io::Result<()> {
    assert!(places.len() <= BATCH, "receives fit in one call");
    if places.is_empty() {
        return Ok(());
    }
    let mut pieces = [abi::Sge::default(); BATCH];
    let empty = || abi::RecvWr { id: 0, next: ptr::null_mut(), list: ptr::null_mut(), count: 1 };
    let mut requests: [abi::RecvWr; BATCH] = std::array::from_fn(|_| empty());
    let mut next = ptr::null_mut();
    for ((place, piece), request) in places.iter().zip(&mut pieces).zip(&mut requests).rev() {
        *piece = abi::Sge { addr: place.addr, length: place.len, lkey: place.lkey };
        (request.id, request.next, request.list) = (place.id, next, ptr::from_mut(piece));
        next = ptr::from_mut(request);
    }
    check(post(next))
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: the queue pairs that use it hold it, so they have been destroyed.
        unsafe { (self.domain.context().functions.destroy_srq)(self.raw.as_ptr()) };
    }
}

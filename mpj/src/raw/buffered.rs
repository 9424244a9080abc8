//! Buffered sends: the message is copied, and the call returns without waiting for the receiver.
//!
//! ```text
//!   attach ──► [ capacity | used ] ──► bsend: reserve, copy into a pool block, start the send
//!                                      send complete: the next call that needs space releases its share
//!   detach ◄── waits until all copies were sent
//! ```
//! The copies are in pool blocks, and not in memory of the caller. The buffer only counts: a pending message uses its
//! packed size and [`BSEND_OVERHEAD`] bytes. A communicator without a buffer uses that of the world.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::{Buf, Channel, Coalesce, Completion, Engine, Sent, WaitReason};

use super::PROC_NULL;
use super::comm::Comm;
use super::p2p::send_copy;
use super::packed_copy::PackedCopy;
use super::request::{OpInfo, Request};
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;

/// The number of bytes that a buffered message uses in addition to its packed size (MPI_BSEND_OVERHEAD).
pub const BSEND_OVERHEAD: usize = 512;

/// The place of a communicator for a buffer.
#[derive(Debug, Default)]
pub(super) struct BsendSlot(Mutex<Option<Arc<BsendBuffer>>>);

impl BsendSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<BsendBuffer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attached(&self) -> Option<Arc<BsendBuffer>> {
        self.lock().clone()
    }
}

#[derive(Debug)]
struct BsendBuffer {
    capacity: usize,
    state: Mutex<BsendState>,
}

#[derive(Debug, Default)]
struct BsendState {
    used: usize,
    /// In the order of their numbers.
    pending: Vec<PendingSend>,
    /// The number of sends that have ever been pending.
    count: u64,
    /// The first error of a send that was pending when its call returned.
    error: Option<Error>,
}

#[derive(Debug)]
struct PendingSend {
    number: u64,
    completion: Completion,
    space: usize,
    call: &'static str,
    dest: i32,
    tag: i32,
}

impl BsendState {
    fn is_flushed(&mut self, before: u64) -> bool {
        self.reap();
        self.pending.first().is_none_or(|send| send.number >= before)
    }

    /// Releases the space of completed sends.
    fn reap(&mut self) {
        let BsendState { used, pending, error, .. } = self;
        pending.retain(|send| {
            let Some(outcome) = send.completion.outcome() else { return true };
            *used -= send.space;
            if let Err(fault) = outcome {
                error.get_or_insert_with(|| Error::from_fault(send.call, fault.clone()));
            }
            false
        });
    }
}

/// The space of one message, until its send has been started or has failed.
struct Reservation<'b> {
    buffer: &'b BsendBuffer,
    space: usize,
}

impl Reservation<'_> {
    /// Keeps the space until the send has completed.
    fn keep_for(mut self, completion: Completion, call: &'static str, dest: i32, tag: i32) {
        let space = std::mem::take(&mut self.space);
        let mut state = self.buffer.state();
        let number = state.count;
        state.count += 1;
        state.pending.push(PendingSend { number, completion, space, call, dest, tag });
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.buffer.state().used -= self.space;
    }
}

impl BsendBuffer {
    fn state(&self) -> MutexGuard<'_, BsendState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves space for a message of `bytes` bytes. If there is too little, makes progress once, and tries again.
    fn reserve(&self, engine: &Engine, call: &'static str, bytes: usize) -> Result<Reservation<'_>> {
        let space = bytes.saturating_add(BSEND_OVERHEAD);
        if !self.try_reserve(space) {
            engine.progress();
            if !self.try_reserve(space) {
                return Err(self.full(call, bytes, space));
            }
        }
        Ok(Reservation { buffer: self, space })
    }

    fn try_reserve(&self, space: usize) -> bool {
        let mut state = self.state();
        state.reap();
        let fits = space <= self.capacity - state.used;
        if fits {
            state.used += space;
        }
        fits
    }

    #[cold]
    fn full(&self, call: &'static str, bytes: usize, space: usize) -> Error {
        let used = self.state().used;
        let (capacity, free) = (self.capacity, self.capacity - used);
        let why = format!(
            "the attached buffer lacks {} bytes: the message needs {space} ({bytes} and BSEND_OVERHEAD), {free} of \
             {capacity} bytes are free; attach a larger buffer, or flush it first",
            space.saturating_sub(free),
        );
        Error::new(ErrorClass::Buffer, call, why)
    }

    /// Waits until the sends with numbers less than `before` are complete. Takes the first error.
    fn flush(&self, comm: &Comm, call: &'static str, before: u64) -> Result<()> {
        let is_flushed = |(): &mut ()| self.state().is_flushed(before).then_some(());
        let what = |(): &()| match self.state().pending.as_slice() {
            [] => WaitReason::call(call),
            [send, others @ ..] => {
                WaitReason::send(call, comm.p2p(), send.dest, send.tag).with_others(others.len(), false)
            }
        };
        comm.engine().wait_for(&mut (), is_flushed, what);
        self.state().error.take().map_or(Ok(()), |error| Err(comm.named(error.with_call(call))))
    }
}

/// Attaches a buffer of `bytes` bytes to the communicator, for [`bsend`] and [`bsend_init`]
/// (MPI_Comm_attach_buffer). The buffer of the world is also that of every communicator without one
/// (MPI_Buffer_attach). A buffer of `usize::MAX` bytes has no limit (MPI_BUFFER_AUTOMATIC).
///
/// # Errors
/// The communicator was freed; [`ErrorClass::Buffer`] if it has a buffer already.
///
/// [`bsend_init`]: super::bsend_init
pub fn attach(comm: &Comm, bytes: usize) -> Result<()> {
    const CALL: &str = "attach";
    comm.check_not_freed(CALL)?;
    let mut slot = comm.bsend_slot().lock();
    if let Some(attached) = &*slot {
        let why = format!(
            "the communicator has an attached buffer of {} bytes already: detach it first",
            attached.capacity
        );
        return Err(comm.named(Error::new(ErrorClass::Buffer, CALL, why)));
    }
    *slot = Some(Arc::new(BsendBuffer { capacity: bytes, state: Mutex::default() }));
    Ok(())
}

/// Detaches the buffer of the communicator, and waits until the messages in it were sent (MPI_Comm_detach_buffer).
/// Returns its size.
///
/// # Errors
/// [`ErrorClass::Buffer`] if the communicator has no buffer; the first error of a send that was pending when its call
/// returned. After the error of a send, the buffer is detached as well.
pub fn detach(comm: &Comm) -> Result<usize> {
    const CALL: &str = "detach";
    let attached = comm.bsend_slot().lock().take();
    let buffer = attached.ok_or_else(|| no_buffer(comm, CALL))?;
    buffer.flush(comm, CALL, u64::MAX).map(|()| buffer.capacity)
}

/// Waits until the messages in the buffer of the communicator were sent (MPI_Comm_flush_buffer). Does not wait for
/// messages that other threads add meanwhile.
///
/// # Errors
/// As [`detach`], but the buffer stays attached.
pub fn flush_buffer(comm: &Comm) -> Result<()> {
    const CALL: &str = "flush";
    let buffer = comm.bsend_slot().attached().ok_or_else(|| no_buffer(comm, CALL))?;
    let before = buffer.state().count;
    buffer.flush(comm, CALL, before)
}

/// Starts to wait until the messages in the buffer of the communicator were sent (MPI_Comm_iflush_buffer). Later
/// messages do not delay the request.
///
/// # Errors
/// [`ErrorClass::Buffer`] if the communicator has no buffer. The request returns the first error of a send that was
/// pending when its call returned.
pub fn iflush_buffer(comm: &Comm) -> Result<Request> {
    let buffer = comm.bsend_slot().attached().ok_or_else(|| no_buffer(comm, "iflush"))?;
    let before = buffer.state().count;
    Ok(Request::flush(BufferFlush { comm: comm.clone(), buffer, before }))
}

/// A pending [`iflush_buffer`].
#[derive(Debug)]
pub(super) struct BufferFlush {
    comm: Comm,
    buffer: Arc<BsendBuffer>,
    /// Sends with this number and higher ones are later than the call.
    before: u64,
}

impl BufferFlush {
    pub(super) fn outcome(&self) -> Option<Result<Status>> {
        let mut state = self.buffer.state();
        state.is_flushed(self.before).then(|| state.error.clone().map_or(Ok(Status::empty()), Err))
    }

    pub(super) fn wait(&self) -> Result<Status> {
        self.buffer.flush(&self.comm, "iflush", self.before).map(|()| Status::empty())
    }

    pub(super) fn wait_target(&self) -> (&Arc<Engine>, OpInfo, &Arc<Channel>) {
        (self.comm.engine(), OpInfo::generalized("iflush"), self.comm.p2p())
    }
}

/// Detaches the buffer without a wait; the pending sends continue.
pub(crate) fn abandon_buffer(comm: &Comm) {
    let abandoned = comm.bsend_slot().lock().take();
    drop(abandoned);
}

fn no_buffer(comm: &Comm, call: &'static str) -> Error {
    comm.named(Error::new(
        ErrorClass::Buffer,
        call,
        "the communicator has no attached buffer: attach one first",
    ))
}

/// Sends a copy of a buffer, and returns as soon as it is made (MPI_Bsend, MPI_Ibsend).
///
/// # Errors
/// The rank, the tag or the [buffer](mpj_devices::BufError) is invalid, the communicator was freed, one of its ranks has
/// died, or the receiver has exited; [`ErrorClass::Buffer`] if no buffer is [attached](attach), or it has too little
/// space; [`ErrorClass::NoMem`] if the pool has no block for the copy. [`flush_buffer`] and [`detach`] return
/// later errors of the send.
///
/// # Safety
/// The contract of a send buffer, until the call returns.
pub unsafe fn bsend(comm: &Comm, buf: Buf, dest: i32, tag: i32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { bsend_as(comm, "bsend", &buf, dest, tag) }
}

/// As [`bsend`], with the name of the call for errors.
///
/// # Safety
/// The contract of [`bsend`].
pub(crate) unsafe fn bsend_as(comm: &Comm, call: &'static str, buf: &Buf, dest: i32, tag: i32) -> Result<()> {
    comm.check_send(call, dest, tag)?;
    if dest == PROC_NULL {
        return Ok(());
    }
    let attached = comm.bsend_slot().attached().or_else(|| comm.world_bsend_slot().attached());
    let buffer = attached.ok_or_else(|| no_buffer(comm, call))?;
    let bytes = buf.bytes().map_err(|error| Error::buf(call, error))?;
    let reserved = buffer.reserve(comm.engine(), call, bytes).map_err(|error| comm.named(error))?;
    // SAFETY: the caller's contract.
    let copy = unsafe { PackedCopy::of(call, buf)? };
    match send_copy(comm, call, copy, (dest, tag), Coalesce::No)? {
        Sent::Pending(completion) => reserved.keep_for(completion, call, dest, tag),
        Sent::Posted | Sent::Coalesced => drop(reserved),
    }
    Ok(())
}

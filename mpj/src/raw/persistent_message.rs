//! Persistent sends and receives.

use std::mem;
use std::sync::Arc;

use mpj_devices::{Buf, Channel, Coalesce, Engine, KeepAlive, Listener, Mode, Sent};

use super::PROC_NULL;
use super::abort_on_unwind::abort_on_unwind;
use super::buffered::bsend_as;
use super::comm::Comm;
use super::message_op::MessageOp;
use super::p2p::{self, pattern};
use super::persistent::{PersistentOperation, StoredBuf, still_active};
use super::request::OpInfo;
use crate::error::Result;
use crate::status::Status;

#[derive(Debug)]
pub(super) struct PersistentMessage {
    comm: Comm,
    call: &'static str,
    direction: Direction,
    peer: i32,
    tag: i32,
    buf: StoredBuf,
    keep: Option<KeepAlive>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Send(Mode),
    BufferedSend,
    Recv,
}

#[derive(Debug)]
enum State {
    Inactive,
    Active(MessageOp),
    Complete(Result<Status>),
}

/// Creates a persistent send (MPI_Send_init, MPI_Ssend_init). Nothing is sent before a start. The request owns `keep`. If
/// the request is dropped while an operation is active, the operation owns it until it has completed.
///
/// ```
/// use mpj::raw::{self, Buf, Mode};
///
/// # mpj::threads(2, |world| {
/// let (comm, other) = (world.as_raw(), 1 - world.rank() as i32);
/// let (mut mine, mut theirs) = ([0u64], [0u64]);
/// let (send, recv) = (Buf::slice_mut(&mut mine), Buf::slice_mut(&mut theirs));
/// let mut sending = raw::send_init(comm, send, other, 0, Mode::Standard, None)?;
/// let mut receiving = raw::recv_init(comm, recv, other, 0, None)?;
/// for round in 0..3 {
///     mine = [round + world.rank() as u64];
///     // SAFETY: the buffers are not accessed until both operations have completed.
///     unsafe { raw::start_all([&mut sending, &mut receiving])? };
///     sending.wait()?;
///     assert_eq!(receiving.wait()?.source(), Some(other as usize));
///     assert_eq!(theirs, [round + other as u64]);
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// The rank or the tag is invalid, or the communicator was freed.
pub fn send_init(
    comm: &Comm,
    buf: Buf,
    dest: i32,
    tag: i32,
    mode: Mode,
    keep: Option<KeepAlive>,
) -> Result<PersistentOperation> {
    let call = if mode == Mode::Synchronous { "ssend_init" } else { "send_init" };
    message_init(comm, call, Direction::Send(mode), buf, dest, tag, keep)
}

/// Creates a persistent ready send (MPI_Rsend_init): see [`rsend`](super::rsend).
///
/// # Errors
/// As [`send_init`].
pub fn rsend_init(
    comm: &Comm,
    buf: Buf,
    dest: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<PersistentOperation> {
    message_init(comm, "rsend_init", Direction::Send(Mode::Standard), buf, dest, tag, keep)
}

/// Creates a persistent buffered send (MPI_Bsend_init): each start is a [`bsend`](super::bsend).
///
/// # Errors
/// As [`send_init`].
pub fn bsend_init(
    comm: &Comm,
    buf: Buf,
    dest: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<PersistentOperation> {
    message_init(comm, "bsend_init", Direction::BufferedSend, buf, dest, tag, keep)
}

/// Creates a persistent receive (MPI_Recv_init).
///
/// # Errors
/// As [`send_init`].
pub fn recv_init(
    comm: &Comm,
    buf: Buf,
    source: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<PersistentOperation> {
    message_init(comm, "recv_init", Direction::Recv, buf, source, tag, keep)
}

fn message_init(
    comm: &Comm,
    call: &'static str,
    direction: Direction,
    buf: Buf,
    peer: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<PersistentOperation> {
    match direction {
        Direction::Recv if peer == PROC_NULL => comm.check_not_freed(call)?,
        Direction::Recv => drop(pattern(comm, call, peer, tag)?),
        Direction::Send(_) | Direction::BufferedSend => comm.check_send(call, peer, tag)?,
    }
    let (comm, buf, state) = (comm.clone(), StoredBuf(buf), State::Inactive);
    let message = PersistentMessage { comm, call, direction, peer, tag, buf, keep, state };
    Ok(message.into())
}

impl PersistentMessage {
    /// Sets the buffer for later starts: `recv` of a receive, `send` of a send.
    pub(super) fn set_buf(&mut self, send: &Buf, recv: &Buf) {
        let buf = if self.direction == Direction::Recv { recv } else { send };
        self.buf = StoredBuf(buf.clone());
    }

    /// # Safety
    /// The contract of a send or a receive buffer, until the operation has completed.
    pub(super) unsafe fn start(&mut self) -> Result<()> {
        let StoredBuf(buf) = self.buf.clone();
        // SAFETY: the caller's contract.
        unsafe { self.start_with(|| buf) }
    }

    /// # Safety
    /// As [`start`](Self::start).
    #[inline(always)]
    pub(super) unsafe fn start_with(&mut self, buf: impl FnOnce() -> Buf) -> Result<()> {
        let &mut PersistentMessage { ref comm, call, peer, tag, .. } = self;
        if self.is_active() {
            return Err(comm.named(still_active(call)));
        }
        self.state = State::Active(match self.direction {
            // SAFETY: the caller's contract.
            Direction::Send(mode) => unsafe { start_send(comm, call, buf, peer, tag, mode)? },
            // SAFETY: as above.
            Direction::Recv => unsafe { start_recv(comm, call, buf, peer, tag)? },
            Direction::BufferedSend => {
                // SAFETY: as above.
                unsafe { bsend_as(comm, call, &buf(), peer, tag)? };
                MessageOp::send(OpInfo::send(call, peer, tag), Sent::Posted)
            }
        });
        Ok(())
    }

    pub(super) fn is_active(&self) -> bool {
        !matches!(self.state, State::Inactive)
    }

    #[inline(always)]
    pub(super) fn wait(&mut self) -> Result<Status> {
        // Inlined, so that the outcome of a completed operation is not copied.
        if let State::Active(op) = &self.state
            && let Some(outcome) = op.completed_outcome(&self.comm)
        {
            self.state = State::Inactive;
            return outcome;
        }
        self.wait_slow()
    }

    fn wait_slow(&mut self) -> Result<Status> {
        match mem::replace(&mut self.state, State::Inactive) {
            State::Inactive => Ok(Status::empty()),
            // An unwind would allow the next start while the operation uses the buffer.
            State::Active(op) => abort_on_unwind(|| op.wait(&self.comm)),
            State::Complete(outcome) => outcome,
        }
    }

    pub(super) fn cancel(&self) -> bool {
        matches!(&self.state, State::Active(op) if op.cancel(&self.comm))
    }

    pub(super) fn outcome(&self) -> Option<Result<Status>> {
        match &self.state {
            State::Inactive => Some(Ok(Status::empty())),
            State::Active(op) => op.outcome(&self.comm),
            State::Complete(outcome) => Some(outcome.clone()),
        }
    }

    pub(super) fn listen(&self, listener: Listener) {
        match &self.state {
            State::Active(op) => op.listen(listener),
            State::Inactive | State::Complete(_) => listener.notify(),
        }
    }

    pub(super) fn is_listening(&self) -> bool {
        matches!(&self.state, State::Active(op) if op.is_listening())
    }

    pub(super) fn wait_target(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)> {
        match &self.state {
            State::Active(op) => op.wait_target(&self.comm),
            State::Inactive | State::Complete(_) => None,
        }
    }

    /// Cancels an unmatched receive, or waits for any other operation and stores its outcome.
    pub(super) fn abandon(&mut self) {
        if !self.is_active() {
            return;
        }
        let was_cancelled = self.cancel();
        self.state = match mem::replace(&mut self.state, State::Inactive) {
            State::Active(op) if !was_cancelled => State::Complete(abort_on_unwind(|| op.wait(&self.comm))),
            State::Active(_) => State::Inactive,
            state => state,
        }
    }

    pub(super) fn release_memory(&mut self) {
        self.keep = None;
    }

    pub(super) fn name(&self) -> &'static str {
        self.call
    }
}

/// Gives the owner of the memory to an operation that is pending.
impl Drop for PersistentMessage {
    fn drop(&mut self) {
        if let (State::Active(op), Some(owner)) =
            (mem::replace(&mut self.state, State::Inactive), self.keep.take())
        {
            op.drop_with_memory(owner);
        }
    }
}

/// Starts a send to a rank that was checked when the request was created.
///
/// # Safety
/// The contract of a send buffer, until the operation has completed.
#[inline(always)]
unsafe fn start_send(
    comm: &Comm,
    call: &'static str,
    buf: impl FnOnce() -> Buf,
    dest: i32,
    tag: i32,
    mode: Mode,
) -> Result<MessageOp> {
    let info = OpInfo::send(call, dest, tag);
    if dest == PROC_NULL {
        return comm.check_not_freed(call).map(|()| MessageOp::send(info, Sent::Posted));
    }
    // SAFETY: the caller's contract. Without an owner, no receiver reads the buffer after the completion.
    let sent = unsafe { p2p::start_send(comm, call, buf, dest, tag, mode, (Coalesce::Allowed, None))? };
    Ok(MessageOp::send(info, sent))
}

/// # Safety
/// The contract of a receive buffer, until the operation has completed.
#[inline(always)]
unsafe fn start_recv(
    comm: &Comm,
    call: &'static str,
    buf: impl FnOnce() -> Buf,
    source: i32,
    tag: i32,
) -> Result<MessageOp> {
    let info = OpInfo::recv(call, source, tag);
    if source == PROC_NULL {
        return comm.check_not_freed(call).map(|()| MessageOp::send(info, Sent::Posted));
    }
    // SAFETY: the caller's contract.
    let completion = unsafe { p2p::start_recv(comm, call, buf, source, tag, None)? };
    Ok(MessageOp::recv(info, completion))
}

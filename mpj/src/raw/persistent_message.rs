//! Persistent sends and receives.

use std::sync::Arc;

use mpj_devices::{Buf, Channel, Coalesce, Engine, KeepAlive, Listener, Mode, Source};

use super::buffered::bsend_as;
use super::comm::Comm;
use super::p2p::{irecv_as, pattern};
use super::persistent::{PersistentOperation, StoredBuf, still_active};
use super::request::{OpInfo, Request};
use crate::error::{Error, Result};
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
    Active(Request),
    Complete(Result<Status>),
}

/// Creates a persistent send (MPI_Send_init, MPI_Ssend_init). Nothing is sent before a start. Each operation owns a clone
/// of `keep` until it has completed, and the request owns one.
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
        Direction::Recv if peer == super::PROC_NULL => comm.check_not_freed(call)?,
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
        let PersistentMessage { comm, call, peer, tag, .. } = self;
        let (call, peer, tag) = (*call, *peer, *tag);
        if !matches!(self.state, State::Inactive) {
            return Err(still_active(call));
        }
        let (StoredBuf(buf), keep) = (&self.buf, self.keep.clone());
        self.state = State::Active(match self.direction {
            // SAFETY: the caller's contract.
            Direction::Send(mode) => unsafe {
                isend_not_lent(comm, call, buf.clone(), peer, tag, mode, keep)?
            },
            Direction::BufferedSend => {
                // SAFETY: as above.
                unsafe { bsend_as(comm, call, buf, peer, tag)? };
                Request::done(Status::empty())
            }
            // SAFETY: as above.
            Direction::Recv => unsafe { irecv_as(comm, call, buf.clone(), peer, tag, keep)? },
        });
        Ok(())
    }

    pub(super) fn is_active(&self) -> bool {
        !matches!(self.state, State::Inactive)
    }

    pub(super) fn wait(&mut self) -> Result<Status> {
        if !self.is_active() {
            return Ok(Status::empty());
        }
        match std::mem::replace(&mut self.state, State::Inactive) {
            State::Inactive => Ok(Status::empty()),
            State::Active(request) => request.wait(),
            State::Complete(outcome) => outcome,
        }
    }

    pub(super) fn cancel(&self) -> bool {
        matches!(&self.state, State::Active(request) if request.cancel())
    }

    pub(super) fn outcome(&self) -> Option<Result<Status>> {
        match &self.state {
            State::Inactive => Some(Ok(Status::empty())),
            State::Active(request) => request.outcome(),
            State::Complete(outcome) => Some(outcome.clone()),
        }
    }

    pub(super) fn listen(&self, listener: Listener) -> bool {
        match &self.state {
            State::Active(request) => return request.listen(listener),
            State::Inactive | State::Complete(_) => listener.notify(),
        }
        true
    }

    pub(super) fn is_listening(&self) -> bool {
        matches!(&self.state, State::Active(request) if request.is_listening())
    }

    pub(super) fn wait_target(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)> {
        match &self.state {
            State::Active(request) => request.wait_target(),
            State::Inactive | State::Complete(_) => None,
        }
    }

    /// Cancels an unmatched receive, or waits for any other operation and stores its outcome.
    pub(super) fn abandon(&mut self) {
        if !self.is_active() {
            return;
        }
        let was_cancelled = self.cancel();
        self.state = match std::mem::replace(&mut self.state, State::Inactive) {
            State::Active(request) if !was_cancelled => State::Complete(request.wait()),
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

/// Starts a send whose buffer is free when the send completes, because no receiver reads it in place.
///
/// # Safety
/// The contract of a send buffer.
unsafe fn isend_not_lent(
    comm: &Comm,
    call: &'static str,
    buf: Buf,
    dest: i32,
    tag: i32,
    mode: Mode,
    keep: Option<KeepAlive>,
) -> Result<Request> {
    comm.check_not_freed(call)?;
    // The rank was checked when the request was created.
    let Ok(member) = u32::try_from(dest) else { return Ok(Request::done(Status::empty())) };
    // SAFETY: the caller's contract.
    let source = unsafe { Source::new(buf, keep) }.map_err(|error| Error::buf(call, error))?;
    let mut source = source.with_path(comm.path()).not_lent();
    let how = Coalesce::Allowed;
    let sent = comm.engine().send_from(comm.p2p(), member, tag.into(), &mut source, mode, how);
    let sent = sent.map_err(|fault| Error::from_fault(call, *fault))?;
    Ok(Request::from_sent(OpInfo::send(call, dest, tag), comm, sent))
}

//! Point-to-point messages.

use std::sync::Arc;

use mpj_datatypes::Datatype;
use mpj_devices::trace::Trace;
use mpj_devices::{
    ANY_SOURCE, ANY_TAG, Buf, Channel, Coalesce, Completion, KeepAlive, Mode, Origin, Outcome, Pattern,
    Receive, Sent, Source, WaitReason,
};

use super::PROC_NULL;
use super::abort_on_unwind::abort_on_unwind;
use super::comm::Comm;
use super::packed_copy::PackedCopy;
use super::request::{OpInfo, Request};
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;

impl Comm {
    #[inline]
    pub(super) fn check_tag(&self, call: &'static str, tag: i32) -> Result<()> {
        if tag < 0 { Err(self.tag_error(call, tag)) } else { Ok(()) }
    }

    #[cold]
    fn tag_error(&self, call: &'static str, tag: i32) -> Error {
        self.named(Error::new(ErrorClass::Tag, call, format!("tag {tag} is outside 0..=2147483647")))
    }

    /// Checks the arguments of a send. [`PROC_NULL`] is a valid destination, with any tag.
    pub(super) fn check_send(&self, call: &'static str, dest: i32, tag: i32) -> Result<()> {
        self.check_not_freed(call)?;
        if dest != PROC_NULL {
            self.check_rank(call, ErrorClass::Rank, dest)?;
            self.check_tag(call, tag)?;
        }
        Ok(())
    }
}

pub(crate) fn too_large(call: &'static str, count: usize) -> Error {
    Error::new(ErrorClass::Count, call, format!("{count} items overflow the byte count"))
}

/// Checks that the items that one receive writes do not overlap.
pub(super) fn check_no_overlap(call: &'static str, count: usize, datatype: &Datatype) -> Result<()> {
    datatype.check_overlap(count).map_err(|overlap| Error::new(ErrorClass::Type, call, overlap.to_string()))
}

/// As [`check_no_overlap`], but always exact: several receives into the items can be active at once, and their threads
/// must not write the same bytes.
pub(super) fn check_disjoint(call: &'static str, buf: &Buf) -> Result<()> {
    let overlap = buf.datatype().check_disjoint(buf.count());
    overlap.map_err(|overlap| Error::new(ErrorClass::Type, call, overlap.to_string()))
}

#[inline]
pub(super) fn pattern(comm: &Comm, call: &'static str, source: i32, tag: i32) -> Result<Pattern> {
    comm.check_not_freed(call)?;
    if tag != ANY_TAG {
        comm.check_tag(call, tag)?;
    }
    if source != ANY_SOURCE {
        comm.check_rank(call, ErrorClass::Rank, source)?;
    }
    Ok(Pattern { source, tag })
}

#[inline]
fn send_name(mode: Mode, blocking: bool) -> &'static str {
    match (mode, blocking) {
        (Mode::Synchronous, true) => "ssend",
        (Mode::Synchronous, false) => "issend",
        (_, true) => "send",
        (_, false) => "isend",
    }
}

/// As [`check_no_overlap`]. The buffer is passed by value so that it can stay in registers.
#[inline(always)]
fn without_overlap(call: &'static str, buf: Buf) -> Result<Buf> {
    fn check(call: &'static str, buf: Buf) -> Result<Buf> {
        check_no_overlap(call, buf.count(), buf.datatype())?;
        Ok(buf)
    }
    if buf.datatype().is_primitive() { Ok(buf) } else { check(call, buf) }
}

/// Checks the arguments of a send to a rank. Returns the rank as `u32`, and the [`Source`]: the memory to send from.
/// `buf` is called after the other arguments were checked.
///
/// # Safety
/// The contract of a send buffer, until the source is dropped.
#[inline(always)]
unsafe fn send_source(
    comm: &Comm,
    call: &'static str,
    buf: impl FnOnce() -> Buf,
    dest: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<(u32, Source)> {
    comm.check_not_freed(call)?;
    comm.check_tag(call, tag)?;
    let dest = comm.check_rank(call, ErrorClass::Rank, dest)?;
    // SAFETY: the caller's contract.
    let source = unsafe { Source::new(buf(), keep) }.map_err(|error| comm.named(Error::buf(call, error)))?;
    Ok((dest, source.with_path(comm.path())))
}

/// Starts a send. `buf` is called after the other arguments were checked.
///
/// # Safety
/// The contract of a send buffer, until the returned operation has completed.
#[inline(always)]
pub(crate) unsafe fn start_send(
    comm: &Comm,
    call: &'static str,
    buf: impl FnOnce() -> Buf,
    dest: i32,
    tag: i32,
    mode: Mode,
    (coalesce, keep): (Coalesce, Option<KeepAlive>),
) -> Result<Sent> {
    // SAFETY: the caller's contract.
    let (dest, mut source) = unsafe { send_source(comm, call, buf, dest, tag, keep)? };
    let started = comm.engine().send_from(comm.p2p(), dest, tag.into(), &mut source, mode, coalesce);
    started.map_err(|fault| comm.fault(call, *fault))
}

/// Starts a send of a copy that this library has made. The receiver cannot read it in place, because the send would
/// then complete only when the receiver drops the message.
pub(super) fn send_copy(
    comm: &Comm,
    call: &'static str,
    copy: PackedCopy,
    (dest, tag): (i32, i32),
    coalesce: Coalesce,
) -> Result<Sent> {
    let copy = Arc::new(copy);
    let (buf, keep): (Buf, KeepAlive) = (copy.buf(), copy);
    // SAFETY: the operation keeps the copy, which nobody writes to.
    let (dest, source) = unsafe { send_source(comm, call, || buf, dest, tag, Some(keep))? };
    let mut source = source.not_lent();
    let started =
        comm.engine().send_from(comm.p2p(), dest, tag.into(), &mut source, Mode::Standard, coalesce);
    started.map_err(|fault| comm.fault(call, *fault))
}

/// Starts a receive. `buf` is called after the other arguments were checked.
///
/// # Safety
/// The contract of a receive buffer, until the returned operation has completed.
#[inline(always)]
pub(crate) unsafe fn start_recv(
    comm: &Comm,
    call: &'static str,
    buf: impl FnOnce() -> Buf,
    source: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<Completion> {
    let pattern = pattern(comm, call, source, tag)?;
    let buf = without_overlap(call, buf())?;
    // SAFETY: the caller's contract.
    let receive = unsafe { Receive::of(buf, keep, comm.path()) }
        .map_err(|error| comm.named(Error::buf(call, error)))?;
    let posted = comm.engine().post(comm.p2p(), pattern, receive);
    posted.map_err(|fault| comm.fault(call, *fault))
}

#[inline]
pub(super) fn wait_completion(
    comm: &Comm,
    call: &'static str,
    completion: &Completion,
    what: impl Fn(&Arc<Channel>) -> WaitReason,
) -> Result<Status> {
    // An unwind would return the buffer to the caller, so it must not happen while the operation is pending.
    abort_on_unwind(|| {
        comm.engine().wait_map(completion, |outcome| to_result(comm, call, outcome), || what(comm.p2p()))
    })
}

#[inline]
fn to_result(comm: &Comm, call: &'static str, outcome: &Outcome) -> Result<Status> {
    match outcome {
        Ok(message) => Ok(Status::of(message)),
        Err(fault) => Err(comm.fault(call, fault.clone())),
    }
}

#[inline]
pub(super) fn wait_send(comm: &Comm, call: &'static str, sent: Sent, dest: i32, tag: i32) -> Result<()> {
    let Sent::Pending(completion) = sent else { return Ok(()) };
    wait_completion(comm, call, &completion, |on| WaitReason::send(call, on, dest, tag)).map(|_| ())
}

/// Sends a buffer. Returns when the buffer can be reused and, with [`Mode::Synchronous`], the message was matched.
///
/// # Errors
/// The rank, the tag or the [buffer](mpj_devices::BufError) is invalid, the communicator was freed, one of its ranks
/// has died, the receiver has exited, cannot be reached or refuses the message, memory is exhausted, or too many
/// messages wait for the receiver's reply.
///
/// # Safety
/// The contract of a send buffer.
#[inline]
pub unsafe fn send(comm: &Comm, buf: Buf, dest: i32, tag: i32, mode: Mode) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { send_as(comm, send_name(mode, true), buf, dest, tag, mode) }
}

/// Sends a buffer as [`send`] does (MPI_Rsend). MPI allows it only if the receive is posted already; this library makes
/// no use of that.
///
/// # Errors
/// As [`send`].
///
/// # Safety
/// The contract of a send buffer.
pub unsafe fn rsend(comm: &Comm, buf: Buf, dest: i32, tag: i32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { send_as(comm, "rsend", buf, dest, tag, Mode::Standard) }
}

/// As [`send`], with the name of the call for errors.
///
/// # Safety
/// The contract of a send buffer.
#[inline]
pub(crate) unsafe fn send_as(
    comm: &Comm,
    call: &'static str,
    buf: Buf,
    dest: i32,
    tag: i32,
    mode: Mode,
) -> Result<()> {
    if dest == PROC_NULL {
        return comm.check_not_freed(call);
    }
    let begun = comm.engine().trace().map(Trace::now);
    // SAFETY: the caller's contract, and we wait until the operation has completed.
    let sent = unsafe { start_send(comm, call, || buf, dest, tag, mode, (Coalesce::No, None)) };
    let outcome = sent.and_then(|sent| wait_send(comm, call, sent, dest, tag));
    if let Some((trace, begun)) = comm.engine().trace().zip(begun) {
        trace.send(begun, call, comm.p2p(), dest, tag, outcome.is_err());
    }
    outcome
}

/// Receives a message into a buffer that is long enough for it.
///
/// # Errors
/// The rank, the tag or the [buffer](mpj_devices::BufError) is invalid, the communicator was freed, one of its ranks
/// has died, the sender has exited or cannot be reached, or memory is exhausted; [`ErrorClass::Truncate`] if the
/// message is too long for the buffer; [`ErrorClass::Type`] if its type differs, a value is invalid, or items overlap.
///
/// # Safety
/// The contract of a receive buffer.
#[inline]
pub unsafe fn recv(comm: &Comm, buf: Buf, source: i32, tag: i32) -> Result<Status> {
    const CALL: &str = "recv";
    if source == PROC_NULL {
        return comm.check_not_freed(CALL).map(|()| Status::empty());
    }
    // SAFETY: the caller's contract, and we wait until the operation has completed.
    let completion = unsafe { start_recv(comm, CALL, || buf, source, tag, None)? };
    wait_completion(comm, CALL, &completion, |on| WaitReason::recv(CALL, on, source, tag))
}

/// Starts a send. The operation owns `keep` until it has completed.
///
/// # Errors
/// As [`send`].
///
/// # Safety
/// The contract of a send buffer.
pub unsafe fn isend(
    comm: &Comm,
    buf: Buf,
    dest: i32,
    tag: i32,
    mode: Mode,
    keep: Option<KeepAlive>,
) -> Result<Request> {
    // SAFETY: the caller's contract.
    unsafe { isend_as(comm, send_name(mode, false), buf, dest, tag, mode, keep) }
}

/// Starts a send as [`isend`] does (MPI_Irsend). MPI allows it only if the receive is posted already; this library
/// makes no use of that.
///
/// # Errors
/// As [`send`].
///
/// # Safety
/// The contract of a send buffer.
pub unsafe fn irsend(comm: &Comm, buf: Buf, dest: i32, tag: i32, keep: Option<KeepAlive>) -> Result<Request> {
    // SAFETY: the caller's contract.
    unsafe { isend_as(comm, "irsend", buf, dest, tag, Mode::Standard, keep) }
}

/// As [`isend`], with the name of the call for errors.
///
/// # Safety
/// The contract of a send buffer.
pub(crate) unsafe fn isend_as(
    comm: &Comm,
    call: &'static str,
    buf: Buf,
    dest: i32,
    tag: i32,
    mode: Mode,
    keep: Option<KeepAlive>,
) -> Result<Request> {
    if dest == PROC_NULL {
        return comm.check_not_freed(call).map(|()| Request::done(Status::empty()));
    }
    // SAFETY: the caller's contract.
    let sent = unsafe { start_send(comm, call, || buf, dest, tag, mode, (Coalesce::Allowed, keep))? };
    Ok(Request::from_sent(OpInfo::send(call, dest, tag), comm, sent))
}

/// Starts a send that is complete when this call returns, and so needs no owner of its buffer. Returns `None`, and
/// sends nothing, if the send might be pending, if the receiver might read the buffer in place, or if `dest` is
/// [`PROC_NULL`].
///
/// # Safety
/// The contract of a send buffer, until the call returns.
#[inline(always)]
pub(crate) unsafe fn try_isend(
    comm: &Comm,
    call: &'static str,
    buf: impl FnOnce() -> Buf,
    dest: i32,
    tag: i32,
) -> Result<Option<Request>> {
    let buf = buf();
    if dest == PROC_NULL || !matches!(buf.origin(), Origin::Memory) {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    let (member, mut source) = unsafe { send_source(comm, call, || buf, dest, tag, None)? };
    let sent = comm.engine().try_send(comm.p2p(), member, tag.into(), &mut source, Coalesce::Allowed);
    let sent = sent.transpose().map_err(|fault| comm.fault(call, *fault))?;
    Ok(sent.map(|sent| Request::from_sent(OpInfo::send(call, dest, tag), comm, sent)))
}

/// Starts a receive. The operation owns `keep` until it has completed.
///
/// # Errors
/// As [`recv`].
///
/// # Safety
/// The contract of a receive buffer.
#[inline]
pub unsafe fn irecv(
    comm: &Comm,
    buf: Buf,
    source: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<Request> {
    // SAFETY: the caller's contract.
    unsafe { irecv_as(comm, "irecv", || buf, source, tag, keep) }
}

/// As [`irecv`], with the name of the call for errors. `buf` is called after the other arguments were checked.
///
/// # Safety
/// The contract of a receive buffer.
#[inline(always)]
pub(crate) unsafe fn irecv_as(
    comm: &Comm,
    call: &'static str,
    buf: impl FnOnce() -> Buf,
    source: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<Request> {
    if source == PROC_NULL {
        return comm.check_not_freed(call).map(|()| Request::done(Status::empty()));
    }
    // SAFETY: the caller's contract.
    let completion = unsafe { start_recv(comm, call, buf, source, tag, keep)? };
    Ok(Request::pending(OpInfo::recv(call, source, tag), comm, completion))
}

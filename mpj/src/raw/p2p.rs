//! Messages from one rank to another.

use std::sync::Arc;

use mpj_datatypes::Datatype;
use mpj_devices::trace::Trace;
use mpj_devices::{
    ANY_SOURCE, ANY_TAG, Buf, Channel, Coalesce, Completion, KeepAlive, Matched, MatchedMessage, Mode,
    Outcome, Pattern, Receive, Sent, Source, Target, WaitReason,
};

use super::PROC_NULL;
use super::comm::Comm;
use super::request::{OpInfo, Request};
use super::unwind::abort_on_unwind;
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;

#[inline]
fn check_tag(call: &'static str, tag: i32) -> Result<()> {
    if tag < 0 {
        return Err(Error::new(ErrorClass::Tag, call, format!("tag {tag} is outside 0..=2147483647")));
    }
    Ok(())
}

pub(crate) fn too_large(call: &'static str, count: usize) -> Error {
    Error::new(ErrorClass::Count, call, format!("{count} items are more bytes than can be counted"))
}

/// Checks that no byte would be received twice.
pub(super) fn disjoint(call: &'static str, count: usize, datatype: &Datatype) -> Result<()> {
    datatype.check_overlap(count).map_err(|overlap| Error::new(ErrorClass::Type, call, overlap.to_string()))
}

#[inline]
fn pattern(comm: &Comm, call: &'static str, source: i32, tag: i32) -> Result<Pattern> {
    comm.check_not_freed(call)?;
    if tag != ANY_TAG {
        check_tag(call, tag)?;
    }
    if source != ANY_SOURCE {
        comm.check_rank(call, ErrorClass::Rank, source)?;
    }
    Ok(Pattern { source, tag })
}

/// How errors and reports name a send, blocking or not.
#[inline]
fn name(mode: Mode, blocking: bool) -> &'static str {
    match (mode, blocking) {
        (Mode::Synchronous, true) => "ssend",
        (Mode::Synchronous, false) => "issend",
        (_, true) => "send",
        (_, false) => "isend",
    }
}

/// The same of a buffer, which is passed on: one that is only borrowed would have to lie in memory.
#[inline(always)]
fn apart(call: &'static str, buf: Buf) -> Result<Buf> {
    fn any(call: &'static str, buf: Buf) -> Result<Buf> {
        disjoint(call, buf.count(), buf.datatype())?;
        Ok(buf)
    }
    if buf.datatype().is_primitive() { Ok(buf) } else { any(call, buf) }
}

/// A send with everything checked but the memory. The buffer is asked for when the rest was checked.
///
/// # Safety
/// The contract of a send buffer, until the returned operation has ended.
#[inline(always)]
pub(crate) unsafe fn start_send(
    comm: &Comm,
    call: &'static str,
    buf: impl FnOnce() -> Buf,
    dest: i32,
    tag: i32,
    mode: Mode,
    (leave, keep): (Coalesce, Option<KeepAlive>),
) -> Result<Sent> {
    comm.check_not_freed(call)?;
    check_tag(call, tag)?;
    let dest = comm.check_rank(call, ErrorClass::Rank, dest)?;
    // SAFETY: the caller's contract.
    let source = unsafe { Source::new(buf(), keep) }.map_err(|error| Error::buf(call, error))?;
    let mut source = source.with_path(comm.path());
    let started = comm.engine().send_from(comm.p2p(), dest, tag, &mut source, mode, leave);
    started.map_err(|fault| Error::fault(call, *fault))
}

/// A receive with everything checked but the memory. If its message is there already, it has ended. The buffer is asked for as
/// by [`start_send`].
///
/// # Safety
/// The contract of a receive buffer, until the returned operation has ended.
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
    let buf = apart(call, buf())?;
    // SAFETY: the caller's contract.
    let receive = unsafe { Receive::of(buf, keep, comm.path()) }.map_err(|error| Error::buf(call, error))?;
    let posted = comm.engine().post(comm.p2p(), pattern, receive);
    posted.map_err(|fault| Error::fault(call, *fault))
}

/// Waits for an operation; `what` describes it if that takes long.
#[inline]
fn finish(
    comm: &Comm,
    call: &'static str,
    completion: &Completion,
    what: impl Fn(&Arc<Channel>) -> WaitReason,
) -> Result<Status> {
    // The buffer is the caller's again when this has returned, in whatever way.
    abort_on_unwind(|| comm.engine().wait_map(completion, |outcome| told(call, outcome), || what(comm.p2p())))
}

/// What a receive came to, as its caller is told.
#[inline]
fn told(call: &'static str, outcome: &Outcome) -> Result<Status> {
    match outcome {
        Ok(message) => Ok(Status::of(message)),
        Err(fault) => Err(Error::fault(call, fault.clone())),
    }
}

/// Waits for a send.
#[inline]
fn finish_send(comm: &Comm, call: &'static str, sent: Sent, dest: i32, tag: i32) -> Result<()> {
    // It may be held where the socket is full, and then nothing can be done but to wait for room, as for any other.
    let Sent::Pending(completion) = sent else { return Ok(()) };
    finish(comm, call, &completion, |on| WaitReason::send(call, on, dest, tag)).map(|_| ())
}

/// Sends a buffer and returns when it can be used again, or with [`Mode::Synchronous`] when the message has been
/// matched.
///
/// # Errors
/// A bad rank or tag, a freed communicator; a buffer that is [none](mpj_devices::BufError); a dead or departed rank.
///
/// # Safety
/// The contract of a send buffer.
#[inline]
pub unsafe fn send(comm: &Comm, buf: Buf, dest: i32, tag: i32, mode: Mode) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { send_as(comm, name(mode, true), buf, dest, tag, mode) }
}

/// Sends as [`send`], under the name of the call that the user has made.
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
    // SAFETY: the caller's contract, and we wait.
    let sent = unsafe { start_send(comm, call, || buf, dest, tag, mode, (Coalesce::No, None)) };
    let outcome = sent.and_then(|sent| finish_send(comm, call, sent, dest, tag));
    if let Some((trace, begun)) = comm.engine().trace().zip(begun) {
        trace.send(begun, call, comm.p2p(), dest, tag, outcome.is_err());
    }
    outcome
}

/// Receives a message into a buffer that is long enough for it.
///
/// # Errors
/// A bad rank or tag, a freed communicator; a buffer that is [none](mpj_devices::BufError); [`ErrorClass::Truncate`] and
/// [`ErrorClass::Type`] if the message does not fit; a dead or departed rank.
///
/// # Safety
/// The contract of a receive buffer.
#[inline]
pub unsafe fn recv(comm: &Comm, buf: Buf, source: i32, tag: i32) -> Result<Status> {
    const CALL: &str = "recv";
    if source == PROC_NULL {
        return comm.check_not_freed(CALL).map(|()| Status::empty());
    }
    // SAFETY: the caller's contract, and we wait.
    let completion = unsafe { start_recv(comm, CALL, || buf, source, tag, None)? };
    finish(comm, CALL, &completion, |on| WaitReason::recv(CALL, on, source, tag))
}

/// Starts a send. With `keep`, the operation owns what it is given until it has ended.
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
    let call = name(mode, false);
    if dest == PROC_NULL {
        return comm.check_not_freed(call).map(|()| Request::done(Status::empty()));
    }
    // SAFETY: the caller's contract.
    let sent = unsafe { start_send(comm, call, || buf, dest, tag, mode, (Coalesce::Allowed, keep))? };
    Ok(Request::sending(OpInfo::send(call, dest, tag), comm, sent))
}

/// Starts a receive. With `keep`, the operation owns what it is given until it has ended.
///
/// # Errors
/// As [`recv`].
///
/// # Safety
/// The contract of a receive buffer.
pub unsafe fn irecv(
    comm: &Comm,
    buf: Buf,
    source: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<Request> {
    // SAFETY: the caller's contract.
    unsafe { post(comm, "irecv", buf, source, tag, keep) }
}

/// # Safety
/// The contract of a receive buffer.
unsafe fn post(
    comm: &Comm,
    call: &'static str,
    buf: Buf,
    source: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<Request> {
    if source == PROC_NULL {
        return comm.check_not_freed(call).map(|()| Request::done(Status::empty()));
    }
    // SAFETY: the caller's contract.
    let completion = unsafe { start_recv(comm, call, || buf, source, tag, keep)? };
    Ok(Request::pending(OpInfo::recv(call, source, tag), comm, completion))
}

/// Sends one buffer and receives into another at once, so that two ranks can do so to each other.
///
/// # Errors
/// As [`send`] and [`recv`]; both have ended when it returns.
///
/// # Safety
/// The contracts of a send buffer and of a receive buffer, which do not overlap.
pub unsafe fn sendrecv(
    comm: &Comm,
    send: Buf,
    dest: i32,
    send_tag: i32,
    recv: Buf,
    source: i32,
    recv_tag: i32,
) -> Result<Status> {
    const CALL: &str = "sendrecv";
    // The send's arguments are checked first: a receive that was posted for nothing would have to be taken back.
    comm.check_not_freed(CALL)?;
    if dest != PROC_NULL {
        comm.check_rank(CALL, ErrorClass::Rank, dest)?;
        check_tag(CALL, send_tag)?;
    }
    // SAFETY: the caller's contract; both operations have ended when we return.
    let receiving = unsafe { post(comm, CALL, recv, source, recv_tag, None)? };
    abort_on_unwind(|| {
        let sent = match dest {
            PROC_NULL => Ok(()),
            _ => {
                let how = (Coalesce::No, None);
                // SAFETY: the caller's contract, and we wait.
                let sent = unsafe { start_send(comm, CALL, || send, dest, send_tag, Mode::Standard, how) };
                sent.and_then(|sent| finish_send(comm, CALL, sent, dest, send_tag))
            }
        };
        if sent.is_err() {
            receiving.cancel();
        }
        let received = receiving.wait();
        sent.and(received)
    })
}

/// Waits for a message that a receive with these arguments would get, and leaves it there.
///
/// # Errors
/// A bad rank or tag, a freed communicator, a dead or departed rank.
pub fn probe(comm: &Comm, source: i32, tag: i32) -> Result<Status> {
    if source == PROC_NULL {
        return comm.check_not_freed("probe").map(|()| Status::empty());
    }
    let pattern = pattern(comm, "probe", source, tag)?;
    let message = comm.engine().probe(comm.p2p(), pattern).map_err(|fault| Error::fault("probe", fault))?;
    Ok(Status::of(&message))
}

/// Looks for such a message once.
///
/// # Errors
/// As [`probe`].
pub fn iprobe(comm: &Comm, source: i32, tag: i32) -> Result<Option<Status>> {
    if source == PROC_NULL {
        return comm.check_not_freed("iprobe").map(|()| Some(Status::empty()));
    }
    let pattern = pattern(comm, "iprobe", source, tag)?;
    let found = comm.engine().iprobe(comm.p2p(), pattern).map_err(|fault| Error::fault("iprobe", fault))?;
    Ok(found.map(|message| Status::of(&message)))
}

/// Waits for such a message and takes it: only [`mrecv`] receives it then.
///
/// # Errors
/// As [`probe`]; nobody ([`PROC_NULL`]) is refused.
pub fn mprobe(comm: &Comm, source: i32, tag: i32) -> Result<MatchedMessage> {
    mprobe_as(comm, "mprobe", source, tag)
}

pub(crate) fn mprobe_as(comm: &Comm, call: &'static str, source: i32, tag: i32) -> Result<MatchedMessage> {
    let pattern = pattern(comm, call, source, tag)?;
    comm.engine().mprobe(comm.p2p(), pattern, call).map_err(|fault| Error::fault(call, fault))
}

/// Waits for such a message and takes it, received if it has come in a block.
pub(crate) fn take(comm: &Comm, call: &'static str, source: i32, tag: i32) -> Result<Matched> {
    let pattern = pattern(comm, call, source, tag)?;
    comm.engine().mprobe_or_recv(comm.p2p(), pattern, call).map_err(|fault| Error::fault(call, fault))
}

/// Looks for such a message once and takes it.
///
/// # Errors
/// As [`mprobe`].
pub fn improbe(comm: &Comm, source: i32, tag: i32) -> Result<Option<MatchedMessage>> {
    let pattern = pattern(comm, "improbe", source, tag)?;
    comm.engine().improbe(comm.p2p(), pattern).map_err(|fault| Error::fault("improbe", fault))
}

/// Receives a message that was taken.
///
/// # Errors
/// As [`recv`].
///
/// # Safety
/// The contract of a receive buffer.
pub unsafe fn mrecv(comm: &Comm, buf: Buf, message: MatchedMessage) -> Result<Status> {
    const CALL: &str = "mrecv";
    let (source, tag) = (message.envelope().source.cast_signed(), message.envelope().tag);
    let is_disjoint = disjoint(CALL, buf.count(), buf.datatype());
    // SAFETY: the caller's contract, and we wait.
    let target = unsafe { Target::new(buf, None) }.map_err(|error| Error::buf(CALL, error));
    let target = match is_disjoint.and(target) {
        Ok(target) => target,
        // Its sender may be waiting to hear of it.
        Err(error) => {
            discard(comm, message);
            return Err(error);
        }
    };
    let completion = comm.engine().recv_message(message, Receive::new(target.by(comm.path())));
    finish(comm, CALL, &completion, |on| WaitReason::recv(CALL, on, source, tag))
}

/// Throws a message away that was taken; its sender goes on as if it had been received.
pub(crate) fn discard(comm: &Comm, message: MatchedMessage) {
    // SAFETY: there is no room, so that nothing is written.
    if let Ok(nothing) = unsafe { Target::new(Buf::empty(), None) } {
        comm.engine().recv_message(message, Receive::new(nothing));
    }
}

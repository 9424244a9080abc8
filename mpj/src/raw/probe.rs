//! Probes, and the receipt of messages that a probe has extracted.

use std::sync::Arc;

use mpj_devices::{Buf, KeepAlive, MatchedMessage, Receive, Target, WaitReason};

use super::PROC_NULL;
use super::comm::Comm;
use super::p2p::{check_no_overlap, pattern, wait_completion};
use super::request::{OpInfo, Request};
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;

/// Waits for a message that a receive with these arguments would match, without receiving it.
///
/// # Errors
/// The rank or the tag is invalid, the communicator was freed, one of its ranks has died, or the sender has exited.
pub fn probe(comm: &Comm, source: i32, tag: i32) -> Result<Status> {
    if source == PROC_NULL {
        return comm.check_not_freed("probe").map(|()| Status::empty());
    }
    let pattern = pattern(comm, "probe", source, tag)?;
    let message = comm.engine().probe(comm.p2p(), pattern).map_err(|fault| comm.fault("probe", fault))?;
    Ok(Status::of(&message))
}

/// Makes progress once, and returns the status of a message that a receive with these arguments would match.
///
/// # Errors
/// As [`probe`].
pub fn iprobe(comm: &Comm, source: i32, tag: i32) -> Result<Option<Status>> {
    if source == PROC_NULL {
        return comm.check_not_freed("iprobe").map(|()| Some(Status::empty()));
    }
    let pattern = pattern(comm, "iprobe", source, tag)?;
    let found = comm.engine().iprobe(comm.p2p(), pattern).map_err(|fault| comm.fault("iprobe", fault))?;
    Ok(found.map(|message| Status::of(&message)))
}

/// Waits for a message as [`probe`] does, and extracts it: only the returned value can then be used to receive it.
///
/// # Errors
/// As [`probe`]; [`PROC_NULL`] is rejected.
pub fn mprobe(comm: &Comm, source: i32, tag: i32) -> Result<MatchedMessage> {
    mprobe_as(comm, "mprobe", source, tag)
}

pub(crate) fn mprobe_as(comm: &Comm, call: &'static str, source: i32, tag: i32) -> Result<MatchedMessage> {
    let pattern = pattern(comm, call, source, tag)?;
    comm.engine().mprobe(comm.p2p(), pattern, call).map_err(|fault| comm.fault(call, fault))
}

/// Makes progress once, and extracts a matching message if there is one.
///
/// # Errors
/// As [`mprobe`].
pub fn improbe(comm: &Comm, source: i32, tag: i32) -> Result<Option<MatchedMessage>> {
    let pattern = pattern(comm, "improbe", source, tag)?;
    comm.engine().improbe(comm.p2p(), pattern).map_err(|fault| comm.fault("improbe", fault))
}

/// Receives a message that was extracted by [`mprobe`] or [`improbe`].
///
/// # Errors
/// The buffer is invalid, or another rank has extracted the message; the message is then discarded.
/// [`ErrorClass::Truncate`], [`ErrorClass::Type`] and failures of the sender as for [`recv`](super::recv).
///
/// # Safety
/// The contract of a receive buffer.
pub unsafe fn mrecv(comm: &Comm, buf: Buf, message: MatchedMessage) -> Result<Status> {
    const CALL: &str = "mrecv";
    let (source, tag) = (message.envelope().source.cast_signed(), message.envelope().tag);
    // SAFETY: the caller's contract, and we wait until the operation has completed.
    let (message, target) = unsafe { target_for(comm, CALL, buf, message, None)? };
    let completion = message.recv(Receive::new(target));
    wait_completion(comm, CALL, &completion, |on| WaitReason::recv(CALL, on, source, tag))
}

/// Starts to receive a message that was extracted by [`mprobe`] or [`improbe`] (MPI_Imrecv). The operation owns `keep`
/// until it has completed.
///
/// # Errors
/// The buffer is invalid, or another rank has extracted the message; the message is then discarded. The request reports
/// the other errors of [`recv`](super::recv).
///
/// # Safety
/// The contract of a receive buffer.
pub unsafe fn imrecv(
    comm: &Comm,
    buf: Buf,
    message: MatchedMessage,
    keep: Option<KeepAlive>,
) -> Result<Request> {
    const CALL: &str = "imrecv";
    let (source, tag) = (message.envelope().source.cast_signed(), message.envelope().tag);
    // SAFETY: the caller's contract.
    let (message, target) = unsafe { target_for(comm, CALL, buf, message, keep)? };
    let completion = message.recv(Receive::new(target));
    Ok(Request::pending(OpInfo::recv(CALL, source, tag), comm, completion))
}

/// Checks the buffer for an extracted message, and discards the message if the buffer is invalid, because its sender
/// might wait for the match.
///
/// # Safety
/// The contract of a receive buffer.
unsafe fn target_for(
    comm: &Comm,
    call: &'static str,
    buf: Buf,
    message: MatchedMessage,
    keep: Option<KeepAlive>,
) -> Result<(MatchedMessage, Target)> {
    let message = check_matched_here(comm, call, message)?;
    let no_overlap = check_no_overlap(call, buf.count(), buf.datatype());
    // SAFETY: the caller's contract.
    let target = unsafe { Target::new(buf, keep) }.map_err(|error| Error::buf(call, error));
    match no_overlap.and(target) {
        Ok(target) => Ok((message, target.with_path(comm.path()))),
        Err(error) => {
            mdiscard(message);
            Err(error)
        }
    }
}

/// Checks that the rank of the communicator has extracted the message, and otherwise discards the message.
pub(super) fn check_matched_here(
    comm: &Comm,
    call: &'static str,
    message: MatchedMessage,
) -> Result<MatchedMessage> {
    if Arc::ptr_eq(message.engine(), comm.engine()) {
        return Ok(message);
    }
    let (other, own) = (message.engine().site().rank, comm.engine().site().rank);
    mdiscard(message);
    let why = format!(
        "world rank {other} has extracted the message, and the communicator belongs to world rank {own}: use a \
         communicator of the rank that called mprobe"
    );
    Err(Error::new(ErrorClass::Comm, call, why))
}

/// Discards a message that was extracted by [`mprobe`] or [`improbe`]. Its send completes as if the message had been
/// received. An extracted message that is neither received nor discarded is lost, and its sender might wait for ever.
///
/// ```
/// use mpj::raw;
///
/// # mpj::threads(2, |world| {
/// let comm = world.as_raw();
/// if world.rank() == 0 {
///     world.ssend(&[1u8], 1, 0)?; // completes although the message is not received
/// } else {
///     raw::mdiscard(raw::mprobe(comm, 0, 0)?);
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub fn mdiscard(message: MatchedMessage) {
    // SAFETY: the target is empty, so nothing is written.
    if let Ok(nothing) = unsafe { Target::new(Buf::empty(), None) } {
        message.recv(Receive::new(nothing));
    }
}

//! A send and a receive in one call.

use mpj_devices::{Buf, Coalesce, KeepAlive, Mode};

use super::PROC_NULL;
use super::abort_on_unwind::abort_on_unwind;
use super::comm::Comm;
use super::p2p::{irecv_as, isend_as, send_copy, start_send, wait_send};
use super::packed_copy::PackedCopy;
use super::request::{OpInfo, Request};
#[cfg(doc)]
use crate::error::ErrorClass;
use crate::error::Result;
use crate::status::Status;

/// Sends one buffer and receives into another at the same time.
///
/// # Errors
/// As [`send`](super::send) and [`recv`](super::recv). After an error, no operation is pending.
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
    // SAFETY: the caller's contract.
    unsafe { sendrecv_as(comm, "sendrecv", send, dest, send_tag, recv, source, recv_tag) }
}

/// As [`sendrecv`], with the name of the call for errors.
///
/// # Safety
/// The contracts of [`sendrecv`].
#[expect(clippy::too_many_arguments, reason = "those of MPI_Sendrecv, and the name of the call")]
unsafe fn sendrecv_as(
    comm: &Comm,
    call: &'static str,
    send: Buf,
    dest: i32,
    send_tag: i32,
    recv: Buf,
    source: i32,
    recv_tag: i32,
) -> Result<Status> {
    // Check the rank and tag of the send before the receive is posted.
    comm.check_send(call, dest, send_tag)?;
    // SAFETY: the caller's contract; both operations have completed when we return.
    let receiving = unsafe { irecv_as(comm, call, || recv, source, recv_tag, None)? };
    abort_on_unwind(|| {
        let sent = match dest {
            PROC_NULL => Ok(()),
            _ => {
                let how = (Coalesce::No, None);
                // SAFETY: the caller's contract, and we wait until the operation has completed.
                let sent = unsafe { start_send(comm, call, || send, dest, send_tag, Mode::Standard, how) };
                sent.and_then(|sent| wait_send(comm, call, sent, dest, send_tag))
            }
        };
        if sent.is_err() {
            receiving.cancel();
        }
        let received = receiving.wait();
        sent.and(received)
    })
}

/// Sends the contents of a buffer, and receives another message into it at the same time (MPI_Sendrecv_replace). The
/// contents are copied into a pool block first. If the receive fails, they may be overwritten in part.
///
/// # Errors
/// As [`sendrecv`]; [`ErrorClass::NoMem`] if the pool has no block for the contents.
///
/// # Safety
/// The contracts of a send buffer and of a receive buffer.
pub unsafe fn sendrecv_replace(
    comm: &Comm,
    buf: Buf,
    dest: i32,
    send_tag: i32,
    source: i32,
    recv_tag: i32,
) -> Result<Status> {
    const CALL: &str = "sendrecv_replace";
    // SAFETY: the caller's contract.
    let copy = unsafe { PackedCopy::of(CALL, &buf)? };
    // SAFETY: the copy lives until we return, and the caller's contract for the receive.
    unsafe { sendrecv_as(comm, CALL, copy.buf(), dest, send_tag, buf, source, recv_tag) }
}

/// Starts a send and a receive as one operation (MPI_Isendrecv). Each of the two owns a clone of `keep` until it has
/// completed. The status of the request is that of the receive.
///
/// # Errors
/// As [`sendrecv`]. After an error, no operation is pending.
///
/// # Safety
/// The contracts of [`sendrecv`], until the operation has completed.
#[expect(clippy::too_many_arguments, reason = "those of MPI_Isendrecv")]
pub unsafe fn isendrecv(
    comm: &Comm,
    send: Buf,
    dest: i32,
    send_tag: i32,
    recv: Buf,
    source: i32,
    recv_tag: i32,
    keep: Option<KeepAlive>,
) -> Result<Request> {
    const CALL: &str = "isendrecv";
    comm.check_send(CALL, dest, send_tag)?;
    // SAFETY: the caller's contract.
    let receiving = unsafe { irecv_as(comm, CALL, || recv, source, recv_tag, keep.clone())? };
    // SAFETY: as above.
    let sending = unsafe { isend_as(comm, CALL, send, dest, send_tag, Mode::Standard, keep) };
    pair(sending, receiving)
}

/// Starts an exchange in one buffer as one operation (MPI_Isendrecv_replace): see [`sendrecv_replace`] and
/// [`isendrecv`].
///
/// # Errors
/// As [`sendrecv_replace`]. After an error, no operation is pending.
///
/// # Safety
/// The contracts of [`sendrecv_replace`], until the operation has completed.
pub unsafe fn isendrecv_replace(
    comm: &Comm,
    buf: Buf,
    dest: i32,
    send_tag: i32,
    source: i32,
    recv_tag: i32,
    keep: Option<KeepAlive>,
) -> Result<Request> {
    const CALL: &str = "isendrecv_replace";
    comm.check_send(CALL, dest, send_tag)?;
    // SAFETY: the caller's contract.
    let copy = unsafe { PackedCopy::of(CALL, &buf)? };
    // SAFETY: as above.
    let receiving = unsafe { irecv_as(comm, CALL, || buf, source, recv_tag, keep)? };
    let sending = match dest {
        PROC_NULL => Ok(Request::done(Status::empty())),
        _ => send_copy(comm, CALL, copy, (dest, send_tag), Coalesce::Allowed)
            .map(|sent| Request::from_sent(OpInfo::send(CALL, dest, send_tag), comm, sent)),
    };
    pair(sending, receiving)
}

/// Combines the two operations into one request. If the send could not be started, cancels the receive, waits for it,
/// and returns the error of the send.
fn pair(sending: Result<Request>, receiving: Request) -> Result<Request> {
    match sending {
        Ok(sending) => Ok(Request::pair(sending, receiving)),
        Err(error) => {
            receiving.cancel();
            let _ = abort_on_unwind(|| receiving.wait());
            Err(error)
        }
    }
}

//! Persistent requests: operations that are described once and started any number of times (MPI 4.1 §3.9, §6.13).
//!
//! ```text
//!              start               operation completes              wait, test
//!   INACTIVE ----------> ACTIVE ------------------------> COMPLETE ------------> INACTIVE
//! ```

use std::slice::from_ref;
use std::sync::Arc;

use mpj_devices::{Buf, Channel, Engine, Listener};

use super::collective_requests::PersistentCollective;
use super::partitioned_recv::PartReceiver;
use super::partitioned_send::PartSender;
use super::persistent_message::PersistentMessage;
use super::request::OpInfo;
use crate::collective::plan::EMPTY_BUF;
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;

/// A persistent request: a collective of [`collective_init`](super::collective_init), a message of [`send_init`](super::send_init),
/// [`recv_init`](super::recv_init) and the like, or a partitioned message of [`psend_init`](super::psend_init) or
/// [`precv_init`](super::precv_init). It can be started any number of times.
///
/// The functions for several requests, such as [`wait_all`](super::wait_all), accept a [`Request`](super::Request) made
/// from it, and do not replace it by `None`. If it is dropped while it is active, its operation continues; but unready
/// parts are not sent, and a partitioned receive that has not matched is cancelled.
#[derive(Debug)]
pub struct PersistentOperation(Kind);

#[derive(Debug)]
enum Kind {
    Collective(PersistentCollective),
    Message(PersistentMessage),
    PartSender(Box<PartSender>),
    PartReceiver(PartReceiver),
}

/// The buffer of an operation that is not active.
#[derive(Clone, Debug)]
pub(super) struct StoredBuf(pub(super) Buf);

// SAFETY: it is a description; each start has the contract for the access.
unsafe impl Send for StoredBuf {}
// SAFETY: as above.
unsafe impl Sync for StoredBuf {}

#[cold]
pub(crate) fn still_active(call: &'static str) -> Error {
    let why = "the persistent request is active: wait for it before the next start";
    Error::new(ErrorClass::Request, call, why)
}

/// Starts several requests, in their order (MPI_Startall). After an error, those before the failed one are active.
///
/// # Errors
/// As [`PersistentOperation::start`].
///
/// # Safety
/// As [`PersistentOperation::start`], for each of them.
pub unsafe fn start_all<'r>(requests: impl IntoIterator<Item = &'r mut PersistentOperation>) -> Result<()> {
    for request in requests {
        // SAFETY: the caller's contract.
        unsafe { request.start()? };
    }
    Ok(())
}

impl From<PersistentCollective> for PersistentOperation {
    fn from(collective: PersistentCollective) -> Self {
        PersistentOperation(Kind::Collective(collective))
    }
}

impl From<PersistentMessage> for PersistentOperation {
    fn from(message: PersistentMessage) -> Self {
        PersistentOperation(Kind::Message(message))
    }
}

impl From<PartSender> for PersistentOperation {
    fn from(send: PartSender) -> Self {
        PersistentOperation(Kind::PartSender(Box::new(send)))
    }
}

impl From<PartReceiver> for PersistentOperation {
    fn from(recv: PartReceiver) -> Self {
        PersistentOperation(Kind::PartReceiver(recv))
    }
}

impl PersistentOperation {
    /// Starts the operation.
    ///
    /// # Errors
    /// The request is active, or its last outcome was not taken; the communicator was freed; the errors of the started
    /// call, such as [`isend`](super::isend) or [`start`](super::start).
    ///
    /// # Safety
    /// The contract of that call, until the operation has completed.
    pub unsafe fn start(&mut self) -> Result<()> {
        match &mut self.0 {
            // SAFETY: the caller's contract.
            Kind::Collective(collective) => unsafe { collective.start(None) },
            // SAFETY: as above.
            Kind::Message(message) => unsafe { message.start() },
            Kind::PartSender(send) => send.start(),
            // SAFETY: as above.
            Kind::PartReceiver(recv) => unsafe { recv.start() },
        }
    }

    /// Starts the operation with these buffers, which also replace the old ones for later starts. For a collective, they
    /// must have the number, type and memory layout of the items in the `*_init` call. A broadcast and a receive use
    /// only `recv`, a send only `send`.
    ///
    /// # Errors
    /// As [`start`](Self::start); the items of a collective differ in number, type or layout, of which the other ranks
    /// are notified; the message is partitioned.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    pub unsafe fn start_with(&mut self, send: &Buf, recv: &Buf) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.start_with_lists(from_ref(send), from_ref(recv)) }
    }

    /// Starts a collective with a buffer for each rank, as [`start_with`](Self::start_with) does.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with); the number of buffers differs, of which the other ranks are notified.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    pub unsafe fn start_with_lists(&mut self, send: &[Buf], recv: &[Buf]) -> Result<()> {
        match &mut self.0 {
            // SAFETY: the caller's contract.
            Kind::Collective(collective) => unsafe { collective.start(Some((send, recv))) },
            Kind::Message(message) => {
                message.set_buf(send.first().unwrap_or(EMPTY_BUF), recv.first().unwrap_or(EMPTY_BUF));
                // SAFETY: as above.
                unsafe { message.start() }
            }
            Kind::PartSender(_) | Kind::PartReceiver(_) => {
                let why = "a partitioned message keeps the buffer with which it was created: use start";
                Err(Error::new(ErrorClass::Request, self.name(), why))
            }
        }
    }

    /// Starts a message with this buffer, which does not replace the one for later starts.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Safety
    /// As [`start`](Self::start).
    #[inline(always)]
    pub(crate) unsafe fn start_message(&mut self, buf: impl FnOnce() -> Buf) -> Result<()> {
        match &mut self.0 {
            // SAFETY: the caller's contract.
            Kind::Message(message) => unsafe { message.start_with(buf) },
            _ => unreachable!("only requests of messages call this function"),
        }
    }

    /// Sends a part of a partitioned send (MPI_Pready). Several threads may call it at once.
    ///
    /// # Errors
    /// There is no such part, it is ready already, or the request is not active or not a partitioned send; the errors
    /// of a [`send`](super::send), which the operation returns, too.
    ///
    /// # Safety
    /// The contract of a send buffer for the items of the part, until the operation has completed.
    pub unsafe fn pready(&self, part: usize) -> Result<()> {
        match &self.0 {
            // SAFETY: the caller's contract.
            Kind::PartSender(send) => unsafe { send.pready(part) },
            _ => Err(self.not_partitioned("pready")),
        }
    }

    /// Returns the numbers of the parts of a partitioned send that are not ready; empty for another request.
    pub fn unready_parts(&self) -> Vec<usize> {
        match &self.0 {
            Kind::PartSender(send) => send.unready_parts(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn is_unready(&self, part: usize) -> bool {
        matches!(&self.0, Kind::PartSender(send) if send.is_unready(part))
    }

    /// Returns whether a part of a partitioned receive has arrived, so that its items may be read, and makes progress if
    /// it has not (MPI_Parrived). Returns true if the request is not active. Several threads may call it at once.
    ///
    /// # Errors
    /// There is no such part, it could not be received, or the request is not a partitioned receive.
    pub fn parrived(&self, part: usize) -> Result<bool> {
        match &self.0 {
            Kind::PartReceiver(recv) => recv.parrived(part),
            _ => Err(self.not_partitioned("parrived")),
        }
    }

    #[cold]
    fn not_partitioned(&self, call: &'static str) -> Error {
        Error::new(ErrorClass::Request, call, format!("the request of {} has no such parts", self.name()))
    }

    /// Waits until the operation has completed, and returns its status, which is empty for a send or a collective. If
    /// the request is not active, returns an empty status at once.
    ///
    /// # Errors
    /// The error of the operation.
    #[inline]
    pub fn wait(&mut self) -> Result<Status> {
        match &mut self.0 {
            Kind::Collective(collective) => collective.task().wait().map(|()| Status::empty()),
            Kind::Message(message) => message.wait(),
            Kind::PartSender(send) => send.wait(),
            Kind::PartReceiver(recv) => recv.wait(),
        }
    }

    /// Makes progress if the operation is pending; returns its status if it has completed or the request is not active.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn test(&mut self) -> Result<Option<Status>> {
        if self.outcome().is_none()
            && let Some((engine, ..)) = self.wait_target()
        {
            engine.progress();
        }
        if self.outcome().is_some() { self.wait().map(Some) } else { Ok(None) }
    }

    /// Cancels a receive that is active and has not matched, and returns whether it was cancelled. Waiting for it then
    /// fails with [`ErrorClass::Request`].
    pub fn cancel(&self) -> bool {
        match &self.0 {
            Kind::Message(message) => message.cancel(),
            _ => false,
        }
    }

    /// Returns whether the request was started, and its outcome was not taken.
    pub fn is_active(&self) -> bool {
        match &self.0 {
            Kind::Collective(collective) => collective.task().is_active(),
            Kind::Message(message) => message.is_active(),
            Kind::PartSender(send) => send.is_active(),
            Kind::PartReceiver(recv) => recv.is_active(),
        }
    }

    /// Returns the outcome if the operation is not pending, without making progress.
    pub(crate) fn outcome(&self) -> Option<Result<Status>> {
        match &self.0 {
            Kind::Collective(collective) => Some(collective.task().outcome()?.map(|()| Status::empty())),
            Kind::Message(message) => message.outcome(),
            Kind::PartSender(send) => send.outcome(),
            Kind::PartReceiver(recv) => recv.outcome(),
        }
    }

    /// Registers a listener, as [`Request::listen`](super::Request) does. A partitioned message has many completions. It
    /// notifies a task of the next one, and the task must then listen again; it cannot notify a list.
    pub(crate) fn listen(&self, listener: Listener) -> bool {
        match &self.0 {
            Kind::Collective(collective) => collective.task().listen(listener),
            Kind::Message(message) => message.listen(listener),
            Kind::PartSender(send) => return send.listen(listener),
            Kind::PartReceiver(recv) => return recv.listen(listener),
        }
        true
    }

    /// Returns whether a listener is registered and was not notified yet.
    pub(crate) fn is_listening(&self) -> bool {
        match &self.0 {
            Kind::Collective(collective) => collective.task().is_listening(),
            Kind::Message(message) => message.is_listening(),
            Kind::PartSender(send) => send.is_listening(),
            Kind::PartReceiver(recv) => recv.is_listening(),
        }
    }

    /// Adds the name of the communicator to an error.
    #[cold]
    pub(crate) fn named(&self, error: Error) -> Error {
        match self.wait_target() {
            Some((.., channel)) => error.on(channel),
            None => error,
        }
    }

    pub(crate) fn wait_target(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)> {
        match &self.0 {
            Kind::Collective(collective) => Some(OpInfo::collective(collective.task())),
            Kind::Message(message) => message.wait_target(),
            Kind::PartSender(send) => Some(send.wait_target()),
            Kind::PartReceiver(recv) => Some(recv.wait_target()),
        }
    }

    /// Ends an operation that no longer has a handle: cancels an unmatched receive, and waits for any other operation.
    /// The next [`wait`](Self::wait) returns the outcome, but not that of a cancelled receive.
    pub(crate) fn abandon(&mut self) {
        match &mut self.0 {
            Kind::Collective(collective) => collective.task().wait_idle(),
            Kind::Message(message) => message.abandon(),
            // The handles of their rounds can be made again.
            Kind::PartSender(_) | Kind::PartReceiver(_) => (),
        }
    }

    /// Drops the request's clone of the [`KeepAlive`]; no further operation may start.
    pub(crate) fn release_memory(&mut self) {
        match &mut self.0 {
            Kind::Collective(collective) => collective.task().release_memory(),
            Kind::Message(message) => message.release_memory(),
            // The request drops it.
            Kind::PartSender(_) | Kind::PartReceiver(_) => (),
        }
    }

    /// Returns the name of the call that created the request.
    pub(crate) fn name(&self) -> &'static str {
        match &self.0 {
            Kind::Collective(collective) => collective.task().name(),
            Kind::Message(message) => message.name(),
            Kind::PartSender(send) => send.name(),
            Kind::PartReceiver(recv) => recv.name(),
        }
    }
}

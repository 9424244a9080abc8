//! The handle of an operation.

use std::sync::Arc;
use std::time::Duration;

use mpj_devices::{Channel, Completion, Engine, KeepAlive, Listener, Outcome, Sent, WaitReason};

use super::buffered::BufferFlush;
use super::comm::Comm;
use super::generalized::Generalized;
use super::message_op::MessageOp;
use super::persistent::PersistentOperation;
use super::wait_many::{deadline, wait_for_until};
use crate::collective::task::CollectiveTask;
use crate::error::Result;
use crate::status::Status;

/// The handle of an operation. Dropping it neither completes nor cancels the operation, except as
/// [`PersistentOperation`] describes.
#[derive(Debug)]
pub struct Request {
    state: State,
}

#[derive(Debug)]
enum State {
    Done(Status),
    Message(Comm, MessageOp),
    Collective(Arc<CollectiveTask>),
    Persistent(Box<PersistentOperation>),
    Generalized(Arc<Generalized>),
    /// A send and a receive. The status is that of the receive.
    Pair(Box<[Request; 2]>),
    Flush(BufferFlush),
}

impl From<PersistentOperation> for Request {
    fn from(request: PersistentOperation) -> Self {
        Request { state: State::Persistent(Box::new(request)) }
    }
}

/// Describes an operation in errors and wait reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpInfo {
    pub(crate) call: &'static str,
    direction: Direction,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Send { peer: i32, tag: i32 },
    Recv { peer: i32, tag: i32 },
    Collective,
    Generalized,
}

impl OpInfo {
    #[inline]
    pub(crate) fn send(call: &'static str, peer: i32, tag: i32) -> Self {
        OpInfo { call, direction: Direction::Send { peer, tag } }
    }

    #[inline]
    pub(crate) fn recv(call: &'static str, peer: i32, tag: i32) -> Self {
        OpInfo { call, direction: Direction::Recv { peer, tag } }
    }

    pub(super) fn generalized(call: &'static str) -> Self {
        OpInfo { call, direction: Direction::Generalized }
    }

    pub(crate) fn collective(task: &CollectiveTask) -> (&Arc<Engine>, Self, &Arc<Channel>) {
        let (info, context) =
            (OpInfo { call: task.name(), direction: Direction::Collective }, task.context());
        (context.engine(), info, context.channel())
    }

    #[inline]
    pub(crate) fn to_result(self, comm: &Comm, outcome: &Outcome) -> Result<Status> {
        match (outcome, self.direction) {
            (Ok(_), Direction::Send { .. }) => Ok(Status::empty()),
            (Ok(message), _) => Ok(Status::of(message)),
            (Err(fault), _) => Err(comm.fault(self.call, fault.clone())),
        }
    }

    pub(crate) fn wait_reason(self, channel: &Arc<Channel>) -> WaitReason {
        match self.direction {
            Direction::Send { peer, tag } => WaitReason::send(self.call, channel, peer, tag),
            Direction::Recv { peer, tag } => WaitReason::recv(self.call, channel, peer, tag),
            Direction::Collective => WaitReason::collective(self.call, channel),
            Direction::Generalized => WaitReason::call(self.call),
        }
    }
}

impl Request {
    pub(crate) fn done(status: Status) -> Self {
        Request { state: State::Done(status) }
    }

    pub(super) fn collective(task: Arc<CollectiveTask>) -> Self {
        Request { state: State::Collective(task) }
    }

    pub(super) fn pair(sending: Request, receiving: Request) -> Self {
        Request { state: State::Pair(Box::new([sending, receiving])) }
    }

    pub(super) fn flush(flush: BufferFlush) -> Self {
        Request { state: State::Flush(flush) }
    }

    pub(super) fn generalized(shared: Arc<Generalized>) -> Self {
        Request { state: State::Generalized(shared) }
    }

    #[inline]
    pub(crate) fn from_sent(info: OpInfo, comm: &Comm, sent: Sent) -> Self {
        match sent {
            Sent::Posted => Request::done(Status::empty()),
            sent => Request { state: State::Message(comm.clone(), MessageOp::send(info, sent)) },
        }
    }

    #[inline]
    pub(crate) fn pending(info: OpInfo, comm: &Comm, completion: Completion) -> Self {
        Request { state: State::Message(comm.clone(), MessageOp::recv(info, completion)) }
    }

    /// Returns the outcome if the operation has completed, without making progress.
    pub(crate) fn outcome(&self) -> Option<Result<Status>> {
        match &self.state {
            State::Done(status) => Some(Ok(*status)),
            State::Message(comm, op) => op.outcome(comm),
            State::Collective(task) => Some(task.outcome()?.map(|()| Status::empty())),
            State::Persistent(request) => request.outcome(),
            State::Generalized(shared) => shared.outcome(),
            State::Pair(pair) => {
                let [sent, received] = pair.each_ref().map(Request::outcome);
                sent.zip(received).map(|(sent, received)| sent.and(received))
            }
            State::Flush(flush) => flush.outcome(),
        }
    }

    /// Returns the outcome if this is a send or a receive that was pending, and has completed.
    #[inline(always)]
    pub(crate) fn completed_outcome(&self) -> Option<Result<Status>> {
        match &self.state {
            State::Message(comm, op) => op.completed_outcome(comm),
            _ => None,
        }
    }

    /// Returns the persistent operation from which this request was made, for example to mark a part ready.
    pub fn persistent(&self) -> Option<&PersistentOperation> {
        match &self.state {
            State::Persistent(request) => Some(request),
            _ => None,
        }
    }

    /// Returns that persistent operation mutably, for example to start it.
    pub fn persistent_mut(&mut self) -> Option<&mut PersistentOperation> {
        match &mut self.state {
            State::Persistent(request) => Some(request),
            _ => None,
        }
    }

    /// Returns whether a wait for several requests includes this one: false if it is persistent and not active.
    pub(super) fn is_active(&self) -> bool {
        !matches!(&self.state, State::Persistent(request) if !request.is_active())
    }

    /// Waits until the operation has completed.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn wait(self) -> Result<Status> {
        match self.state {
            State::Done(status) => Ok(status),
            State::Message(comm, op) => op.wait(&comm),
            State::Collective(task) => task.wait().map(|()| Status::empty()),
            State::Persistent(mut request) => request.wait(),
            State::Generalized(shared) => shared.wait(),
            State::Pair(pair) => {
                let [sending, receiving] = *pair;
                let sent = sending.wait();
                if sent.is_err() {
                    receiving.cancel();
                }
                let received = receiving.wait();
                sent.and(received)
            }
            State::Flush(flush) => flush.wait(),
        }
    }

    /// Makes progress if the operation is pending, and returns its status if it has completed. The request stays as it
    /// is, so a later test returns the same (MPI_Request_get_status).
    ///
    /// # Errors
    /// The error of the operation.
    pub fn test(&self) -> Result<Option<Status>> {
        if let State::Message(comm, op) = &self.state {
            op.flush(comm);
        }
        if let Some(status) = self.status() {
            return status.map(Some);
        }
        if let Some((engine, ..)) = self.wait_target() {
            engine.progress();
        }
        self.status().transpose()
    }

    /// Returns what [`wait`](Self::wait) would return if the operation has completed, without making progress.
    pub(super) fn status(&self) -> Option<Result<Status>> {
        let outcome = self.outcome()?;
        match &self.state {
            State::Generalized(shared) => Some(shared.query(outcome)),
            _ => Some(outcome),
        }
    }

    /// Waits at most for `limit`, and returns the status if the operation has completed. If it is pending, makes
    /// progress at least once.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn wait_timeout(&self, limit: Duration) -> Result<Option<Status>> {
        let is_complete = || self.outcome().map(drop);
        match wait_for_until(std::slice::from_ref(self), false, deadline(limit), is_complete) {
            None => Ok(None),
            Some(()) => self.test(),
        }
    }

    /// Cancels a receive that has not matched, and returns whether it was cancelled. A cancelled receive is complete, with
    /// an error that [says so](crate::Error::is_cancelled). For a generalized request, calls its [hook](super::CancelHook); its
    /// [`Completer`](super::Completer) can then complete it with a [cancelled](Status::set_cancelled) status.
    pub fn cancel(&self) -> bool {
        match &self.state {
            State::Done(_) | State::Collective(_) | State::Pair(_) | State::Flush(_) => false,
            State::Message(comm, op) => op.cancel(comm),
            State::Persistent(request) => request.cancel(),
            State::Generalized(shared) => shared.cancel(),
        }
    }

    /// Drops the handle now, and the owner of the operation's memory when the operation has completed.
    pub(crate) fn drop_with_memory(self, owner: KeepAlive) {
        match self.state {
            State::Done(_) => drop(owner),
            State::Message(_, op) => op.drop_with_memory(owner),
            // The other operations own their memory, so no caller gets here.
            _ => std::mem::forget(owner),
        }
    }

    /// Registers the listener of the operation, or notifies it if the operation completed when it was started. Returns
    /// false if the operation cannot notify a listener: the caller must poll.
    pub(crate) fn listen(&self, listener: Listener) -> bool {
        match &self.state {
            State::Done(_) => listener.notify(),
            State::Message(_, op) => op.listen(listener),
            State::Collective(task) => task.listen(listener),
            State::Persistent(request) => return request.listen(listener),
            State::Generalized(request) => request.listen(listener),
            State::Pair(_) | State::Flush(_) => return false,
        }
        true
    }

    /// Returns whether a listener is registered and was not notified yet.
    pub(crate) fn is_listening(&self) -> bool {
        match &self.state {
            State::Done(_) => false,
            State::Message(_, op) => op.is_listening(),
            State::Collective(task) => task.is_listening(),
            State::Persistent(request) => request.is_listening(),
            State::Generalized(request) => request.is_listening(),
            State::Pair(_) | State::Flush(_) => false,
        }
    }

    /// Returns the engine, the description and the channel of a pending operation; `None` if it completed at its start.
    pub(crate) fn wait_target(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)> {
        match &self.state {
            State::Done(_) => None,
            State::Message(comm, op) => op.wait_target(comm),
            State::Collective(task) => Some(OpInfo::collective(task)),
            State::Persistent(request) => request.wait_target(),
            State::Generalized(shared) => Some(shared.wait_target()),
            State::Pair(pair) => pair.iter().find(|request| request.outcome().is_none())?.wait_target(),
            State::Flush(flush) => Some(flush.wait_target()),
        }
    }
}

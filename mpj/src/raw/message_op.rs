//! A send or a receive that was started.

use std::sync::Arc;

use mpj_devices::{Channel, Completion, Engine, KeepAlive, Listener, Sent};

use super::comm::Comm;
use super::request::OpInfo;
use crate::error::Result;
use crate::status::Status;

/// A send or a receive that was started, without a handle of its communicator.
#[derive(Debug)]
pub(super) struct MessageOp {
    info: OpInfo,
    state: Sent,
}

impl MessageOp {
    #[inline]
    pub(super) fn send(info: OpInfo, sent: Sent) -> Self {
        MessageOp { info, state: sent }
    }

    #[inline]
    pub(super) fn recv(info: OpInfo, completion: Completion) -> Self {
        MessageOp { info, state: Sent::Pending(completion) }
    }

    #[inline]
    fn completion(&self) -> Option<&Completion> {
        match &self.state {
            Sent::Posted | Sent::Coalesced => None,
            Sent::Pending(completion) => Some(completion),
        }
    }

    /// Returns the outcome if the operation has completed, without making progress.
    pub(super) fn outcome(&self, comm: &Comm) -> Option<Result<Status>> {
        match self.state {
            Sent::Posted | Sent::Coalesced => Some(Ok(Status::empty())),
            Sent::Pending(_) => self.completed_outcome(comm),
        }
    }

    /// Returns the outcome if the operation was pending and has completed.
    #[inline(always)]
    pub(super) fn completed_outcome(&self, comm: &Comm) -> Option<Result<Status>> {
        self.completion()?.outcome().map(|outcome| self.info.to_result(comm, outcome))
    }

    #[inline]
    pub(super) fn wait(self, comm: &Comm) -> Result<Status> {
        self.flush(comm);
        let Sent::Pending(completion) = self.state else { return Ok(Status::empty()) };
        comm.engine().wait_map(
            &completion,
            |outcome| self.info.to_result(comm, outcome),
            || self.info.wait_reason(comm.p2p()),
        )
    }

    /// Sends the message now if it is delayed to coalesce it with others.
    #[inline]
    pub(super) fn flush(&self, comm: &Comm) {
        if let Sent::Coalesced = self.state {
            comm.engine().flush_coalesced();
        }
    }

    /// Cancels a receive that has not matched, and returns whether it was cancelled.
    pub(super) fn cancel(&self, comm: &Comm) -> bool {
        self.completion().is_some_and(|completion| comm.engine().cancel_receive(comm.p2p(), completion))
    }

    /// Drops the operation now, and the owner of its memory when it has completed.
    pub(super) fn drop_with_memory(self, owner: KeepAlive) {
        match self.state {
            Sent::Posted | Sent::Coalesced => drop(owner),
            Sent::Pending(completion) => completion.drop_with_memory(owner),
        }
    }

    pub(super) fn listen(&self, listener: Listener) {
        match self.completion() {
            None => listener.notify(),
            Some(completion) => completion.listen(listener),
        }
    }

    pub(super) fn is_listening(&self) -> bool {
        self.completion().is_some_and(Completion::is_listening)
    }

    /// Returns the engine, the description and the channel of the operation, unless it completed at its start.
    pub(super) fn wait_target<'a>(
        &'a self,
        comm: &'a Comm,
    ) -> Option<(&'a Arc<Engine>, OpInfo, &'a Arc<Channel>)> {
        self.completion().map(|_| (comm.engine(), self.info, comm.p2p()))
    }
}

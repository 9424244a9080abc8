//! A handle of an operation under way.

use std::sync::Arc;

use mpj_devices::{Completion, Engine, Started};

use super::comm::Comm;
use crate::error::{Error, Result};
use crate::status::Status;

/// An operation under way. Dropping the handle neither ends nor cancels it.
#[derive(Debug)]
pub struct Request {
    call: &'static str,
    state: State,
}

#[derive(Debug)]
enum State {
    Done(Status),
    Failed(Error),
    Pending { comm: Comm, completion: Completion },
}

impl Request {
    pub(crate) fn done(call: &'static str, status: Status) -> Self {
        Request { call, state: State::Done(status) }
    }

    /// An operation that has failed already.
    pub(crate) fn failed(error: Error) -> Self {
        Request { call: error.call(), state: State::Failed(error) }
    }

    #[inline]
    pub(crate) fn of(call: &'static str, comm: &Comm, started: Started) -> Self {
        match started {
            Started::Done(message) => Request::done(call, Status::of(&message)),
            Started::Pending(completion) => {
                Request { call, state: State::Pending { comm: comm.clone(), completion } }
            }
        }
    }

    /// Returns the outcome if the operation has ended, without looking for news.
    pub(crate) fn outcome(&self) -> Option<Result<Status>> {
        match &self.state {
            State::Done(status) => Some(Ok(*status)),
            State::Failed(error) => Some(Err(error.clone())),
            State::Pending { completion, .. } => completion.outcome().map(|outcome| match outcome {
                Ok(message) => Ok(Status::of(message)),
                Err(fault) => Err(Error::fault(self.call, fault.clone())),
            }),
        }
    }

    /// Waits until the operation has ended.
    ///
    /// # Errors
    /// What it failed with; it has ended all the same.
    pub fn wait(self) -> Result<Status> {
        match self.state {
            State::Done(status) => Ok(status),
            State::Failed(error) => Err(error),
            State::Pending { comm, completion } => comm
                .engine()
                .wait(Started::Pending(completion))
                .map(|message| Status::of(&message))
                .map_err(|fault| Error::fault(self.call, fault)),
        }
    }

    /// Looks for news once and returns the outcome if the operation has ended.
    ///
    /// # Errors
    /// What it failed with.
    pub fn test(&self) -> Result<Option<Status>> {
        if let State::Pending { comm, completion } = &self.state
            && completion.outcome().is_none()
        {
            comm.engine().progress();
        }
        self.outcome().transpose()
    }

    /// Takes a receive back that has not matched; returns whether it was taken back. It has ended then.
    pub fn cancel(&self) -> bool {
        match &self.state {
            State::Done(_) | State::Failed(_) => false,
            State::Pending { comm, completion } => comm.engine().cancel(comm.p2p(), completion),
        }
    }

    pub(crate) fn engine(&self) -> Option<&Arc<Engine>> {
        match &self.state {
            State::Done(_) | State::Failed(_) => None,
            State::Pending { comm, .. } => Some(comm.engine()),
        }
    }
}

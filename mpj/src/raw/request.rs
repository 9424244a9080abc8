//! A handle of an operation under way.

use std::sync::Arc;

use mpj_devices::{Channel, Completion, Engine, Started, Wait};

use super::comm::Comm;
use crate::collective::task::Task;
use crate::error::{Error, Result};
use crate::status::Status;

/// An operation under way. Dropping the handle neither ends nor cancels it.
#[derive(Debug)]
pub struct Request {
    state: State,
}

#[derive(Debug)]
enum State {
    Done(Status),
    Failed(Error),
    Pending { about: About, comm: Comm, completion: Completion },
    Collective(Arc<Task>),
}

/// How errors and reports name an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) call: &'static str,
    way: Way,
}

/// Which way its messages go.
#[derive(Clone, Copy, Debug)]
enum Way {
    To { peer: i32, tag: i32 },
    From { peer: i32, tag: i32 },
    Around,
}

impl About {
    #[inline]
    pub(crate) fn send(call: &'static str, peer: i32, tag: i32) -> Self {
        About { call, way: Way::To { peer, tag } }
    }

    #[inline]
    pub(crate) fn recv(call: &'static str, peer: i32, tag: i32) -> Self {
        About { call, way: Way::From { peer, tag } }
    }

    /// What a thread waits for that waits for the operation to end.
    pub(crate) fn wait(self, channel: &Arc<Channel>) -> Wait {
        match self.way {
            Way::To { peer, tag } => Wait::send(self.call, channel, peer, tag),
            Way::From { peer, tag } => Wait::recv(self.call, channel, peer, tag),
            Way::Around => Wait::collective(self.call, channel),
        }
    }
}

impl Request {
    pub(crate) fn done(status: Status) -> Self {
        Request { state: State::Done(status) }
    }

    /// An operation that has failed already.
    pub(crate) fn failed(error: Error) -> Self {
        Request { state: State::Failed(error) }
    }

    /// A collective that the engine drives.
    pub(super) fn collective(task: Arc<Task>) -> Self {
        Request { state: State::Collective(task) }
    }

    #[inline]
    pub(crate) fn of(about: About, comm: &Comm, started: Started) -> Self {
        match started {
            Started::Done(message) => Request::done(Status::of(&message)),
            Started::Pending(completion) => {
                Request { state: State::Pending { about, comm: comm.clone(), completion } }
            }
        }
    }

    /// Returns the outcome if the operation has ended, without looking for news.
    pub(crate) fn outcome(&self) -> Option<Result<Status>> {
        match &self.state {
            State::Done(status) => Some(Ok(*status)),
            State::Failed(error) => Some(Err(error.clone())),
            State::Pending { about, completion, .. } => completion.outcome().map(|outcome| match outcome {
                Ok(message) => Ok(Status::of(message)),
                Err(fault) => Err(Error::fault(about.call, fault.clone())),
            }),
            State::Collective(task) => Some(task.outcome()?.map(|()| Status::empty())),
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
            State::Pending { about, comm, completion } => comm
                .engine()
                .wait_as(Started::Pending(completion), || about.wait(comm.p2p()))
                .map(|message| Status::of(&message))
                .map_err(|fault| Error::fault(about.call, fault)),
            State::Collective(task) => task.wait().map(|()| Status::empty()),
        }
    }

    /// Looks for news once and returns the outcome if the operation has ended.
    ///
    /// # Errors
    /// What it failed with.
    pub fn test(&self) -> Result<Option<Status>> {
        if let Some((engine, ..)) = self.open()
            && self.outcome().is_none()
        {
            engine.progress();
        }
        self.outcome().transpose()
    }

    /// Takes a receive back that has not matched; returns whether it was taken back. It has ended then.
    pub fn cancel(&self) -> bool {
        match &self.state {
            State::Done(_) | State::Failed(_) | State::Collective(_) => false,
            State::Pending { comm, completion, .. } => comm.engine().cancel(comm.p2p(), completion),
        }
    }

    /// Returns what makes progress for it, and what it waits for; nothing does once it has ended.
    pub(crate) fn open(&self) -> Option<(&Arc<Engine>, About, &Arc<Channel>)> {
        match &self.state {
            State::Done(_) | State::Failed(_) => None,
            State::Pending { about, comm, .. } => Some((comm.engine(), *about, comm.p2p())),
            State::Collective(task) => {
                let (about, context) = (About { call: task.name(), way: Way::Around }, task.context());
                Some((context.engine(), about, context.channel()))
            }
        }
    }
}

//! A handle of an operation under way.

use std::sync::Arc;

use mpj_devices::{Channel, Completion, Engine, Outcome, Sent, Wait};

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
    /// A send that has ended and whose message may be held back.
    Held(Comm),
    Pending {
        about: About,
        comm: Comm,
        completion: Completion,
    },
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

    /// What makes progress for a collective, and what it waits for.
    pub(crate) fn collective(task: &Task) -> (&Arc<Engine>, Self, &Arc<Channel>) {
        let (about, context) = (About { call: task.name(), way: Way::Around }, task.context());
        (context.engine(), about, context.channel())
    }

    /// What the operation came to, as its caller is told. Of a message that was sent the status says nothing.
    #[inline]
    pub(crate) fn told(self, outcome: &Outcome) -> Result<Status> {
        match (outcome, self.way) {
            (Ok(_), Way::To { .. }) => Ok(Status::empty()),
            (Ok(message), _) => Ok(Status::of(message)),
            (Err(fault), _) => Err(Error::fault(self.call, fault.clone())),
        }
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

    /// A collective that the engine drives.
    pub(super) fn collective(task: Arc<Task>) -> Self {
        Request { state: State::Collective(task) }
    }

    /// A send, however far it has come.
    #[inline]
    pub(crate) fn sending(about: About, comm: &Comm, sent: Sent) -> Self {
        match sent {
            Sent::Left => Request::done(Status::empty()),
            Sent::Held => Request { state: State::Held(comm.clone()) },
            Sent::Pending(completion) => Request::pending(about, comm, completion),
        }
    }

    /// An operation that may have ended.
    #[inline]
    pub(crate) fn pending(about: About, comm: &Comm, completion: Completion) -> Self {
        Request { state: State::Pending { about, comm: comm.clone(), completion } }
    }

    /// Returns the outcome if the operation has ended, without looking for news.
    pub(crate) fn outcome(&self) -> Option<Result<Status>> {
        match &self.state {
            State::Done(status) => Some(Ok(*status)),
            State::Held(_) => Some(Ok(Status::empty())),
            State::Pending { about, completion, .. } => {
                completion.outcome().map(|outcome| about.told(outcome))
            }
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
            State::Held(comm) => {
                comm.engine().flush_held();
                Ok(Status::empty())
            }
            State::Pending { about, comm, completion } => {
                comm.engine().wait_and(&completion, |outcome| about.told(outcome), || about.wait(comm.p2p()))
            }
            State::Collective(task) => task.wait().map(|()| Status::empty()),
        }
    }

    /// Looks for news once and returns the outcome if the operation has ended.
    ///
    /// # Errors
    /// What it failed with.
    pub fn test(&self) -> Result<Option<Status>> {
        if let State::Held(comm) = &self.state {
            comm.engine().flush_held();
        }
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
            State::Done(_) | State::Held(_) | State::Collective(_) => false,
            State::Pending { comm, completion, .. } => comm.engine().cancel(comm.p2p(), completion),
        }
    }

    /// Returns what makes progress for it, and what it waits for; nothing does once it has ended.
    pub(crate) fn open(&self) -> Option<(&Arc<Engine>, About, &Arc<Channel>)> {
        match &self.state {
            State::Done(_) | State::Held(_) => None,
            State::Pending { about, comm, .. } => Some((comm.engine(), *about, comm.p2p())),
            State::Collective(task) => Some(About::collective(task)),
        }
    }
}

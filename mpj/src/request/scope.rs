//! Requests that borrow their buffer for the time of a scope.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mpj_devices::{Mode, Outcome, Started};

use super::desk::{Desk, Place};
use super::together::{Waitable, Watch};
use crate::comm::Intracomm;
use crate::endpoint::{Dest, Source, Tag};
use crate::error::{Error, Result};
use crate::raw::{self, About};
use crate::status::Status;
use crate::types::{RecvBuf, SendBuf};

/// A scope in which operations borrow buffers: see [`Intracomm::scope`].
///
/// # Invariants
/// 1. Every operation that borrows a buffer for `'scope` is kept at the desk, or has ended.
/// 2. `enter` returns only when every operation at the desk has ended.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    desk: Desk,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'env> Scope<'_, 'env> {
    pub(crate) fn enter<F, R>(comm: &'env Intracomm, f: F) -> R
    where
        F: for<'s> FnOnce(&'s Scope<'s, 'env>) -> R,
    {
        let scope = Scope { desk: Desk::new(comm.clone()), scope: PhantomData, env: PhantomData };
        let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        // SAFETY: `'s` has ended with `f`, and with it whatever held a place.
        unsafe { scope.desk.close(result.is_err()) };
        match result {
            Ok(value) => value,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a send (MPI_Isend).
    ///
    /// # Errors
    /// As [`Intracomm::send`].
    pub fn isend<B: SendBuf + ?Sized>(
        &'scope self,
        buf: &'scope B,
        dest: impl Into<Dest>,
        tag: i32,
    ) -> Result<ScopedSend<'scope>> {
        self.isend_as("isend", buf, dest.into(), tag, Mode::Standard)
    }

    /// Starts a send that ends when the message has been matched (MPI_Issend).
    ///
    /// # Errors
    /// As [`Intracomm::send`].
    pub fn issend<B: SendBuf + ?Sized>(
        &'scope self,
        buf: &'scope B,
        dest: impl Into<Dest>,
        tag: i32,
    ) -> Result<ScopedSend<'scope>> {
        self.isend_as("issend", buf, dest.into(), tag, Mode::Synchronous)
    }

    fn isend_as<B: SendBuf + ?Sized>(
        &'scope self,
        call: &'static str,
        buf: &'scope B,
        dest: Dest,
        tag: i32,
        mode: Mode,
    ) -> Result<ScopedSend<'scope>> {
        let (comm, dest) = (self.desk.comm().as_raw(), dest.number());
        let about = About::send(call, dest, tag);
        let buf = buf.send_buf();
        if dest == raw::PROC_NULL {
            let state = comm.usable(call).map(|()| State::Done(Ok(Status::empty())))?;
            return Ok(ScopedSend { desk: &self.desk, about, state });
        }
        // SAFETY: the buffer is borrowed for `'scope`, which ends after `enter` has returned; invariants 1 and 2.
        let started = unsafe { raw::start_send(comm, call, buf, dest, tag, mode, None)? };
        Ok(ScopedSend { desk: &self.desk, about, state: State::of(&self.desk, started) })
    }

    /// Starts a receive (MPI_Irecv). Dropping the request before a message has matched takes the receive back.
    ///
    /// # Errors
    /// As [`Intracomm::recv`].
    pub fn irecv<B: RecvBuf + ?Sized>(
        &'scope self,
        buf: &'scope mut B,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<ScopedRecv<'scope, B>> {
        let buf: *mut B = buf;
        // SAFETY: the pointer comes from the borrow we were given, and no other reference is live.
        let into = unsafe { &mut *buf }.recv_buf();
        let (comm, source, tag) = (self.desk.comm().as_raw(), source.into().number(), tag.into().number());
        let state = if source == raw::PROC_NULL {
            comm.usable(IRECV).map(|()| State::Done(Ok(Status::empty())))?
        } else {
            // SAFETY: as in `isend_as`, and the borrow is exclusive.
            match unsafe { raw::start_recv(comm, IRECV, into, source, tag, None) } {
                Ok(started) => State::of(&self.desk, started),
                Err(error) if raw::told_at_the_end(&error) => State::Done(Err(error)),
                Err(error) => return Err(error),
            }
        };
        let about = About::recv(IRECV, source, tag);
        Ok(ScopedRecv { desk: &self.desk, about, state: Some(state), buf, borrow: PhantomData })
    }
}

/// How errors name a scoped receive.
const IRECV: &str = "irecv";

/// How far an operation of a scope has come.
#[derive(Debug)]
pub(super) enum State {
    Done(Result<Status>),
    Open(Place),
}

impl State {
    #[inline]
    fn of(desk: &Desk, started: Started) -> Self {
        match started {
            Started::Done(message) => State::Done(Ok(Status::of(&message))),
            Started::Pending(completion) => State::Open(desk.keep(completion)),
        }
    }

    #[inline]
    fn wait(self, desk: &Desk, about: About) -> Result<Status> {
        match self {
            State::Done(outcome) => outcome,
            State::Open(place) => told(desk.settle(place, about), about.call),
        }
    }

    /// Returns the outcome if the operation has ended, without looking for news.
    pub(super) fn outcome(&self, desk: &Desk, call: &'static str) -> Option<Result<Status>> {
        match self {
            State::Done(outcome) => Some(outcome.clone()),
            State::Open(place) => desk.outcome(place).map(|outcome| told(outcome, call)),
        }
    }

    fn test(&self, desk: &Desk, call: &'static str) -> Result<bool> {
        let outcome = self.outcome(desk, call).or_else(|| {
            desk.comm().as_raw().engine().progress();
            self.outcome(desk, call)
        });
        outcome.map_or(Ok(false), |outcome| outcome.map(|_| true))
    }

    fn cancel(&self, desk: &Desk) -> bool {
        matches!(self, State::Open(place) if desk.cancel(place))
    }
}

#[inline]
fn told(outcome: Outcome, call: &'static str) -> Result<Status> {
    outcome.map(|message| Status::of(&message)).map_err(|fault| Error::fault(call, fault))
}

/// A send that borrows its buffer.
#[derive(Debug)]
pub struct ScopedSend<'scope> {
    desk: &'scope Desk,
    about: About,
    state: State,
}

impl ScopedSend<'_> {
    /// Waits until the operation has ended.
    ///
    /// # Errors
    /// What it failed with.
    pub fn wait(self) -> Result<Status> {
        self.state.wait(self.desk, self.about)
    }

    /// Looks for news once and tells whether the operation has ended.
    ///
    /// # Errors
    /// What it failed with.
    pub fn test(&self) -> Result<bool> {
        self.state.test(self.desk, self.about.call)
    }
}

impl Waitable for ScopedSend<'_> {
    type Outcome = Result<Status>;

    fn wait(self) -> Self::Outcome {
        ScopedSend::wait(self)
    }

    fn watch(&self) -> Watch<'_> {
        Watch::scoped(self.desk, Some(&self.state), self.about)
    }
}

/// A receive that borrows its buffer.
#[derive(Debug)]
#[must_use = "a receive that is dropped before it matches is taken back"]
pub struct ScopedRecv<'scope, B: ?Sized> {
    desk: &'scope Desk,
    about: About,
    state: Option<State>,
    buf: *mut B,
    borrow: PhantomData<&'scope mut B>,
}

// SAFETY: it stands for a `&'scope mut B`.
unsafe impl<B: Send + ?Sized> Send for ScopedRecv<'_, B> {}

impl<'scope, B: ?Sized> ScopedRecv<'scope, B> {
    /// Waits until the operation has ended and gives the borrow back.
    ///
    /// # Errors
    /// What it failed with; the buffer is free when the scope ends.
    pub fn wait(mut self) -> Result<(&'scope mut B, Status)> {
        let status = match self.state.take() {
            Some(state) => state.wait(self.desk, self.about)?,
            None => Status::empty(),
        };
        // SAFETY: the operation has ended, so that nobody else uses the buffer borrowed for `'scope`, and `self`, which
        // held the borrow, is used up.
        Ok((unsafe { &mut *self.buf }, status))
    }

    /// Looks for news once and tells whether the operation has ended.
    ///
    /// # Errors
    /// What it failed with.
    pub fn test(&self) -> Result<bool> {
        self.state.as_ref().map_or(Ok(true), |state| state.test(self.desk, IRECV))
    }

    /// Takes the receive back if it has not matched.
    pub fn cancel(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.cancel(self.desk))
    }
}

impl<'scope, B: ?Sized> Waitable for ScopedRecv<'scope, B> {
    type Outcome = Result<(&'scope mut B, Status)>;

    fn wait(self) -> Self::Outcome {
        ScopedRecv::wait(self)
    }

    fn watch(&self) -> Watch<'_> {
        Watch::scoped(self.desk, self.state.as_ref(), self.about)
    }
}

impl<B: ?Sized> Drop for ScopedRecv<'_, B> {
    fn drop(&mut self) {
        self.cancel();
    }
}

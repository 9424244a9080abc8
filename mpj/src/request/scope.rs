//! Requests that borrow their buffer for the duration of a scope.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use mpj_devices::{Coalesce, Mode, Sent};

use super::owned::consumed_error;
use super::scope_ops::{InlineMemory, OpSlot, ScopeOps};
use super::wait_many::{RequestRef, Waitable};
use crate::address::{Dest, IntoDest, IntoSource, Tag};
#[cfg(doc)]
use crate::comm::Communicator;
use crate::error::Result;
use crate::raw::{self, OpInfo};
use crate::status::Status;
use crate::types::{RecvBuf, SendBuf};

/// A scope in which operations borrow buffers: see [`Communicator::scope`].
///
/// # Invariants
/// 1. `ops` holds every pending operation that borrows a buffer for `'scope`.
/// 2. `enter` returns only after every operation in `ops` has completed.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    ops: ScopeOps<'scope>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'env> Scope<'_, 'env> {
    pub(crate) fn enter<F, R>(comm: &'env raw::Comm, f: F) -> R
    where
        F: for<'s> FnOnce(&'s Scope<'s, 'env>) -> R,
    {
        let mut memory = InlineMemory::new();
        let scope = Scope { ops: ScopeOps::new(comm, &mut memory), scope: PhantomData, env: PhantomData };
        let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        // SAFETY: `'s` ended when `f` returned, so no value that owned an `OpSlot` can be used any more.
        unsafe { scope.ops.close(result.is_err()) };
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
    /// As [`Communicator::send`].
    pub fn isend<B: SendBuf + ?Sized>(
        &'scope self,
        buf: &'scope B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<ScopedSend<'scope>> {
        self.isend_as("isend", buf, dest.into_dest(), tag, Mode::Standard)
    }

    /// Starts a send that completes when the message has been matched (MPI_Issend).
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn issend<B: SendBuf + ?Sized>(
        &'scope self,
        buf: &'scope B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<ScopedSend<'scope>> {
        self.isend_as("issend", buf, dest.into_dest(), tag, Mode::Synchronous)
    }

    fn isend_as<B: SendBuf + ?Sized>(
        &'scope self,
        call: &'static str,
        buf: &'scope B,
        dest: Dest,
        tag: i32,
        mode: Mode,
    ) -> Result<ScopedSend<'scope>> {
        let (comm, dest) = (self.ops.comm(), dest.number());
        if dest == raw::PROC_NULL {
            comm.check_not_freed(call)?;
            return Ok(ScopedSend { ops: &self.ops, state: State::Complete });
        }
        // SAFETY: the buffer is borrowed for `'scope`, which ends after `enter` has returned; invariants 1 and 2.
        let sent = unsafe {
            raw::start_send(comm, call, || buf.send_buf(), dest, tag, mode, (Coalesce::Allowed, None))?
        };
        let state = match sent {
            Sent::Posted => State::Complete,
            Sent::Coalesced => State::Coalesced,
            Sent::Pending(completion) => {
                State::Pending(self.ops.insert(completion, OpInfo::send(call, dest, tag)))
            }
        };
        Ok(ScopedSend { ops: &self.ops, state })
    }

    /// Starts a receive (MPI_Irecv). Dropping the request before a message has matched cancels the receive.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    pub fn irecv<B: RecvBuf + ?Sized>(
        &'scope self,
        buf: &'scope mut B,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<ScopedRecv<'scope, B>> {
        let buf: *mut B = buf;
        // SAFETY: the pointer comes from the argument `buf`, and no other reference is used while this one lives.
        let into = || unsafe { &mut *buf }.recv_buf();
        let (comm, source, tag) = (self.ops.comm(), source.into_source().number(), tag.into().number());
        let state = if source == raw::PROC_NULL {
            comm.check_not_freed(IRECV)?;
            State::Complete
        } else {
            // SAFETY: as in `isend_as`, and the borrow is exclusive.
            let completion = unsafe { raw::start_recv(comm, IRECV, into, source, tag, None)? };
            State::Pending(self.ops.insert(completion, OpInfo::recv(IRECV, source, tag)))
        };
        Ok(ScopedRecv { ops: &self.ops, state, buf, borrow: PhantomData })
    }
}

const IRECV: &str = "irecv";

#[derive(Debug)]
pub(super) enum State {
    Complete,
    /// The send has completed, but its coalesced message might not have been flushed yet.
    Coalesced,
    Pending(OpSlot),
    /// The outcome was returned.
    Consumed,
}

impl State {
    #[inline]
    fn wait(self, ops: &ScopeOps<'_>) -> Result<Status> {
        match self {
            State::Complete => Ok(Status::empty()),
            State::Coalesced => {
                ops.flush_coalesced();
                Ok(Status::empty())
            }
            State::Pending(slot) => ops.wait(slot),
            State::Consumed => Err(consumed_error("wait")),
        }
    }

    /// Returns the outcome if the operation has completed, without making progress.
    pub(super) fn outcome(&self, ops: &ScopeOps<'_>) -> Option<Result<Status>> {
        match self {
            State::Complete | State::Coalesced | State::Consumed => Some(Ok(Status::empty())),
            State::Pending(slot) => ops.outcome(slot),
        }
    }

    /// Makes progress once if the operation is pending, and takes the outcome if it has completed.
    fn test(&mut self, ops: &ScopeOps<'_>) -> Option<Result<Status>> {
        if let State::Consumed = self {
            return Some(Err(consumed_error("test")));
        }
        if self.outcome(ops).is_none() {
            ops.comm().engine().progress();
            let _outcome = self.outcome(ops)?;
        }
        Some(self.take().wait(ops))
    }

    fn cancel(&self, ops: &ScopeOps<'_>) -> bool {
        matches!(self, State::Pending(slot) if ops.cancel(slot))
    }

    #[inline]
    fn take(&mut self) -> Self {
        std::mem::replace(self, State::Consumed)
    }
}

/// A send that borrows its buffer.
#[derive(Debug)]
pub struct ScopedSend<'scope> {
    ops: &'scope ScopeOps<'scope>,
    state: State,
}

impl ScopedSend<'_> {
    /// Waits until the operation has completed.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn wait(mut self) -> Result<Status> {
        self.state.take().wait(self.ops)
    }

    /// Makes progress once if the operation is pending; returns its status if it has completed (MPI_Test).
    ///
    /// # Errors
    /// The error of the operation. [`ErrorClass::Request`](crate::ErrorClass::Request) if an earlier call has returned
    /// the outcome.
    pub fn test(&mut self) -> Option<Result<Status>> {
        self.state.test(self.ops)
    }

    /// Waits as [`wait`](Self::wait) does, but at most for `limit`. If it returns `None`, the send is still pending.
    ///
    /// # Errors
    /// As [`test`](Self::test).
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Result<Status>> {
        Waitable::wait_timeout(self, limit)
    }
}

impl Drop for ScopedSend<'_> {
    /// The send continues, and the scope waits for it.
    // Inlined so that a `ScopedSend` that is dropped at once is not stored in memory.
    #[inline(always)]
    fn drop(&mut self) {
        if let State::Pending(slot) = self.state.take() {
            self.ops.detach(slot);
        }
    }
}

impl Waitable for ScopedSend<'_> {
    type Outcome = Result<Status>;

    fn wait(self) -> Self::Outcome {
        ScopedSend::wait(self)
    }

    fn test(&mut self) -> Option<Self::Outcome> {
        ScopedSend::test(self)
    }

    fn request_ref(&self) -> RequestRef<'_> {
        RequestRef::scoped(self.ops, &self.state)
    }
}

/// A receive that borrows its buffer.
#[derive(Debug)]
#[must_use = "dropping an unmatched receive cancels it"]
pub struct ScopedRecv<'scope, B: ?Sized> {
    ops: &'scope ScopeOps<'scope>,
    state: State,
    buf: *mut B,
    borrow: PhantomData<&'scope mut B>,
}

// SAFETY: the value stands for a `&'scope mut B`, which is `Send` if `B` is.
unsafe impl<B: Send + ?Sized> Send for ScopedRecv<'_, B> {}

impl<'scope, B: ?Sized> ScopedRecv<'scope, B> {
    /// Waits until the operation has completed, and returns the borrowed buffer and the status.
    ///
    /// # Errors
    /// The error of the operation; the buffer stays borrowed until the scope ends.
    pub fn wait(mut self) -> Result<(&'scope mut B, Status)> {
        let status = self.state.take().wait(self.ops)?;
        // SAFETY: the operation has completed, so it does not use the buffer any more. The buffer is borrowed for
        // `'scope`, and `self`, which held the borrow, is consumed. After `test` has passed the borrow on, the state is
        // `Consumed`, whose wait is an error.
        Ok((unsafe { &mut *self.buf }, status))
    }

    /// Makes progress once if the operation is pending; returns the borrowed buffer and the status if it has completed
    /// (MPI_Test).
    ///
    /// # Errors
    /// As [`wait`](Self::wait). [`ErrorClass::Request`](crate::ErrorClass::Request) if an earlier call has returned the
    /// outcome.
    pub fn test(&mut self) -> Option<Result<(&'scope mut B, Status)>> {
        let outcome = self.state.test(self.ops)?;
        // SAFETY: the operation has completed. `State::test` returns a status only once, and `wait` none afterwards, so
        // the borrow for `'scope` is passed on once.
        Some(outcome.map(|status| (unsafe { &mut *self.buf }, status)))
    }

    /// Waits as [`wait`](Self::wait) does, but at most for `limit`. If it returns `None`, the receive is still pending.
    ///
    /// # Errors
    /// As [`test`](Self::test).
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Result<(&'scope mut B, Status)>> {
        Waitable::wait_timeout(self, limit)
    }

    /// Cancels the receive if it has not matched; returns whether it was cancelled.
    pub fn cancel(&self) -> bool {
        self.state.cancel(self.ops)
    }
}

impl<'scope, B: ?Sized> Waitable for ScopedRecv<'scope, B> {
    type Outcome = Result<(&'scope mut B, Status)>;

    fn wait(self) -> Self::Outcome {
        ScopedRecv::wait(self)
    }

    fn test(&mut self) -> Option<Self::Outcome> {
        ScopedRecv::test(self)
    }

    fn request_ref(&self) -> RequestRef<'_> {
        RequestRef::scoped(self.ops, &self.state)
    }
}

impl<B: ?Sized> Drop for ScopedRecv<'_, B> {
    #[inline(always)]
    fn drop(&mut self) {
        if let State::Pending(slot) = self.state.take() {
            self.ops.cancel_and_detach(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, threads};

    #[test]
    fn slots_of_detached_operations_are_reused() {
        const MESSAGES: usize = 1000;
        let slots = threads(2, |world| {
            if world.rank() == 1 {
                for _ in 0..MESSAGES {
                    world.recv(&mut [0u8; 3], 0, 1)?;
                    world.send(&[0u8], 0, 2)?;
                }
                return Ok(0);
            }
            let mut bufs = vec![[0u8; 1]; MESSAGES];
            world.scope(|scope| {
                for buf in &mut bufs {
                    let got = scope.irecv(buf, 1, 2)?;
                    drop(scope.issend(&[1u8, 2, 3], 1, 1)?);
                    got.wait()?;
                }
                Ok::<_, Error>(scope.ops.capacity())
            })
        });
        let slots = slots.unwrap()[0];
        assert!(slots < 200, "{slots} slots");
    }
}

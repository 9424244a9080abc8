//! Requests that borrow their buffer for the time of a scope.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::{Completion, Mode, Started};

use crate::comm::Intracomm;
use crate::endpoint::{Dest, Source, Tag};
use crate::error::Result;
use crate::raw;
use crate::status::Status;
use crate::types::{RecvBuf, RecvParts, SendBuf, SendParts};

/// A scope in which operations borrow buffers: see [`Intracomm::scope`].
///
/// # Invariants
/// 1. Every operation that borrows a buffer for `'scope` is in `open`, or has ended.
/// 2. `enter` returns only when every operation in `open` has ended.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    desk: Desk,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// What a scope and its requests share.
#[derive(Debug)]
struct Desk {
    comm: Intracomm,
    open: Mutex<Open>,
}

/// The operations a scope has to see end.
#[derive(Debug, Default)]
struct Open {
    slots: Vec<Option<Arc<Completion>>>,
    free: Vec<usize>,
}

impl<'env> Scope<'_, 'env> {
    pub(crate) fn enter<F, R>(comm: &'env Intracomm, f: F) -> R
    where
        F: for<'s> FnOnce(&'s Scope<'s, 'env>) -> R,
    {
        let desk = Desk { comm: comm.clone(), open: Mutex::default() };
        let scope = Scope { desk, scope: PhantomData, env: PhantomData };
        let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        let open = std::mem::take(&mut *scope.desk.open());
        let raw = comm.as_raw();
        for completion in open.slots.into_iter().flatten() {
            if result.is_err() {
                raw.engine().cancel(raw.p2p(), &completion);
            }
            // Whatever it failed with, it has ended.
            let _ = raw.engine().wait(raw.p2p(), Started::Pending(completion));
        }
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
        let SendParts { base, count, shape } = buf.send_parts();
        // SAFETY: the buffer is borrowed for `'scope`, which ends after `enter` has returned; invariants 1 and 2.
        let raw = unsafe {
            raw::isend_shape(
                self.desk.comm.as_raw(),
                call,
                base,
                count,
                shape,
                dest.number(),
                tag,
                mode,
                None,
            )?
        };
        let slot = self.desk.keep(&raw);
        Ok(ScopedSend { desk: &self.desk, raw, slot })
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
        let RecvParts { base, count, shape } = unsafe { &mut *buf }.recv_parts();
        let (source, tag) = (source.into().number(), tag.into().number());
        // SAFETY: as in `isend_as`, and the borrow is exclusive.
        let raw = unsafe {
            raw::irecv_shape(self.desk.comm.as_raw(), "irecv", base, count, shape, source, tag, None)?
        };
        let slot = self.desk.keep(&raw);
        Ok(ScopedRecv { desk: &self.desk, raw: Some(raw), slot, buf, borrow: PhantomData })
    }
}

impl Desk {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an operation that has not ended; returns where.
    fn keep(&self, raw: &raw::Request) -> Option<usize> {
        let completion = Arc::clone(raw.completion()?);
        let mut open = self.open();
        let slot = open.free.pop().unwrap_or_else(|| {
            open.slots.push(None);
            open.slots.len() - 1
        });
        open.slots[slot] = Some(completion);
        Some(slot)
    }

    /// Waits for an operation and forgets it.
    fn settle(&self, raw: raw::Request, slot: Option<usize>) -> Result<Status> {
        if let (Some(slot), Some(completion)) = (slot, raw.completion()) {
            if completion.outcome().is_none() {
                self.comm.as_raw().engine().wait_until(|| completion.outcome().map(|_| ()));
            }
            let mut open = self.open();
            open.slots[slot] = None;
            open.free.push(slot);
        }
        // Ours is the last handle now, so that it can be used for another operation.
        raw.wait()
    }
}

/// A send that borrows its buffer.
#[derive(Debug)]
pub struct ScopedSend<'scope> {
    desk: &'scope Desk,
    raw: raw::Request,
    slot: Option<usize>,
}

impl ScopedSend<'_> {
    /// Waits until the operation has ended.
    ///
    /// # Errors
    /// What it failed with.
    pub fn wait(self) -> Result<Status> {
        self.desk.settle(self.raw, self.slot)
    }

    /// Looks for news once and tells whether the operation has ended.
    ///
    /// # Errors
    /// What it failed with.
    pub fn test(&self) -> Result<bool> {
        self.raw.test().map(|status| status.is_some())
    }
}

/// A receive that borrows its buffer.
#[derive(Debug)]
#[must_use = "a receive that is dropped before it matches is taken back"]
pub struct ScopedRecv<'scope, B: ?Sized> {
    desk: &'scope Desk,
    raw: Option<raw::Request>,
    slot: Option<usize>,
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
        let status = match self.raw.take() {
            Some(raw) => self.desk.settle(raw, self.slot)?,
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
        self.raw.as_ref().map_or(Ok(true), |raw| raw.test().map(|status| status.is_some()))
    }

    /// Takes the receive back if it has not matched.
    pub fn cancel(&self) -> bool {
        self.raw.as_ref().is_some_and(raw::Request::cancel)
    }
}

impl<B: ?Sized> Drop for ScopedRecv<'_, B> {
    fn drop(&mut self) {
        if let Some(raw) = &self.raw {
            raw.cancel();
        }
    }
}

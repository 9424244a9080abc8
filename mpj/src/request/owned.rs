//! Requests that own their buffer.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::persistent::CallBufs;
use super::wait_many::{RequestRef, Waitable};
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{self, Buf, KeepAlive};
use crate::status::Status;
use crate::types::{RecvBuf, SendBuf};

/// A buffer that an operation uses.
///
/// # Invariants
/// 1. From [`send_buf`](Self::send_buf), [`recv_buf`](Self::recv_buf) or `bufs` until the operation has completed, only
///    the operation uses the buffer. Afterwards only [`into_inner`](Self::into_inner) uses it, or
///    [`borrow`](Self::borrow) before the next operation.
pub(crate) struct OwnedCell<B> {
    buf: UnsafeCell<ManuallyDrop<B>>,
    /// Drops the buffer, but not while this thread makes progress, because the thread might then hold locks.
    drop_deferred: fn(B),
    into_owner: fn(SoleCell<B>) -> KeepAlive,
}

// SAFETY: invariant 1: two threads never use the buffer at the same time, so `B: Send` is enough.
unsafe impl<B: Send> Sync for OwnedCell<B> {}

impl<B> fmt::Debug for OwnedCell<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnedCell")
    }
}

impl<B> OwnedCell<B> {
    pub(crate) fn new(buf: B) -> Self
    where
        B: Send + 'static,
    {
        OwnedCell {
            buf: UnsafeCell::new(ManuallyDrop::new(buf)),
            drop_deferred: mpj_devices::drop_deferred,
            into_owner: |cell| Arc::new(cell),
        }
    }

    pub(crate) fn send_buf(&self) -> Buf
    where
        B: SendBuf,
    {
        // SAFETY: invariant 1: the operation has not started.
        unsafe { &*self.buf.get() }.send_buf()
    }

    pub(crate) fn recv_buf(&self) -> Buf
    where
        B: RecvBuf,
    {
        // SAFETY: invariant 1: the operation has not started.
        unsafe { &mut *self.buf.get() }.recv_buf()
    }

    pub(crate) fn shared(buf: B) -> Arc<Self>
    where
        B: Send + 'static,
    {
        Arc::new(OwnedCell::new(buf))
    }

    /// Borrows the buffer while no operation uses it.
    ///
    /// # Safety
    /// While the borrow lasts, no operation uses the buffer, and there is no other borrow.
    #[expect(clippy::mut_from_ref, reason = "the caller's promise makes it the only reference")]
    pub(super) unsafe fn borrow(&self) -> &mut B {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.buf.get() }
    }

    pub(super) fn into_inner(self) -> B {
        let mut cell = ManuallyDrop::new(self);
        // SAFETY: `ManuallyDrop` prevents the drop of the cell, and we own it, so the buffer is taken once.
        unsafe { ManuallyDrop::take(cell.buf.get_mut()) }
    }
}

impl<B> Drop for OwnedCell<B> {
    fn drop(&mut self) {
        // SAFETY: the cell is being dropped, so there is no other reference, and the buffer is taken once.
        let buf = unsafe { ManuallyDrop::take(self.buf.get_mut()) };
        (self.drop_deferred)(buf);
    }
}

impl<S: SendBuf, R: RecvBuf> OwnedCell<(S, R)> {
    pub(crate) fn bufs(&self) -> CallBufs {
        // SAFETY: invariant 1: the operation has not started.
        let (send, recv) = &mut **unsafe { &mut *self.buf.get() };
        CallBufs::Pair([send.send_buf(), recv.recv_buf()])
    }
}

impl<S: SendBuf, R: RecvBuf> OwnedCell<(Vec<S>, Vec<R>)> {
    pub(crate) fn bufs_per_rank(&self) -> CallBufs {
        // SAFETY: invariant 1: the operation has not started.
        let (send, recv) = &mut **unsafe { &mut *self.buf.get() };
        CallBufs::PerRank {
            send: send.iter().map(SendBuf::send_buf).collect(),
            recv: recv.iter_mut().map(RecvBuf::recv_buf).collect(),
        }
    }
}

impl<B: RecvBuf> OwnedCell<Vec<B>> {
    pub(crate) fn bufs_per_rank_in_place(&self) -> CallBufs {
        // SAFETY: invariant 1: the operation has not started.
        let bufs = &mut **unsafe { &mut *self.buf.get() };
        CallBufs::PerRank {
            send: vec![Buf::in_place()],
            recv: bufs.iter_mut().map(RecvBuf::recv_buf).collect(),
        }
    }
}

/// A cell of which the operation owns no reference, so that no reference need be counted.
///
/// # Invariants
/// 1. The cell was leaked, and only this value frees it.
/// 2. When this value is dropped, the operation has completed. Until then the owner keeps it in a [`ManuallyDrop`].
#[derive(Debug)]
struct SoleCell<B>(NonNull<OwnedCell<B>>);

// SAFETY: it is used as a box of the cell, which is `Send` and `Sync` if `B` is `Send`.
unsafe impl<B: Send> Send for SoleCell<B> {}
// SAFETY: as above.
unsafe impl<B: Send> Sync for SoleCell<B> {}

impl<B> SoleCell<B> {
    fn new(cell: OwnedCell<B>) -> Self {
        SoleCell(NonNull::from(Box::leak(Box::new(cell))))
    }

    fn cell(&self) -> &OwnedCell<B> {
        // SAFETY: invariant 1.
        unsafe { self.0.as_ref() }
    }

    fn into_inner(self) -> B {
        // SAFETY: invariant 1, and `ManuallyDrop` prevents the drop.
        unsafe { Box::from_raw(ManuallyDrop::new(self).0.as_ptr()) }.into_inner()
    }
}

impl<B> Drop for SoleCell<B> {
    fn drop(&mut self) {
        // SAFETY: invariants 1 and 2.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Where a request keeps its buffer.
#[derive(Debug)]
enum Memory<B> {
    Sole(ManuallyDrop<SoleCell<B>>),
    /// The operation has a reference, too.
    Shared(Arc<OwnedCell<B>>),
}

/// A pending operation that owns its buffer until it has completed.
///
/// Dropping the request of an unmatched receive cancels the receive. If the receive has matched, the message is
/// received and discarded. A dropped send or collective continues until it completes. Forgetting a request leaks its
/// buffer.
#[must_use = "wait for the request, or drop it explicitly"]
#[derive(Debug)]
pub struct Request<B> {
    raw: Option<raw::Request>,
    memory: Option<Memory<B>>,
    is_recv: bool,
}

impl<B> Request<B> {
    pub(crate) fn new(raw: raw::Request, cell: Arc<OwnedCell<B>>, receive: bool) -> Self {
        Request { raw: Some(raw), memory: Some(Memory::Shared(cell)), is_recv: receive }
    }

    /// Creates the request of an operation that does not use its buffer any more.
    pub(crate) fn returned(raw: raw::Request, buf: B) -> Self
    where
        B: Send + 'static,
    {
        let cell = ManuallyDrop::new(SoleCell::new(OwnedCell::new(buf)));
        Request { raw: Some(raw), memory: Some(Memory::Sole(cell)), is_recv: false }
    }

    /// Starts a receive into a buffer. If `start` fails, no operation uses the buffer.
    #[inline(always)]
    pub(crate) fn receive(buf: B, start: impl FnOnce(&OwnedCell<B>) -> Result<raw::Request>) -> Result<Self>
    where
        B: RecvBuf + Send + 'static,
    {
        let cell = ManuallyDrop::new(SoleCell::new(OwnedCell::new(buf)));
        match start(cell.cell()) {
            Ok(raw) => Ok(Request { raw: Some(raw), memory: Some(Memory::Sole(cell)), is_recv: true }),
            Err(error) => {
                drop(ManuallyDrop::into_inner(cell));
                Err(error)
            }
        }
    }

    /// Waits until the operation has completed, and returns the buffer and the status.
    ///
    /// # Errors
    /// The error of the operation, with the buffer. If a receiver reads the buffer in place, and that rank or this one has
    /// left, the error has no buffer.
    pub fn wait(mut self) -> Result<(B, Status), RequestError<B>> {
        // Inlined, so that the outcome of a completed operation is not copied.
        let outcome = match self.raw.as_ref().and_then(raw::Request::completed_outcome) {
            Some(outcome) => {
                self.raw = None;
                outcome
            }
            None => self.wait_slow(),
        };
        self.finish(outcome)
    }

    fn wait_slow(&mut self) -> Result<Status> {
        match self.raw.take() {
            Some(raw) => raw.wait(),
            None => Err(consumed_error("wait")),
        }
    }

    /// Makes progress once if the operation is pending. Returns the buffer and the status if it has completed, and
    /// `None` if it is still pending (MPI_Test). So a loop that calls `test` is enough to complete the operation.
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// let other = 1 - world.rank();
    /// let mut receiving = world.irecv([0u32; 2], other, 0)?;
    /// world.send(&[world.rank() as u32; 2], other, 0)?;
    /// let (received, _status) = loop {
    ///     match receiving.test() {
    ///         Some(outcome) => break outcome?,
    ///         None => std::hint::spin_loop(), // compute something here
    ///     }
    /// };
    /// assert_eq!(received, [other as u32; 2]);
    /// assert!(receiving.wait().is_err(), "the buffer was returned already");
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait). [`ErrorClass::Request`] if an earlier call has returned the outcome; `wait` then fails
    /// in the same way.
    pub fn test(&mut self) -> Option<Result<(B, Status), RequestError<B>>> {
        let outcome = match self.raw.as_ref().and_then(raw::Request::completed_outcome) {
            Some(outcome) => outcome,
            None => self.test_slow()?,
        };
        self.raw = None;
        Some(self.finish(outcome))
    }

    fn test_slow(&self) -> Option<Result<Status>> {
        self.raw.as_ref().map_or_else(|| Some(Err(consumed_error("test"))), |raw| raw.test().transpose())
    }

    /// Waits as [`wait`](Self::wait) does, but at most for `limit`. If it returns `None`, the operation is still
    /// pending, and the request stays usable.
    ///
    /// # Errors
    /// As [`test`](Self::test).
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Result<(B, Status), RequestError<B>>> {
        Waitable::wait_timeout(self, limit)
    }

    /// Cancels a receive that has not matched, and returns whether it was cancelled. Waiting for it then fails with
    /// [`ErrorClass::Request`].
    pub fn cancel(&self) -> bool {
        self.is_recv && self.raw.as_ref().is_some_and(raw::Request::cancel)
    }

    #[inline(always)]
    fn finish(&mut self, outcome: Result<Status>) -> Result<(B, Status), RequestError<B>> {
        let buf = self.memory.take().and_then(|memory| match memory {
            Memory::Sole(cell) => Some(ManuallyDrop::into_inner(cell).into_inner()),
            // The operation dropped its reference before it reported completion.
            Memory::Shared(cell) => Arc::into_inner(cell).map(OwnedCell::into_inner),
        });
        match (outcome, buf) {
            (Ok(status), Some(buf)) => Ok((buf, status)),
            (Ok(_), None) => Err(RequestError { error: buffer_lost_error(), buf: None }),
            (Err(error), buf) => Err(RequestError { error, buf }),
        }
    }
}

/// The error of a call for a request whose outcome was returned before.
#[cold]
pub(crate) fn consumed_error(call: &'static str) -> Error {
    Error::new(ErrorClass::Request, call, "the outcome of this request was returned by an earlier call")
}

#[cold]
fn buffer_lost_error() -> Error {
    Error::new(
        ErrorClass::Request,
        "wait",
        "the buffer is leaked: the receiver still reads it in place, and this rank has finalized",
    )
}

impl<B> Drop for Request<B> {
    fn drop(&mut self) {
        // The outcome was taken, or `wait` has panicked. After a panic, the operation might still use the buffer.
        let Some(raw) = self.raw.take() else { return };
        if self.is_recv {
            raw.cancel();
        }
        if let Some(Memory::Sole(cell)) = self.memory.take() {
            let (is_complete, into_owner) = (raw.outcome().is_some(), cell.cell().into_owner);
            let cell = ManuallyDrop::into_inner(cell);
            if is_complete { drop(cell) } else { raw.drop_with_memory(into_owner(cell)) }
        }
    }
}

/// The error of a failed operation, with its buffer.
pub struct RequestError<B> {
    error: Error,
    buf: Option<B>,
}

impl<B> RequestError<B> {
    /// Returns the error of the operation.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the error and the buffer, if the buffer could be returned.
    pub fn into_parts(self) -> (Error, Option<B>) {
        (self.error, self.buf)
    }
}

impl<B> fmt::Debug for RequestError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<B> fmt::Display for RequestError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<B> std::error::Error for RequestError<B> {}

impl<B> From<RequestError<B>> for Error {
    fn from(failed: RequestError<B>) -> Self {
        failed.error
    }
}

impl<B> Waitable for Request<B> {
    type Outcome = Result<(B, Status), RequestError<B>>;

    fn wait(self) -> Self::Outcome {
        Request::wait(self)
    }

    fn test(&mut self) -> Option<Self::Outcome> {
        Request::test(self)
    }

    fn request_ref(&self) -> RequestRef<'_> {
        RequestRef::owned(self.raw.as_ref())
    }
}

//! Typed persistent requests, which own their buffers.

use std::fmt;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use super::owned::{OwnedCell, consumed_error};
use super::wait_many::{RequestRef, Waitable};
use crate::error::Result;
use crate::raw::{self, Buf};
use crate::status::Status;

/// A persistent collective or message, which [`start`](Self::start) starts any number of times.
/// [`Intracomm::prepare`](crate::Intracomm::prepare), [`send_init`](crate::Intracomm::send_init),
/// [`recv_init`](crate::Intracomm::recv_init) and the like create it.
///
/// Creation checks the arguments, and computes the steps of this rank in a collective. The request owns the buffers:
/// between two calls [`buffers_mut`](Self::buffers_mut) gives access to them, and during a call they cannot be accessed.
/// ```
/// use mpj::{Op, coll};
///
/// # mpj::threads(3, |world| {
/// let mut sum = world.prepare(coll::allreduce(vec![0.0; 100], vec![0.0; 100], Op::Sum))?;
/// for step in 0..5 {
///     sum.buffers_mut().0.fill(f64::from(step) + world.rank() as f64);
///     let active = sum.start()?;
///     // Compute here what does not need the sum.
///     let (_mine, total) = active.wait()?;
///     assert_eq!(*total, [3.0 * f64::from(step) + 3.0; 100]);
/// }
/// let (_mine, _total) = sum.into_buffers();
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
/// The compiler rejects access to the buffers during a call:
/// ```compile_fail,E0499
/// # use mpj::coll;
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut bcast = world.prepare(coll::bcast([0u8; 100], 0))?;
/// let active = bcast.start()?;
/// bcast.buffers_mut()[0] = 1;
/// active.wait()?;
/// # Ok(())
/// # }
/// ```
/// All ranks must create and start the persistent collectives of a communicator in the same order relative to all its
/// other collectives.
pub struct PersistentRequest<B> {
    raw: CancelOnDrop,
    /// The status of the last call that was waited for.
    status: Status,
    /// During a call only the operation uses the buffers, otherwise only a holder of `&mut self`.
    cell: Arc<OwnedCell<B>>,
    start: StartFn<B>,
}

/// How a request starts its operation.
pub(crate) enum StartFn<B> {
    Collective(BufsFn<B>),
    Message(MessageStartFn<B>),
}

/// Starts a message with the buffer in the cell.
///
/// The safety contract is that of [`raw::PersistentOperation::start`].
pub(crate) type MessageStartFn<B> = unsafe fn(&mut raw::PersistentOperation, &OwnedCell<B>) -> Result<()>;

/// Cancels an unmatched receive when it is dropped, so that it takes no later message.
#[derive(Debug)]
pub(super) struct CancelOnDrop(pub(super) raw::PersistentOperation);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

pub(crate) type BufsFn<B> = fn(&OwnedCell<B>) -> CallBufs;

/// The buffers of an operation: a send and a receive buffer, or one of each for every rank.
pub(crate) enum CallBufs {
    Pair([Buf; 2]),
    PerRank { send: Vec<Buf>, recv: Vec<Buf> },
}

impl CallBufs {
    pub(crate) fn as_slices(&self) -> (&[Buf], &[Buf]) {
        match self {
            CallBufs::Pair([send, recv]) => (from_ref(send), from_ref(recv)),
            CallBufs::PerRank { send, recv } => (send, recv),
        }
    }
}

impl<B> PersistentRequest<B> {
    pub(crate) fn new(raw: raw::PersistentOperation, cell: Arc<OwnedCell<B>>, start: StartFn<B>) -> Self {
        PersistentRequest { raw: CancelOnDrop(raw), status: Status::empty(), cell, start }
    }

    /// Returns the buffers. If the [`ActiveRequest`] of a call was dropped or forgotten, first ends that call: cancels
    /// an unmatched receive, and waits for any other operation.
    pub fn buffers_mut(&mut self) -> &mut B {
        self.raw.0.abandon();
        // SAFETY: no call is active, and no call can start while `self` is borrowed.
        unsafe { self.cell.borrow() }
    }

    /// Returns the status of the last call that was waited for: the sender, the tag and the length of a received
    /// message. It is empty for a send and a collective.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Consumes the request and returns the buffers; waits like [`buffers_mut`](Self::buffers_mut).
    pub fn into_buffers(self) -> B {
        let PersistentRequest { mut raw, cell, .. } = self;
        raw.0.abandon();
        raw.0.release_memory();
        // The operation and the raw request have dropped their references, and no others exist.
        Arc::into_inner(cell).map(OwnedCell::into_inner).expect("no call is under way")
    }

    /// Starts the collective or the message (MPI_Start).
    ///
    /// # Errors
    /// * The error of the previous call if its [`ActiveRequest`] was dropped or forgotten: `start` first ends it, as
    ///   [`buffers_mut`](Self::buffers_mut) does.
    /// * [`ErrorClass::Buffer`](crate::ErrorClass::Buffer) if the number, type or layout of the items in a buffer of a
    ///   collective has changed since it was prepared. The other ranks are notified.
    /// * The communicator was freed, an earlier collective has failed, or the errors of a send or a receive.
    ///   [`ActiveRequest::wait`] returns later errors.
    pub fn start(&mut self) -> Result<ActiveRequest<'_, B>> {
        let raw = &mut self.raw.0;
        if raw.is_active() {
            raw.abandon();
            raw.wait()?;
        }
        // The operation keeps the cell alive. No other code accesses the buffers until the call has completed:
        // `ActiveRequest` borrows `self`, and every other access to the buffers waits for the call.
        match self.start {
            StartFn::Collective(bufs) => {
                let bufs = bufs(&self.cell);
                let (send, recv) = bufs.as_slices();
                // SAFETY: see above.
                unsafe { raw.start_with_lists(send, recv) }?;
            }
            // SAFETY: see above.
            StartFn::Message(start) => unsafe { start(raw, &self.cell) }?,
        }
        Ok(ActiveRequest { request: Some(self) })
    }
}

impl<B> fmt::Debug for PersistentRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PersistentRequest").field(&self.raw.0.name()).finish()
    }
}

/// Starts several persistent requests of one type, in their order (MPI_Startall).
///
/// # Errors
/// As [`PersistentRequest::start`]. The requests before the failed one are active, as if their handle was dropped.
pub fn start_all<'p, B>(
    requests: impl IntoIterator<Item = &'p mut PersistentRequest<B>>,
) -> Result<Vec<ActiveRequest<'p, B>>>
where
    B: 'p,
{
    requests.into_iter().map(PersistentRequest::start).collect()
}

/// An active call of a [`PersistentRequest`]. If it is dropped or forgotten, the call continues until it completes, or
/// until the next use of the request.
#[must_use = "wait for it: an error of the call is returned only by this request or by the next start"]
pub struct ActiveRequest<'p, B> {
    /// `None` after [`test`](Self::test) has returned the outcome.
    request: Option<&'p mut PersistentRequest<B>>,
}

impl<'p, B> ActiveRequest<'p, B> {
    /// Waits until the call has completed, and returns the buffers.
    ///
    /// # Errors
    /// The error of the call; the buffers are still [accessible](PersistentRequest::buffers_mut).
    pub fn wait(self) -> Result<&'p mut B> {
        let request = self.request.ok_or_else(|| consumed_error("wait"))?;
        request.status = request.raw.0.wait()?;
        Ok(request.buffers_mut())
    }

    /// Makes progress once if the call is active; returns the buffers if it has completed (MPI_Test).
    ///
    /// # Errors
    /// As [`wait`](Self::wait). [`ErrorClass::Request`](crate::ErrorClass::Request) if an earlier call has returned the
    /// outcome.
    pub fn test(&mut self) -> Option<Result<&'p mut B>> {
        let Some(request) = &mut self.request else { return Some(Err(consumed_error("test"))) };
        let status = request.raw.0.test().transpose()?;
        let request = self.request.take()?;
        Some(status.map(|status| {
            request.status = status;
            request.buffers_mut()
        }))
    }

    /// Waits as [`wait`](Self::wait) does, but at most for `limit`. If it returns `None`, the call is still active.
    ///
    /// # Errors
    /// As [`test`](Self::test).
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Result<&'p mut B>> {
        Waitable::wait_timeout(self, limit)
    }

    /// Cancels a receive that has not matched, and returns whether it was cancelled. Waiting for it then fails with
    /// [`ErrorClass::Request`](crate::ErrorClass::Request).
    pub fn cancel(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.raw.0.cancel())
    }
}

impl<'p, B> Waitable for ActiveRequest<'p, B> {
    type Outcome = Result<&'p mut B>;

    fn wait(self) -> Self::Outcome {
        ActiveRequest::wait(self)
    }

    fn test(&mut self) -> Option<Self::Outcome> {
        ActiveRequest::test(self)
    }

    fn request_ref(&self) -> RequestRef<'_> {
        RequestRef::persistent(self.request.as_ref().map(|request| &request.raw.0))
    }
}

impl<B> fmt::Debug for ActiveRequest<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.request.as_ref().map(|request| request.raw.0.name());
        f.debug_tuple("ActiveRequest").field(&call).finish()
    }
}

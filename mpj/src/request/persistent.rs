//! Typed persistent collectives, which own their buffers.

use std::fmt;
use std::slice::from_ref;
use std::sync::Arc;

use super::owned::OwnedCell;
use super::wait_many::{RequestRef, Waitable};
use crate::error::Result;
use crate::raw::{self, Buf};

/// A persistent collective: [`Intracomm::prepare`](crate::Intracomm::prepare) creates it, and [`start`](Self::start)
/// starts it any number of times.
///
/// Creation checks the arguments and computes the steps of this rank. The request owns the buffers: between two calls
/// [`buffers_mut`](Self::buffers_mut) gives access to them, and during a call they cannot be accessed.
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
    raw: raw::PersistentCollective,
    /// During a call only the operation uses the buffers, otherwise only a holder of `&mut self`.
    cell: Arc<OwnedCell<B>>,
    bufs: BufsFn<B>,
}

pub(crate) type BufsFn<B> = fn(&OwnedCell<B>) -> CallBufs;

/// The buffers of a collective: a send and a receive buffer, or one of each for every rank.
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
    pub(crate) fn new(raw: raw::PersistentCollective, cell: Arc<OwnedCell<B>>, bufs: BufsFn<B>) -> Self {
        PersistentRequest { raw, cell, bufs }
    }

    /// Returns the buffers. If the [`ActiveRequest`] of a call was dropped or forgotten, first waits for that call.
    pub fn buffers_mut(&mut self) -> &mut B {
        self.raw.task().wait_idle();
        // SAFETY: no call is active, and no call can start while `self` is borrowed.
        unsafe { self.cell.borrow() }
    }

    /// Consumes the request and returns the buffers; waits like [`buffers_mut`](Self::buffers_mut).
    pub fn into_buffers(self) -> B {
        let PersistentRequest { raw, cell, .. } = self;
        raw.task().wait_idle();
        raw.task().release_memory();
        // The task has dropped its reference, and no others exist.
        Arc::into_inner(cell).map(OwnedCell::into_inner).expect("no call is under way")
    }

    /// Starts the collective (MPI_Start).
    ///
    /// # Errors
    /// * The error of the previous call if its [`ActiveRequest`] was dropped or forgotten: `start` first waits for it.
    /// * [`ErrorClass::Buffer`](crate::ErrorClass::Buffer) if the number, type or layout of the items in a buffer has
    ///   changed since the collective was prepared. The other ranks are notified.
    /// * The communicator was freed, or an earlier collective has failed. [`ActiveRequest::wait`] returns other errors.
    pub fn start(&mut self) -> Result<ActiveRequest<'_, B>> {
        self.raw.wait()?;
        let bufs = (self.bufs)(&self.cell);
        let (send, recv) = bufs.as_slices();
        // SAFETY: the task keeps the cell alive. No other code accesses the buffers until the call has completed:
        // `ActiveRequest` borrows `self`, and every other access to the buffers waits for the call.
        unsafe { self.raw.start_with_lists(send, recv) }?;
        Ok(ActiveRequest { request: self })
    }
}

impl<B> fmt::Debug for PersistentRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PersistentRequest").field(&self.raw.task().name()).finish()
    }
}

/// An active call of a [`PersistentRequest`]. If it is dropped or forgotten, the call continues until it completes.
#[must_use = "wait for it: an error of the call is returned only by this request or by the next start"]
pub struct ActiveRequest<'p, B> {
    request: &'p mut PersistentRequest<B>,
}

impl<'p, B> ActiveRequest<'p, B> {
    /// Waits until the call has completed, and returns the buffers.
    ///
    /// # Errors
    /// The error of the call; the buffers are still [accessible](PersistentRequest::buffers_mut).
    pub fn wait(self) -> Result<&'p mut B> {
        self.request.raw.wait()?;
        Ok(self.request.buffers_mut())
    }

    /// Makes progress if the call is active, and returns the buffers if it has completed (MPI_Test).
    ///
    /// # Errors
    /// The request itself if the call is still active. The inner error is that of the call.
    pub fn try_wait(self) -> Result<Result<&'p mut B>, Self> {
        match self.request.raw.test() {
            Ok(false) => Err(self),
            Ok(true) => Ok(Ok(self.request.buffers_mut())),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl<'p, B> Waitable for ActiveRequest<'p, B> {
    type Outcome = Result<&'p mut B>;

    fn wait(self) -> Self::Outcome {
        ActiveRequest::wait(self)
    }

    fn request_ref(&self) -> RequestRef<'_> {
        RequestRef::persistent(&self.request.raw)
    }
}

impl<B> fmt::Debug for ActiveRequest<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ActiveRequest").field(&self.request.raw.task().name()).finish()
    }
}

//! Collectives that are prepared once and started many times, typed: they own their buffers.

use std::fmt;
use std::sync::Arc;

use super::owned::OwnedCell;
use super::together::{RequestRef, Waitable};
use crate::error::Result;
use crate::raw::{self, Buf};

/// A collective that is prepared once and started any number of times (a persistent one of MPI): as
/// [`Intracomm::allreduce_init`](crate::Intracomm::allreduce_init) and its neighbours make it.
///
/// Its arguments are checked, and the steps of this rank made, when it is prepared. It owns the buffers; between two calls
/// they are [there](Self::buffers_mut) to be read and filled, and while one is under way nobody can reach them.
/// ```
/// use mpj::Op;
///
/// # mpj::threads(3, |world| {
/// let mut sum = world.allreduce_init(vec![0.0; 100], vec![0.0; 100], Op::Sum)?;
/// for step in 0..5 {
///     sum.buffers_mut().0.fill(f64::from(step) + world.rank() as f64);
///     let running = sum.start()?;
///     // Whatever does not need the sum.
///     let (_mine, total) = running.wait()?;
///     assert_eq!(*total, [3.0 * f64::from(step) + 3.0; 100]);
/// }
/// let (_mine, _total) = sum.into_buffers();
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
/// The compiler sees to it that they are left alone while it runs:
/// ```compile_fail,E0499
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut news = world.bcast_init([0u8; 100], 0)?;
/// let running = news.start()?;
/// news.buffers_mut()[0] = 1;
/// running.wait()?;
/// # Ok(())
/// # }
/// ```
/// All ranks prepare and start their collectives in one order, among their other collectives.
pub struct PersistentRequest<B> {
    raw: raw::PersistentCollective,
    /// Only the operation uses it while a call is under way, and only `&mut self` else.
    cell: Arc<OwnedCell<B>>,
    bufs: Bufs<B>,
}

/// What is sent of buffers, and what is received into.
pub(crate) type Bufs<B> = fn(&OwnedCell<B>) -> (Buf, Buf);

impl<B> PersistentRequest<B> {
    pub(crate) fn new(raw: raw::PersistentCollective, cell: Arc<OwnedCell<B>>, bufs: Bufs<B>) -> Self {
        PersistentRequest { raw, cell, bufs }
    }

    /// Returns the buffers. If a call is under way whose [`ActiveRequest`] was dropped, it waits until that has ended.
    pub fn buffers_mut(&mut self) -> &mut B {
        self.raw.task().wait_idle();
        // SAFETY: no call is under way, and none begins as long as `self` is borrowed.
        unsafe { self.cell.borrow() }
    }

    /// Returns the buffers_mut, and forgets the collective; see [`buffers_mut`](Self::buffers_mut).
    pub fn into_buffers(self) -> B {
        let PersistentRequest { raw, cell, .. } = self;
        raw.task().wait_idle();
        raw.task().release();
        // The engine and the task have let go of it, and there is no third.
        Arc::into_inner(cell).map(OwnedCell::into_inner).expect("no call is under way")
    }

    /// Starts it (MPI_Start).
    ///
    /// # Errors
    /// * What a call has failed with whose [`ActiveRequest`] was dropped: it is waited for first.
    /// * [`ErrorClass::Buffer`](crate::ErrorClass::Buffer) if a buffer does not have as many items any more, or of another type, as
    ///   when it was prepared: the other ranks are told, as of every refusal.
    /// * A freed communicator, a dead or departed rank, ranks that are out of step.
    pub fn start(&mut self) -> Result<ActiveRequest<'_, B>> {
        self.raw.wait()?;
        let (send, recv) = (self.bufs)(&self.cell);
        // SAFETY: the task keeps the cell, in which nobody touches the buffers until the call has ended: `ActiveRequest` borrows
        // `self`, and whatever else reaches them waits for that.
        unsafe { self.raw.start_with(&send, &recv) }?;
        Ok(ActiveRequest { prepared: self })
    }
}

impl<B> fmt::Debug for PersistentRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prepared").field(&self.raw.task().name()).finish()
    }
}

/// A call of a [`PersistentRequest`] collective. Dropped or forgotten, it goes on to its end.
#[must_use = "the collective goes on, but what it fails with is told by this"]
pub struct ActiveRequest<'p, B> {
    prepared: &'p mut PersistentRequest<B>,
}

impl<'p, B> ActiveRequest<'p, B> {
    /// Waits until it has ended and gives the buffers back.
    ///
    /// # Errors
    /// What it failed with; the buffers are still [there](PersistentRequest::buffers_mut).
    pub fn wait(self) -> Result<&'p mut B> {
        self.prepared.raw.wait()?;
        Ok(self.prepared.buffers_mut())
    }

    /// Looks for news once; gives itself back if it has not ended.
    ///
    /// # Errors
    /// Itself, still under way. The inner error is what it failed with.
    pub fn test(self) -> Result<Result<&'p mut B>, Self> {
        match self.prepared.raw.test() {
            Ok(false) => Err(self),
            Ok(true) => Ok(Ok(self.prepared.buffers_mut())),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl<'p, B> Waitable for ActiveRequest<'p, B> {
    type Outcome = Result<&'p mut B>;

    fn wait(self) -> Self::Outcome {
        ActiveRequest::wait(self)
    }

    fn watch(&self) -> RequestRef<'_> {
        RequestRef::prepared(&self.prepared.raw)
    }
}

impl<B> fmt::Debug for ActiveRequest<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.prepared.raw.task().name()).finish()
    }
}

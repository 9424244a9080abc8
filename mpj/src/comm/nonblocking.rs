//! Typed non-blocking collectives, which own their buffers.

use std::sync::Arc;

use super::Intracomm;
use crate::address::number;
use crate::error::Result;
use crate::op::Op;
use crate::raw::{self, Collective};
use crate::request::{OwnedCell, Request};
use crate::types::{RecvBuf, SendBuf};

/// Non-blocking collectives. All ranks must start them in the same order among their collectives, and can wait for them
/// in any order. Calls that wait or test make progress for them. If a request is dropped, its collective continues
/// because the other ranks depend on it, even while this rank leaves the job.
impl Intracomm {
    /// Starts a barrier (MPI_Ibarrier): it completes when every rank has started it.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let barrier = world.ibarrier()?;
    /// // Work that does not need the other ranks.
    /// barrier.wait()?;
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn ibarrier(&self) -> Result<Request<()>> {
        self.start(Arc::new(OwnedCell::new(())), Collective::Barrier)
    }

    /// Starts a broadcast of a buffer, which the operation owns until it has completed (MPI_Ibcast).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mine = if world.rank() == 1 { vec![3.0, 4.0] } else { vec![0.0; 2] };
    /// let (numbers, _status) = world.ibcast(mine, 1)?.wait()?;
    /// assert_eq!(numbers, [3.0, 4.0]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast). Rejected arguments fail at once; other errors are returned by the request.
    pub fn ibcast<B: RecvBuf + Send + Sync + 'static>(&self, buf: B, root: usize) -> Result<Request<B>> {
        let cell = Arc::new(OwnedCell::new(buf));
        let items = cell.recv_buf();
        self.start(cell, Collective::Bcast { items: &items, root: number(root) })
    }

    /// Starts an allreduce of buffers, which the operation owns until it has completed (MPI_Iallreduce).
    ///
    /// ```
    /// # mpj::threads(4, |world| {
    /// let sum = world.iallreduce([world.rank()], [0usize], mpj::Op::Sum)?;
    /// let largest = world.iallreduce([world.rank()], [0usize], mpj::Op::Max)?;
    /// let ((_, largest), _) = largest.wait()?;
    /// let ((_, sum), _) = sum.wait()?;
    /// assert_eq!((sum, largest), ([6], [3]));
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Self::allreduce). Rejected arguments fail at once; other errors are returned by the request.
    pub fn iallreduce<S, R>(&self, send: S, recv: R, op: Op) -> Result<Request<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let cell = Arc::new(OwnedCell::new((send, recv)));
        let (send, recv) = cell.bufs();
        self.start(cell, Collective::Allreduce { send: &send, recv: &recv, op: &op })
    }

    fn start<B: Send + Sync + 'static>(
        &self,
        cell: Arc<OwnedCell<B>>,
        collective: Collective<'_>,
    ) -> Result<Request<B>> {
        let keep: raw::KeepAlive = cell.clone();
        // SAFETY: the operation keeps the cell alive, in which the buffers are neither moved nor accessed until the
        // operation has completed.
        let raw = unsafe { raw::start(self.as_raw(), collective, Some(keep)) }?;
        Ok(Request::new(raw, cell, false))
    }
}

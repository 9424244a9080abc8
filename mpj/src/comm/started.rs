//! Non-blocking and persistent collectives.

use super::Communicator;
use crate::coll::OwnedCollective;
use crate::error::Result;
use crate::raw;
use crate::request::{PersistentRequest, Request, StartFn};

/// Non-blocking and persistent collectives of both kinds of communicators (MPI 4.1 §6.12, §6.13). All ranks must start
/// the collectives of a communicator in the same order, and can wait for them in any order. Calls that wait or test make
/// progress for them.
impl<K> Communicator<K> {
    /// Starts a collective, which owns its buffers until it has completed (MPI_Ibarrier, MPI_Ibcast, MPI_Iallreduce, …).
    /// Only the blocking methods, such as [`bcast`](Self::bcast), take borrowed buffers; a [`scope`](Self::scope) has
    /// messages, but no collectives.
    ///
    /// If the request is dropped, the collective continues, because the other ranks depend on it, even while this rank
    /// leaves the job.
    ///
    /// ```
    /// use mpj::coll;
    ///
    /// # mpj::threads(3, |world| {
    /// let barrier = world.start(coll::barrier())?;
    /// let mine = if world.rank() == 1 { vec![3.0, 4.0] } else { vec![0.0; 2] };
    /// let bcast = world.start(coll::bcast(mine, 1))?;
    /// // Work that does not need the other ranks.
    /// barrier.wait()?;
    /// let (numbers, _status) = bcast.wait()?;
    /// assert_eq!(numbers, [3.0, 4.0]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As the blocking method. Invalid arguments fail at once; the request returns other errors.
    pub fn start<B: Send + Sync + 'static>(&self, collective: OwnedCollective<B>) -> Result<Request<B>> {
        let (request, cell, _) = collective.with_raw(self.as_raw(), |collective, keep| {
            // SAFETY: the operation keeps the cell alive, in which the buffers are neither moved nor accessed until the
            // operation has completed.
            unsafe { raw::start(self.as_raw(), collective, Some(keep)) }
        })?;
        Ok(Request::new(request, cell, false))
    }

    /// Prepares a collective, which can then be started any number of times (MPI_Barrier_init, MPI_Bcast_init, …). All
    /// ranks must make this call, which transfers no items: see the example of [`PersistentRequest`].
    ///
    /// # Errors
    /// As the blocking method. Invalid arguments fail at once, and the other ranks fail in this call or a later one.
    /// The start or the wait returns other errors.
    pub fn prepare<B: Send + Sync + 'static>(
        &self,
        collective: OwnedCollective<B>,
    ) -> Result<PersistentRequest<B>> {
        let (prepared, cell, bufs) = collective.with_raw(self.as_raw(), |collective, keep| {
            raw::collective_init(self.as_raw(), collective, Some(keep))
        })?;
        Ok(PersistentRequest::new(prepared, cell, StartFn::Collective(bufs)))
    }
}

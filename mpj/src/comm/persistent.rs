//! Collectives that are prepared once and started many times, typed: by ownership of their buffers.

use std::sync::Arc;

use super::Intracomm;
use crate::address::number;
use crate::error::Result;
use crate::op::Op;
use crate::raw::{self, BlockLayout, Buf, Collective};
use crate::request::{BufsFn, OwnedCell, PersistentRequest};
use crate::types::{RecvBuf, SendBuf};

/// Persistent collectives (MPI 4.1 §6.13). Each takes the arguments of the blocking call, and buffers that it owns. All
/// ranks must make the `*_init` call, which sends no messages. If one rank's arguments are rejected, the others learn
/// of it when they start the collective at the latest.
impl Intracomm {
    /// Prepares a barrier (MPI_Barrier_init).
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn barrier_init(&self) -> Result<PersistentRequest<()>> {
        self.prepare(OwnedCell::shared(()), |_| (Buf::empty(), Buf::empty()), Collective::Barrier)
    }

    /// Prepares a broadcast (MPI_Bcast_init).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mut news = world.bcast_init([0u32; 2], 1)?;
    /// for day in 0..3 {
    ///     if world.rank() == 1 {
    ///         *news.buffers_mut() = [day, 7 * day];
    ///     }
    ///     assert_eq!(*news.start()?.wait()?, [day, 7 * day]);
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast). Rejected arguments fail at once; other errors are returned when it is started or
    /// waited for.
    pub fn bcast_init<B: RecvBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        root: usize,
    ) -> Result<PersistentRequest<B>> {
        let cell = OwnedCell::shared(buf);
        let items = cell.recv_buf();
        let collective = Collective::Bcast { items: &items, root: number(root) };
        self.prepare(cell, |cell| (Buf::empty(), cell.recv_buf()), collective)
    }

    /// Prepares a reduction at `root` (MPI_Reduce_init).
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce). Rejected arguments fail at once; other errors are returned when it is started or
    /// waited for.
    pub fn reduce_init<S, R>(
        &self,
        send: S,
        recv: R,
        op: Op,
        root: usize,
    ) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let root = number(root);
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Reduce { send: &send, recv: &recv, op: &op, root };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares an allreduce (MPI_Allreduce_init): see the example of [`PersistentRequest`].
    ///
    /// # Errors
    /// As [`allreduce`](Self::allreduce). Rejected arguments fail at once; other errors are returned when it is started
    /// or waited for.
    pub fn allreduce_init<S, R>(&self, send: S, recv: R, op: Op) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Allreduce { send: &send, recv: &recv, op: &op };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares a reduction whose result is scattered (MPI_Reduce_scatter_init).
    ///
    /// # Errors
    /// As [`reduce_scatter`](Self::reduce_scatter). Rejected arguments fail at once; other errors are returned when it
    /// is started or waited for.
    pub fn reduce_scatter_init<S, R>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        op: Op,
    ) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::ReduceScatter { send: &send, recv: &recv, counts, op: &op };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares a combination of ranks 0 to this one (MPI_Scan_init).
    ///
    /// # Errors
    /// As [`scan`](Self::scan). Rejected arguments fail at once; other errors are returned when it is started or waited
    /// for.
    pub fn scan_init<S, R>(&self, send: S, recv: R, op: Op) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Scan { send: &send, recv: &recv, op: &op };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares a collection at `root` (MPI_Gather_init).
    ///
    /// # Errors
    /// As [`gather`](Self::gather). Rejected arguments fail at once; other errors are returned when it is started or
    /// waited for.
    pub fn gather_init<S, R>(&self, send: S, recv: R, root: usize) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let (layout, root) = (BlockLayout::EvenSplit, number(root));
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Gather { send: &send, recv: &recv, layout, root };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares a collection of different lengths at `root` (MPI_Gatherv_init).
    ///
    /// # Errors
    /// As [`gatherv`](Self::gatherv). Rejected arguments fail at once; other errors are returned when it is started or
    /// waited for.
    pub fn gatherv_init<S, R>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        displacements: &[usize],
        root: usize,
    ) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let (layout, root) = (BlockLayout::Varying { counts, displacements }, number(root));
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Gather { send: &send, recv: &recv, layout, root };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares a distribution of the buffer of `root` (MPI_Scatter_init).
    ///
    /// # Errors
    /// As [`scatter`](Self::scatter). Rejected arguments fail at once; other errors are returned when it is started or
    /// waited for.
    pub fn scatter_init<S, R>(&self, send: S, recv: R, root: usize) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let (layout, root) = (BlockLayout::EvenSplit, number(root));
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Scatter { send: &send, layout, recv: &recv, root };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares a distribution in parts of different lengths (MPI_Scatterv_init).
    ///
    /// # Errors
    /// As [`scatterv`](Self::scatterv). Rejected arguments fail at once; other errors are returned when it is started
    /// or waited for.
    pub fn scatterv_init<S, R>(
        &self,
        send: S,
        counts: &[usize],
        displacements: &[usize],
        recv: R,
        root: usize,
    ) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let (layout, root) = (BlockLayout::Varying { counts, displacements }, number(root));
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Scatter { send: &send, layout, recv: &recv, root };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares a collection everywhere (MPI_Allgather_init).
    ///
    /// # Errors
    /// As [`allgather`](Self::allgather). Rejected arguments fail at once; other errors are returned when it is started
    /// or waited for.
    pub fn allgather_init<S, R>(&self, send: S, recv: R) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let layout = BlockLayout::EvenSplit;
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Allgather { send: &send, recv: &recv, layout };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares a collection of different lengths everywhere (MPI_Allgatherv_init).
    ///
    /// # Errors
    /// As [`allgatherv`](Self::allgatherv). Rejected arguments fail at once; other errors are returned when it is
    /// started or waited for.
    pub fn allgatherv_init<S, R>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        displacements: &[usize],
    ) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let layout = BlockLayout::Varying { counts, displacements };
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Allgather { send: &send, recv: &recv, layout };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares an exchange of parts (MPI_Alltoall_init).
    ///
    /// # Errors
    /// As [`alltoall`](Self::alltoall). Rejected arguments fail at once; other errors are returned when it is started
    /// or waited for.
    pub fn alltoall_init<S, R>(&self, send: S, recv: R) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let (layout, back) = (BlockLayout::EvenSplit, BlockLayout::EvenSplit);
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Alltoall { send: &send, layout, recv: &recv, back };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares an exchange of parts of different lengths (MPI_Alltoallv_init).
    ///
    /// # Errors
    /// As [`alltoallv`](Self::alltoallv). Rejected arguments fail at once; other errors are returned when it is started
    /// or waited for.
    pub fn alltoallv_init<S, R>(
        &self,
        send: S,
        send_parts: (&[usize], &[usize]),
        recv: R,
        recv_parts: (&[usize], &[usize]),
    ) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let layout = BlockLayout::Varying { counts: send_parts.0, displacements: send_parts.1 };
        let back = BlockLayout::Varying { counts: recv_parts.0, displacements: recv_parts.1 };
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Alltoall { send: &send, layout, recv: &recv, back };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    fn prepare<B: Send + Sync + 'static>(
        &self,
        cell: Arc<OwnedCell<B>>,
        bufs: BufsFn<B>,
        collective: Collective<'_>,
    ) -> Result<PersistentRequest<B>> {
        let keep: raw::KeepAlive = cell.clone();
        let raw = raw::collective_init(self.as_raw(), collective, Some(keep))?;
        Ok(PersistentRequest::new(raw, cell, bufs))
    }
}

/// Makes a cell for both buffers, with the function that finds them.
fn owned<S: SendBuf + Send + 'static, R: RecvBuf + Send + 'static>(
    send: S,
    recv: R,
) -> (Arc<OwnedCell<(S, R)>>, Buf, Buf) {
    let cell = OwnedCell::shared((send, recv));
    let (send, recv) = cell.bufs();
    (cell, send, recv)
}

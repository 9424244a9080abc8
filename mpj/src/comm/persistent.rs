//! Typed persistent collectives, which own their buffers.

use std::sync::Arc;

use super::Intracomm;
use crate::address::number;
use crate::error::Result;
use crate::op::Op;
use crate::raw::{self, BlockLayout, Buf, Collective};
use crate::request::{BufsFn, OwnedCell, PersistentRequest};
use crate::types::{RecvBuf, SendBuf};

/// Persistent collectives (MPI 4.1 §6.13). Each takes the arguments of the blocking call, and owns its buffers. All
/// ranks must make the `*_init` call, which transfers no items. If it rejects its arguments, it fails at once, and the
/// other ranks fail in this call or a later one. The start or the wait returns other errors.
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
    /// As [`bcast`](Self::bcast).
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

    /// Prepares a reduce (MPI_Reduce_init).
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
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
    /// As [`allreduce`](Self::allreduce).
    pub fn allreduce_init<S, R>(&self, send: S, recv: R, op: Op) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Allreduce { send: &send, recv: &recv, op: &op };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares a reduce-scatter (MPI_Reduce_scatter_init).
    ///
    /// # Errors
    /// As [`reduce_scatter`](Self::reduce_scatter).
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

    /// Prepares a scan (MPI_Scan_init).
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn scan_init<S, R>(&self, send: S, recv: R, op: Op) -> Result<PersistentRequest<(S, R)>>
    where
        S: SendBuf + Send + Sync + 'static,
        R: RecvBuf + Send + Sync + 'static,
    {
        let (cell, send, recv) = owned(send, recv);
        let collective = Collective::Scan { send: &send, recv: &recv, op: &op };
        self.prepare(cell, OwnedCell::bufs, collective)
    }

    /// Prepares a gather (MPI_Gather_init).
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
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

    /// Prepares a gather of different lengths (MPI_Gatherv_init).
    ///
    /// # Errors
    /// As [`gatherv`](Self::gatherv).
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

    /// Prepares a scatter (MPI_Scatter_init).
    ///
    /// # Errors
    /// As [`scatter`](Self::scatter).
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

    /// Prepares a scatter of different lengths (MPI_Scatterv_init).
    ///
    /// # Errors
    /// As [`scatterv`](Self::scatterv).
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

    /// Prepares an allgather (MPI_Allgather_init).
    ///
    /// # Errors
    /// As [`allgather`](Self::allgather).
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

    /// Prepares an allgather of different lengths (MPI_Allgatherv_init).
    ///
    /// # Errors
    /// As [`allgatherv`](Self::allgatherv).
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

    /// Prepares an alltoall (MPI_Alltoall_init).
    ///
    /// # Errors
    /// As [`alltoall`](Self::alltoall).
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

    /// Prepares an alltoall of different lengths (MPI_Alltoallv_init).
    ///
    /// # Errors
    /// As [`alltoallv`](Self::alltoallv).
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

/// Moves both buffers into a cell, and returns it with their descriptions.
fn owned<S: SendBuf + Send + 'static, R: RecvBuf + Send + 'static>(
    send: S,
    recv: R,
) -> (Arc<OwnedCell<(S, R)>>, Buf, Buf) {
    let cell = OwnedCell::shared((send, recv));
    let (send, recv) = cell.bufs();
    (cell, send, recv)
}

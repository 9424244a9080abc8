//! Typed collectives with `MPI_IN_PLACE`: one buffer, which already has this rank's own items.

use super::Intracomm;
use crate::address::number;
use crate::error::Result;
use crate::op::Op;
use crate::raw::{self, BlockLayout, Buf};
use crate::types::RecvBuf;

impl Intracomm {
    /// Combines the buffers of all ranks at `root`, whose buffer receives the result; other buffers are unchanged. See
    /// [`reduce`](Self::reduce).
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce). After an error, the root's own items can be lost.
    pub fn reduce_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B, op: Op, root: usize) -> Result<()> {
        let items = buf.recv_buf();
        let send = if self.rank() == root { Buf::in_place() } else { items.clone() };
        // SAFETY: `buf` is borrowed mutably until we return; only the root's buffer is written.
        unsafe { raw::reduce(self.as_raw(), &send, &items, &op, number(root)) }
    }

    /// Replaces every rank's buffer by the combination of all buffers. See [`allreduce`](Self::allreduce).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mut sums = [1, world.rank()];
    /// world.allreduce_in_place(&mut sums, mpj::Op::Sum)?;
    /// assert_eq!(sums, [3, 3]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Self::allreduce). After an error, the items can be lost.
    pub fn allreduce_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B, op: Op) -> Result<()> {
        // SAFETY: `buf` is borrowed mutably until we return.
        unsafe { raw::allreduce(self.as_raw(), &Buf::in_place(), &buf.recv_buf(), &op) }
    }

    /// Replaces the buffer of rank `r` by the combination of those of ranks 0 to `r`. See [`scan`](Self::scan).
    ///
    /// # Errors
    /// As [`scan`](Self::scan). After an error, the items can be lost.
    pub fn scan_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B, op: Op) -> Result<()> {
        // SAFETY: as in `allreduce_in_place`.
        unsafe { raw::scan(self.as_raw(), &Buf::in_place(), &buf.recv_buf(), &op) }
    }

    /// Replaces the buffer of rank `r` by the combination of those of ranks 0 to `r - 1`; the buffer of rank 0 does not
    /// change. See [`exscan`](Self::exscan).
    ///
    /// # Errors
    /// As [`exscan`](Self::exscan). After an error, the items can be lost.
    pub fn exscan_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B, op: Op) -> Result<()> {
        // SAFETY: as in `allreduce_in_place`.
        unsafe { raw::exscan(self.as_raw(), &Buf::in_place(), &buf.recv_buf(), &op) }
    }

    /// Combines the buffers of all ranks. The first `counts[r]` items of the buffer of rank `r` are replaced by its
    /// part of the result; its other items do not change. See [`reduce_scatter`](Self::reduce_scatter).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mut items = [1u32, 10, 100, 1000].map(|x| x * (world.rank() as u32 + 1));
    /// let counts = [1, 0, 3];
    /// world.reduce_scatter_in_place(&mut items, &counts, mpj::Op::Sum)?;
    /// assert_eq!(&items[..counts[world.rank()]], [&[6][..], &[], &[60, 600, 6000]][world.rank()]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`reduce_scatter`](Self::reduce_scatter). After an error, the items can be lost.
    pub fn reduce_scatter_in_place<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        counts: &[usize],
        op: Op,
    ) -> Result<()> {
        // SAFETY: as in `allreduce_in_place`.
        unsafe { raw::reduce_scatter(self.as_raw(), &Buf::in_place(), &buf.recv_buf(), counts, &op) }
    }

    /// Combines the buffers of all ranks. The first of `size` equal parts of the buffer of rank `r` is replaced by part
    /// `r` of the result; the other parts do not change. See [`reduce_scatter_block`](Self::reduce_scatter_block).
    ///
    /// # Errors
    /// As [`reduce_scatter_block`](Self::reduce_scatter_block). After an error, the items can be lost.
    pub fn reduce_scatter_block_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B, op: Op) -> Result<()> {
        // SAFETY: as in `allreduce_in_place`.
        unsafe { raw::reduce_scatter_block(self.as_raw(), &Buf::in_place(), &buf.recv_buf(), &op) }
    }

    /// Gathers the buffers of all ranks in that of `root`, which is `size` times as long and already has the root's own
    /// part; other buffers are unchanged. See [`gather`](Self::gather).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mut buf = if world.rank() == 1 { vec![0, 11, 0] } else { vec![10 + world.rank()] };
    /// world.gather_in_place(&mut buf, 1)?;
    /// assert_eq!(buf, if world.rank() == 1 { vec![10, 11, 12] } else { vec![10 + world.rank()] });
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn gather_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B, root: usize) -> Result<()> {
        self.gather_blocks_in_place(buf, BlockLayout::EvenSplit, root)
    }

    /// Gathers buffers of different lengths in that of `root`, which already has the root's own part. See
    /// [`gatherv`](Self::gatherv).
    ///
    /// # Errors
    /// As [`gatherv`](Self::gatherv).
    pub fn gatherv_in_place<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        counts: &[usize],
        displacements: &[usize],
        root: usize,
    ) -> Result<()> {
        self.gather_blocks_in_place(buf, BlockLayout::Varying { counts, displacements }, root)
    }

    fn gather_blocks_in_place<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        layout: BlockLayout<'_>,
        root: usize,
    ) -> Result<()> {
        let items = buf.recv_buf();
        let send = if self.rank() == root { Buf::in_place() } else { items.clone() };
        // SAFETY: as in `reduce_in_place`.
        unsafe { raw::gather(self.as_raw(), &send, &items, layout, number(root)) }
    }

    /// Scatters the buffer of `root` in equal parts. The root's own part stays in place; each other rank's buffer
    /// receives its part. See [`scatter`](Self::scatter).
    ///
    /// # Errors
    /// As [`scatter`](Self::scatter).
    pub fn scatter_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B, root: usize) -> Result<()> {
        self.scatter_blocks_in_place(buf, BlockLayout::EvenSplit, root)
    }

    /// Scatters parts of different lengths of the buffer of `root`. The root's own part stays in place. See
    /// [`scatterv`](Self::scatterv).
    ///
    /// # Errors
    /// As [`scatterv`](Self::scatterv).
    pub fn scatterv_in_place<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        counts: &[usize],
        displacements: &[usize],
        root: usize,
    ) -> Result<()> {
        self.scatter_blocks_in_place(buf, BlockLayout::Varying { counts, displacements }, root)
    }

    fn scatter_blocks_in_place<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        layout: BlockLayout<'_>,
        root: usize,
    ) -> Result<()> {
        let items = buf.recv_buf();
        let recv = if self.rank() == root { Buf::in_place() } else { items.clone() };
        // SAFETY: `buf` is borrowed mutably until we return; the root's buffer is only read.
        unsafe { raw::scatter(self.as_raw(), &items, layout, &recv, number(root)) }
    }

    /// Gathers part `r` of the buffer of each rank `r` on all ranks. See [`allgather`](Self::allgather).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mut all = [0; 3];
    /// all[world.rank()] = 10 + world.rank();
    /// world.allgather_in_place(&mut all)?;
    /// assert_eq!(all, [10, 11, 12]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`allgather`](Self::allgather).
    pub fn allgather_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B) -> Result<()> {
        // SAFETY: as in `allreduce_in_place`.
        unsafe { raw::allgather(self.as_raw(), &Buf::in_place(), &buf.recv_buf(), BlockLayout::EvenSplit) }
    }

    /// Gathers parts of different lengths on all ranks: each rank's buffer already has its own part. See
    /// [`allgatherv`](Self::allgatherv).
    ///
    /// # Errors
    /// As [`allgatherv`](Self::allgatherv).
    pub fn allgatherv_in_place<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        counts: &[usize],
        displacements: &[usize],
    ) -> Result<()> {
        let layout = BlockLayout::Varying { counts, displacements };
        // SAFETY: as in `allreduce_in_place`.
        unsafe { raw::allgather(self.as_raw(), &Buf::in_place(), &buf.recv_buf(), layout) }
    }

    /// Sends part `r` of the buffer to rank `r`, and replaces it by the part from that rank. Allocates temporary memory
    /// of the size of the buffer. See [`alltoall`](Self::alltoall).
    ///
    /// # Errors
    /// As [`alltoall`](Self::alltoall).
    pub fn alltoall_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B) -> Result<()> {
        self.alltoall_blocks_in_place(buf, BlockLayout::EvenSplit)
    }

    /// Exchanges parts of different lengths. The part that a rank sends to another has the length of the one that it
    /// receives from there. Allocates temporary memory of the size of the buffer. See [`alltoallv`](Self::alltoallv).
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// // One item for the rank itself, two for the other rank.
    /// let me = world.rank();
    /// let (counts, displacements) = if me == 0 { ([1, 2], [0, 1]) } else { ([2, 1], [0, 2]) };
    /// let mut items = if me == 0 { [0, 1, 1] } else { [10, 10, 11] };
    /// world.alltoallv_in_place(&mut items, &counts, &displacements)?;
    /// assert_eq!(items, if me == 0 { [0, 10, 10] } else { [1, 1, 11] });
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`alltoallv`](Self::alltoallv).
    pub fn alltoallv_in_place<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        counts: &[usize],
        displacements: &[usize],
    ) -> Result<()> {
        self.alltoall_blocks_in_place(buf, BlockLayout::Varying { counts, displacements })
    }

    fn alltoall_blocks_in_place<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        layout: BlockLayout<'_>,
    ) -> Result<()> {
        // SAFETY: as in `allreduce_in_place`.
        unsafe { raw::alltoall(self.as_raw(), &Buf::in_place(), layout, &buf.recv_buf(), layout) }
    }

    /// Sends the items of `bufs[r]` to rank `r`, and replaces them by those from that rank. Allocates temporary memory
    /// of the size of the buffers. See [`alltoallw`](Self::alltoallw).
    ///
    /// # Errors
    /// As [`alltoallw`](Self::alltoallw).
    pub fn alltoallw_in_place<B: RecvBuf>(&self, bufs: &mut [B]) -> Result<()> {
        let bufs: Vec<Buf> = bufs.iter_mut().map(RecvBuf::recv_buf).collect();
        // SAFETY: as in `allreduce_in_place`; each buffer is borrowed mutably, so no two of them overlap.
        unsafe { raw::alltoallw(self.as_raw(), &[Buf::in_place()], &bufs) }
    }
}

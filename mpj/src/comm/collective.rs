//! Typed blocking collectives.

use super::{CollectiveRoot, CommKind, Communicator, Intracomm};
use crate::error::Result;
use crate::op::Op;
use crate::raw::{self, BlockLayout, Buf};
use crate::types::{RecvBuf, SendBuf};

/// Collectives: every rank of the communicator calls them in the same order.
///
/// On an [`Intercomm`](crate::Intercomm), every rank of both groups calls them, and the items of each group go to the other
/// group: "all ranks" are those of the other group, and `size` is their number. A call with an
/// [`IntercommRoot`](crate::IntercommRoot) moves items from the root to the other group, or from the other group to the
/// root. In errors, the first group is the one whose rank 0 comes first in the world.
impl<K: CommKind> Communicator<K> {
    /// Waits until every rank has called this (MPI_Barrier).
    ///
    /// # Errors
    /// The communicator was freed, a rank has died, exited, failed or cannot be reached, memory is exhausted, the ranks
    /// have called different collectives, or an earlier collective has failed.
    pub fn barrier(&self) -> Result<()> {
        raw::barrier(self.as_raw())
    }

    /// Broadcasts the buffer of `root` (MPI_Bcast); all buffers have the same length.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mut data = if world.rank() == 1 { [3.0, 4.0] } else { [0.0; 2] };
    /// world.bcast(&mut data, 1)?;
    /// assert_eq!(data, [3.0, 4.0]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// * As [`barrier`](Self::barrier); the root is out of range, or the [buffer](raw::BufError) is invalid. After a
    ///   failed collective, use a communicator that was created before the failure.
    /// * [`ErrorClass::Count`](crate::ErrorClass::Count) if another rank sent less than this one expects,
    ///   [`Truncate`](crate::ErrorClass::Truncate) if it sent more, [`Type`](crate::ErrorClass::Type) if it sent
    ///   another type or an invalid value. The error names that rank. The buffer may be filled in part.
    pub fn bcast<B: RecvBuf + ?Sized>(&self, buf: &mut B, root: K::Root) -> Result<()> {
        // SAFETY: `buf` is borrowed mutably until we return, and `RecvBuf` guarantees a valid description.
        unsafe { raw::bcast(self.as_raw(), &buf.recv_buf(), root.number()) }
    }

    /// Combines the buffers of all ranks at `root`, element by element (MPI_Reduce): in order of rank if the operation
    /// is not commutative. `recv` is used only at the root; on an [`Intercomm`](crate::Intercomm), `send` only in the other
    /// group.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast); [`ErrorClass::Op`](crate::ErrorClass::Op) if the operation is not defined for the
    /// elements; `Count` or `Type` if the root's buffers differ.
    pub fn reduce<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        op: Op,
        root: K::Root,
    ) -> Result<()> {
        // SAFETY: both buffers are borrowed until we return, one of them mutably, so they do not overlap.
        unsafe { raw::reduce(self.as_raw(), &send.send_buf(), &recv.recv_buf(), &op, root.number()) }
    }

    /// Combines the buffers of all ranks on every rank (MPI_Allreduce), in order of rank if the operation is not
    /// commutative. The result has the same bits on each rank, except for the payload of a NaN in a sum or a product.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn allreduce<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        op: Op,
    ) -> Result<()> {
        // SAFETY: as in `reduce`.
        unsafe { raw::allreduce(self.as_raw(), &send.send_buf(), &recv.recv_buf(), &op) }
    }

    /// Combines the buffers of all ranks, element by element, in order of rank if the operation is not commutative, and
    /// scatters the result: rank `r` gets the next `counts[r]` items (MPI_Reduce_scatter). On an
    /// [`Intercomm`](crate::Intercomm), the counts are those of this rank's group; both groups have the same sum.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mine = [1u32, 10, 100, 1000].map(|x| x * (world.rank() as u32 + 1));
    /// let (counts, mut part) = ([1, 0, 3], vec![0u32; [1, 0, 3][world.rank()]]);
    /// world.reduce_scatter(&mine, &mut part, &counts, mpj::Op::Sum)?;
    /// assert_eq!(part, [&[6][..], &[], &[60, 600, 6000]][world.rank()]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce); [`ErrorClass::Arg`](crate::ErrorClass::Arg) if the number of counts is not the
    /// number of ranks; `Count` if the sum of the counts exceeds the items of `send`, or this rank's count differs from
    /// the items of `recv`.
    pub fn reduce_scatter<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        counts: &[usize],
        op: Op,
    ) -> Result<()> {
        // SAFETY: as in `reduce`.
        unsafe { raw::reduce_scatter(self.as_raw(), &send.send_buf(), &recv.recv_buf(), counts, &op) }
    }

    /// Combines the buffers of all ranks, element by element, in order of rank if the operation is not commutative, and
    /// scatters the result in equal blocks (MPI_Reduce_scatter_block). `send` is `size` times as long as `recv`.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mine = [1u32, 10, 100].map(|x| x * (world.rank() as u32 + 1));
    /// let mut part = [0u32];
    /// world.reduce_scatter_block(&mine, &mut part, mpj::Op::Sum)?;
    /// assert_eq!(part[0], [6, 60, 600][world.rank()]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce); `Count` if `send` is not `size` times as long as `recv`.
    pub fn reduce_scatter_block<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        op: Op,
    ) -> Result<()> {
        // SAFETY: as in `reduce`.
        unsafe { raw::reduce_scatter_block(self.as_raw(), &send.send_buf(), &recv.recv_buf(), &op) }
    }

    /// Gathers the buffers of all ranks at `root`, in order of rank (MPI_Gather). `recv` is used only at the root, and
    /// is `size` times as long as `send`.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mut all = [0u8; 6];
    /// world.gather(&[world.rank() as u8; 2], &mut all, 0)?;
    /// if world.rank() == 0 {
    ///     assert_eq!(all, [0, 0, 1, 1, 2, 2]);
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast); `Count` or `Type` if the lengths or types of the root's buffers do not match.
    pub fn gather<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        root: K::Root,
    ) -> Result<()> {
        let (send, recv) = (send.send_buf(), recv.recv_buf());
        // SAFETY: as in `reduce`.
        unsafe { raw::gather(self.as_raw(), &send, &recv, BlockLayout::EvenSplit, root.number()) }
    }

    /// Gathers buffers of different lengths at `root` (MPI_Gatherv): the `counts[r]` elements of rank `r` are stored in
    /// `recv` from index `displacements[r]` on. `recv`, `counts` and `displacements` are used only at the root.
    ///
    /// # Errors
    /// As [`gather`](Self::gather); `Count` if a block is outside `recv`; [`ErrorClass::Arg`](crate::ErrorClass::Arg)
    /// if blocks overlap, or if the number of counts or displacements is not the number of ranks.
    pub fn gatherv<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        counts: &[usize],
        displacements: &[usize],
        root: K::Root,
    ) -> Result<()> {
        let layout = BlockLayout::Varying { counts, displacements };
        // SAFETY: as in `reduce`.
        unsafe { raw::gather(self.as_raw(), &send.send_buf(), &recv.recv_buf(), layout, root.number()) }
    }

    /// Scatters equal parts of the buffer of `root` (MPI_Scatter). `send` is used only at the root, and is `size` times
    /// as long as `recv`.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn scatter<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        root: K::Root,
    ) -> Result<()> {
        let (send, recv) = (send.send_buf(), recv.recv_buf());
        // SAFETY: as in `reduce`.
        unsafe { raw::scatter(self.as_raw(), &send, BlockLayout::EvenSplit, &recv, root.number()) }
    }

    /// Scatters parts of different lengths of the buffer of `root` (MPI_Scatterv); see [`gatherv`](Self::gatherv).
    ///
    /// # Errors
    /// As [`gatherv`](Self::gatherv), with `send` in place of `recv`. The parts may overlap.
    pub fn scatterv<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        counts: &[usize],
        displacements: &[usize],
        recv: &mut R,
        root: K::Root,
    ) -> Result<()> {
        let layout = BlockLayout::Varying { counts, displacements };
        // SAFETY: as in `reduce`.
        unsafe { raw::scatter(self.as_raw(), &send.send_buf(), layout, &recv.recv_buf(), root.number()) }
    }

    /// Gathers the buffers of all ranks on every rank (MPI_Allgather); `recv` is `size` times as long as `send`.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn allgather<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(&self, send: &S, recv: &mut R) -> Result<()> {
        // SAFETY: as in `reduce`.
        unsafe { raw::allgather(self.as_raw(), &send.send_buf(), &recv.recv_buf(), BlockLayout::EvenSplit) }
    }

    /// Gathers buffers of different lengths on every rank (MPI_Allgatherv); see [`gatherv`](Self::gatherv).
    ///
    /// # Errors
    /// As [`gatherv`](Self::gatherv).
    pub fn allgatherv<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        counts: &[usize],
        displacements: &[usize],
    ) -> Result<()> {
        let layout = BlockLayout::Varying { counts, displacements };
        // SAFETY: as in `reduce`.
        unsafe { raw::allgather(self.as_raw(), &send.send_buf(), &recv.recv_buf(), layout) }
    }

    /// Sends part `r` of `send` to each rank `r`, and receives a part from each (MPI_Alltoall).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let me = world.rank() as i32;
    /// let (send, mut recv) = ([10 * me, 10 * me + 1, 10 * me + 2], [0; 3]);
    /// world.alltoall(&send, &mut recv)?;
    /// assert_eq!(recv, [me, 10 + me, 20 + me]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn alltoall<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(&self, send: &S, recv: &mut R) -> Result<()> {
        let (send, recv) = (send.send_buf(), recv.recv_buf());
        // SAFETY: as in `reduce`.
        unsafe { raw::alltoall(self.as_raw(), &send, BlockLayout::EvenSplit, &recv, BlockLayout::EvenSplit) }
    }

    /// Sends and receives parts of different lengths (MPI_Alltoallv). The arguments are counts and displacements; see
    /// [`gatherv`](Self::gatherv).
    ///
    /// # Errors
    /// As [`gatherv`](Self::gatherv), for both buffers. Parts of `send` may overlap.
    pub fn alltoallv<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        send_parts: (&[usize], &[usize]),
        recv: &mut R,
        recv_parts: (&[usize], &[usize]),
    ) -> Result<()> {
        let out = BlockLayout::Varying { counts: send_parts.0, displacements: send_parts.1 };
        let back = BlockLayout::Varying { counts: recv_parts.0, displacements: recv_parts.1 };
        // SAFETY: as in `reduce`.
        unsafe { raw::alltoall(self.as_raw(), &send.send_buf(), out, &recv.recv_buf(), back) }
    }

    /// Sends `send[r]` to each rank `r`, and receives into `recv[r]` from it (MPI_Alltoallw). Each buffer has a length, a
    /// position and a datatype of its own, as a [`View`](crate::View) describes them.
    ///
    /// ```
    /// use mpj::{Datatype, View};
    ///
    /// # mpj::threads(2, |world| {
    /// // Each rank has two rows of a 4 × 4 matrix, and gets two of its columns.
    /// let me = world.rank() as u32;
    /// let rows: Vec<u32> = (8 * me..8 * me + 8).collect();
    /// let block = Datatype::of::<u32>().vector(2, 2, 4)?;
    /// let send = [View::new(&rows, 0, &block, 1)?, View::new(&rows, 2, &block, 1)?];
    /// let mut columns = [0; 8];
    /// let (upper, lower) = columns.split_at_mut(4);
    /// world.alltoallw(&send, &mut [upper, lower])?;
    /// assert_eq!(columns, [0, 1, 4, 5, 8, 9, 12, 13].map(|x| x + 2 * me));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`alltoallv`](Self::alltoallv); [`ErrorClass::Arg`](crate::ErrorClass::Arg) if the number of buffers is not the
    /// number of ranks.
    pub fn alltoallw<S: SendBuf, R: RecvBuf>(&self, send: &[S], recv: &mut [R]) -> Result<()> {
        let send: Vec<Buf> = send.iter().map(SendBuf::send_buf).collect();
        let recv: Vec<Buf> = recv.iter_mut().map(RecvBuf::recv_buf).collect();
        // SAFETY: as in `reduce`; each receive buffer is borrowed mutably, so no two of them overlap.
        unsafe { raw::alltoallw(self.as_raw(), &send, &recv) }
    }
}

impl Intracomm {
    /// Computes, on rank `r`, the combination of the buffers of ranks 0 to `r` (MPI_Scan).
    ///
    /// ```
    /// # mpj::threads(4, |world| {
    /// let mut upto = [0u32];
    /// world.scan(&[world.rank() as u32 + 1], &mut upto, mpj::Op::Sum)?;
    /// assert_eq!(upto[0], [1, 3, 6, 10][world.rank()]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn scan<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        op: Op,
    ) -> Result<()> {
        // SAFETY: as in `reduce`.
        unsafe { raw::scan(self.as_raw(), &send.send_buf(), &recv.recv_buf(), &op) }
    }

    /// Computes, on rank `r`, the combination of the buffers of ranks 0 to `r - 1` (MPI_Exscan). Rank 0 has no result: its
    /// `recv` does not change, and can have any length.
    ///
    /// ```
    /// # mpj::threads(4, |world| {
    /// // The position of this rank's items in the sequence of the items of all ranks.
    /// let (count, mut position) = (10 * world.rank(), [0usize]);
    /// world.exscan(&[count], &mut position, mpj::Op::Sum)?;
    /// assert_eq!(position[0], [0, 0, 10, 30][world.rank()]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn exscan<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        op: Op,
    ) -> Result<()> {
        // SAFETY: as in `reduce`.
        unsafe { raw::exscan(self.as_raw(), &send.send_buf(), &recv.recv_buf(), &op) }
    }
}

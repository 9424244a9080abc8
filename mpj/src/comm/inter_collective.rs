//! Typed blocking collectives of [`Intercomm`]: every rank of both groups calls them in the same order.

use super::Intercomm;
use crate::address::number;
use crate::error::Result;
use crate::op::Op;
use crate::raw::{self, BlockLayout};
use crate::types::{RecvBuf, SendBuf};

/// The root of a collective of an [`Intercomm`], as one rank sees it. All ranks of the root's group pass
/// [`Null`](Self::Null), except for the root itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IntercommRoot {
    /// This rank is the root (MPI_ROOT).
    This,
    /// Another rank of this rank's group is the root: this rank takes no part (MPI_PROC_NULL).
    Null,
    /// The root is this rank of the remote group.
    Remote(usize),
}

impl IntercommRoot {
    fn number(self) -> i32 {
        match self {
            IntercommRoot::This => raw::ROOT,
            IntercommRoot::Null => raw::PROC_NULL,
            IntercommRoot::Remote(rank) => number(rank),
        }
    }
}

/// Collectives: the items of each group go to the other group. In their errors, the first group is the one whose rank 0
/// comes first in the world.
impl Intercomm {
    /// Waits until every rank of both groups has called this (MPI_Barrier).
    ///
    /// # Errors
    /// As [`Intracomm::barrier`](crate::Intracomm::barrier), for the ranks of both groups.
    pub fn barrier(&self) -> Result<()> {
        raw::barrier(self.as_raw())
    }

    /// Broadcasts the buffer of the root to all ranks of the other group (MPI_Bcast).
    ///
    /// ```
    /// use mpj::IntercommRoot;
    ///
    /// # mpj::threads(3, |world| {
    /// let is_first = world.rank() == 0;
    /// let group = world.split(Some(is_first as u32), 0)?.expect("every rank has a color");
    /// let inter = group.create_intercomm(0, &world, if is_first { 1 } else { 0 }, 0)?;
    /// let root = if is_first { IntercommRoot::This } else { IntercommRoot::Remote(0) };
    /// let mut data = if is_first { [3.0, 4.0] } else { [0.0; 2] };
    /// inter.bcast(&mut data, root)?;
    /// assert_eq!(data, [3.0, 4.0]);
    ///
    /// // Each group gets the sum of the other group.
    /// let mut sum = [0usize];
    /// inter.allreduce(&[world.rank()], &mut sum, mpj::Op::Sum)?;
    /// assert_eq!(sum, if is_first { [1 + 2] } else { [0] });
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Intracomm::bcast`](crate::Intracomm::bcast).
    pub fn bcast<B: RecvBuf + ?Sized>(&self, buf: &mut B, root: IntercommRoot) -> Result<()> {
        // SAFETY: `buf` is borrowed mutably until we return, and `RecvBuf` guarantees a valid description.
        unsafe { raw::bcast(self.as_raw(), &buf.recv_buf(), root.number()) }
    }

    /// Combines the buffers of the group opposite to the root at the root, element by element, in order of rank
    /// (MPI_Reduce). `recv` is used only at the root, and `send` only in the other group.
    ///
    /// # Errors
    /// As [`Intracomm::reduce`](crate::Intracomm::reduce).
    pub fn reduce<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        op: Op,
        root: IntercommRoot,
    ) -> Result<()> {
        // SAFETY: both buffers are borrowed until we return, one of them mutably, so they do not overlap.
        unsafe { raw::reduce(self.as_raw(), &send.send_buf(), &recv.recv_buf(), &op, root.number()) }
    }

    /// Gives every rank the combination of the buffers of the remote group, in order of rank (MPI_Allreduce). All buffers
    /// of both groups have the same length.
    ///
    /// # Errors
    /// As [`Intracomm::allreduce`](crate::Intracomm::allreduce).
    pub fn allreduce<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        op: Op,
    ) -> Result<()> {
        // SAFETY: as in `reduce`.
        unsafe { raw::allreduce(self.as_raw(), &send.send_buf(), &recv.recv_buf(), &op) }
    }

    /// Combines the buffers of the remote group, in order of rank, and scatters the result in this rank's group: rank `r`
    /// gets the next `counts[r]` items (MPI_Reduce_scatter). The counts of both groups have the same sum.
    ///
    /// # Errors
    /// As [`Intracomm::reduce_scatter`](crate::Intracomm::reduce_scatter).
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

    /// Gathers the buffers of the group opposite to the root at the root, in order of rank (MPI_Gather). `recv` is used
    /// only at the root, and `send` only in the other group.
    ///
    /// # Errors
    /// As [`Intracomm::gather`](crate::Intracomm::gather).
    pub fn gather<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        root: IntercommRoot,
    ) -> Result<()> {
        self.gather_as(send, recv, BlockLayout::EvenSplit, root)
    }

    /// Gathers buffers of different lengths (MPI_Gatherv): the `counts[r]` elements of rank `r` are stored in `recv` from
    /// index `displacements[r]` on. `recv`, `counts` and `displacements` are used only at the root.
    ///
    /// # Errors
    /// As [`Intracomm::gatherv`](crate::Intracomm::gatherv).
    pub fn gatherv<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        counts: &[usize],
        displacements: &[usize],
        root: IntercommRoot,
    ) -> Result<()> {
        self.gather_as(send, recv, BlockLayout::Varying { counts, displacements }, root)
    }

    fn gather_as<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        layout: BlockLayout<'_>,
        root: IntercommRoot,
    ) -> Result<()> {
        // SAFETY: as in `reduce`.
        unsafe { raw::gather(self.as_raw(), &send.send_buf(), &recv.recv_buf(), layout, root.number()) }
    }

    /// Scatters equal parts of the buffer of the root to the other group (MPI_Scatter). `send` is used only at the root,
    /// and `recv` only in the other group.
    ///
    /// # Errors
    /// As [`Intracomm::scatter`](crate::Intracomm::scatter).
    pub fn scatter<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        recv: &mut R,
        root: IntercommRoot,
    ) -> Result<()> {
        self.scatter_as(send, BlockLayout::EvenSplit, recv, root)
    }

    /// Scatters parts of different lengths (MPI_Scatterv); see [`gatherv`](Self::gatherv).
    ///
    /// # Errors
    /// As [`Intracomm::scatterv`](crate::Intracomm::scatterv).
    pub fn scatterv<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        counts: &[usize],
        displacements: &[usize],
        recv: &mut R,
        root: IntercommRoot,
    ) -> Result<()> {
        self.scatter_as(send, BlockLayout::Varying { counts, displacements }, recv, root)
    }

    fn scatter_as<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        layout: BlockLayout<'_>,
        recv: &mut R,
        root: IntercommRoot,
    ) -> Result<()> {
        // SAFETY: as in `reduce`.
        unsafe { raw::scatter(self.as_raw(), &send.send_buf(), layout, &recv.recv_buf(), root.number()) }
    }

    /// Gathers the buffers of the remote group on every rank (MPI_Allgather). The buffers of a group have the same length;
    /// those of the two groups can differ.
    ///
    /// # Errors
    /// As [`Intracomm::allgather`](crate::Intracomm::allgather).
    pub fn allgather<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(&self, send: &S, recv: &mut R) -> Result<()> {
        // SAFETY: as in `reduce`.
        unsafe { raw::allgather(self.as_raw(), &send.send_buf(), &recv.recv_buf(), BlockLayout::EvenSplit) }
    }

    /// Gathers buffers of different lengths on every rank (MPI_Allgatherv); see [`gatherv`](Self::gatherv).
    ///
    /// # Errors
    /// As [`Intracomm::allgatherv`](crate::Intracomm::allgatherv).
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

    /// Sends part `r` of `send` to each rank `r` of the remote group, and receives a part from each (MPI_Alltoall).
    ///
    /// # Errors
    /// As [`Intracomm::alltoall`](crate::Intracomm::alltoall).
    pub fn alltoall<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(&self, send: &S, recv: &mut R) -> Result<()> {
        let (send, recv) = (send.send_buf(), recv.recv_buf());
        // SAFETY: as in `reduce`.
        unsafe { raw::alltoall(self.as_raw(), &send, BlockLayout::EvenSplit, &recv, BlockLayout::EvenSplit) }
    }

    /// Sends and receives parts of different lengths (MPI_Alltoallv). The arguments are counts and displacements; see
    /// [`gatherv`](Self::gatherv).
    ///
    /// # Errors
    /// As [`Intracomm::alltoallv`](crate::Intracomm::alltoallv).
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
}

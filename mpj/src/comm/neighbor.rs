//! Typed neighbourhood collectives.

use crate::error::Result;
use crate::raw::{self, BlockLayout, Buf};
use crate::topology::TopologyComm;
use crate::types::{RecvBuf, SendBuf};

/// Neighbourhood collectives (MPI 4.1 §8.6). All ranks call them in the same order. [`coll`](crate::coll) has them as
/// values, for non-blocking and persistent calls.
impl TopologyComm {
    /// Sends a buffer to each destination, and receives a block from each source (MPI_Neighbor_allgather). `recv` has a
    /// block as long as `send` for each source, including missing neighbours of a grid.
    ///
    /// ```
    /// use mpj::Reorder;
    /// use mpj::topology::Dim;
    ///
    /// # mpj::threads(3, |world| {
    /// let line = world.cart(&[Dim::open(3)], Reorder::No)?.expect("3 cells");
    /// let mut around = [9usize; 2];
    /// line.neighbor_allgather(&[line.rank()], &mut around)?;
    /// assert_eq!(around, [[9, 1], [0, 2], [1, 9]][line.rank()]); // the ends have one neighbour
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// * As [`bcast`](crate::Intracomm::bcast), without a root; [`ErrorClass::Count`](crate::ErrorClass::Count) if the
    ///   length of `recv` is not a multiple of the number of blocks.
    /// * [`ErrorClass::Topology`](crate::ErrorClass::Topology) in a [`Graph`](crate::topology::Graph) that has more
    ///   edges from one node to another than back.
    pub fn neighbor_allgather<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: SendBuf + ?Sized,
        R: RecvBuf + ?Sized,
    {
        let (send, recv) = (send.send_buf(), recv.recv_buf());
        // SAFETY: both buffers are borrowed until we return, one of them mutably, so they do not overlap.
        unsafe { raw::neighbor_allgather(self.as_raw(), &send, &recv, BlockLayout::EvenSplit) }
    }

    /// Receives blocks of different lengths (MPI_Neighbor_allgatherv): the `counts[k]` elements of source `k` are stored
    /// in `recv` from index `displacements[k]` on.
    ///
    /// # Errors
    /// As [`neighbor_allgather`](Self::neighbor_allgather); `Count` if a block is outside `recv`;
    /// [`ErrorClass::Arg`](crate::ErrorClass::Arg) if blocks overlap, or if there is not one count and one displacement
    /// for each source.
    pub fn neighbor_allgatherv<S, R>(
        &self,
        send: &S,
        recv: &mut R,
        counts: &[usize],
        displacements: &[usize],
    ) -> Result<()>
    where
        S: SendBuf + ?Sized,
        R: RecvBuf + ?Sized,
    {
        let layout = BlockLayout::Varying { counts, displacements };
        // SAFETY: as in `neighbor_allgather`.
        unsafe { raw::neighbor_allgather(self.as_raw(), &send.send_buf(), &recv.recv_buf(), layout) }
    }

    /// Sends block `k` of `send` to destination `k`, and receives block `k` of `recv` from source `k`
    /// (MPI_Neighbor_alltoall).
    ///
    /// ```
    /// use mpj::Reorder;
    /// use mpj::topology::Dim;
    ///
    /// # mpj::threads(2, |world| {
    /// // The other rank is before and after this one.
    /// let ring = world.cart(&[Dim::periodic(2)], Reorder::No)?.expect("2 cells");
    /// let (send, mut recv) = ([10 * ring.rank(), 10 * ring.rank() + 1], [9; 2]);
    /// ring.neighbor_alltoall(&send, &mut recv)?;
    /// // From the rank before, what it sent to the rank after it, and the reverse.
    /// let other = 1 - ring.rank();
    /// assert_eq!(recv, [10 * other + 1, 10 * other]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`neighbor_allgather`](Self::neighbor_allgather), for both buffers.
    pub fn neighbor_alltoall<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: SendBuf + ?Sized,
        R: RecvBuf + ?Sized,
    {
        let (send, recv, even) = (send.send_buf(), recv.recv_buf(), BlockLayout::EvenSplit);
        // SAFETY: as in `neighbor_allgather`.
        unsafe { raw::neighbor_alltoall(self.as_raw(), &send, even, &recv, even) }
    }

    /// Sends and receives blocks of different lengths (MPI_Neighbor_alltoallv). The arguments are counts and
    /// displacements; see [`neighbor_allgatherv`](Self::neighbor_allgatherv).
    ///
    /// # Errors
    /// As [`neighbor_allgatherv`](Self::neighbor_allgatherv), for both buffers. Blocks of `send` may overlap.
    pub fn neighbor_alltoallv<S, R>(
        &self,
        send: &S,
        send_blocks: (&[usize], &[usize]),
        recv: &mut R,
        recv_blocks: (&[usize], &[usize]),
    ) -> Result<()>
    where
        S: SendBuf + ?Sized,
        R: RecvBuf + ?Sized,
    {
        let out = BlockLayout::Varying { counts: send_blocks.0, displacements: send_blocks.1 };
        let back = BlockLayout::Varying { counts: recv_blocks.0, displacements: recv_blocks.1 };
        // SAFETY: as in `neighbor_allgather`.
        unsafe { raw::neighbor_alltoall(self.as_raw(), &send.send_buf(), out, &recv.recv_buf(), back) }
    }

    /// Sends buffer `k` of `send` to destination `k`, and receives buffer `k` of `recv` from source `k`; each can have
    /// its own length and datatype (MPI_Neighbor_alltoallw).
    ///
    /// ```
    /// use mpj::topology::Dim;
    /// use mpj::{Datatype, Reorder, SplitViews, ViewSpec};
    ///
    /// # mpj::threads(3, |world| {
    /// // 2 rows of 4 columns, of which the first and the last are copies of the neighbours' columns.
    /// let ring = world.cart(&[Dim::periodic(3)], Reorder::No)?.expect("3 cells");
    /// let column = Datatype::of::<usize>().vector(2, 1, 4)?;
    /// let columns = |at: [usize; 2]| at.map(|at| ViewSpec::new(at, &column, 1));
    /// let halo = SplitViews::<usize>::new(8, &columns([0, 3]), &columns([1, 2]))?;
    /// let mut cells = [ring.rank(); 8];
    /// let (mut ghosts, edges) = halo.split(&mut cells)?;
    /// ring.neighbor_alltoallw(&edges, &mut ghosts)?;
    /// let (before, after) = ((ring.rank() + 2) % 3, (ring.rank() + 1) % 3);
    /// assert_eq!(cells[4..], [before, ring.rank(), ring.rank(), after]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`neighbor_allgather`](Self::neighbor_allgather); [`ErrorClass::Arg`](crate::ErrorClass::Arg) if there is not
    /// one buffer for each neighbour.
    pub fn neighbor_alltoallw<S: SendBuf, R: RecvBuf>(&self, send: &[S], recv: &mut [R]) -> Result<()> {
        let send: Vec<Buf> = send.iter().map(SendBuf::send_buf).collect();
        let recv: Vec<Buf> = recv.iter_mut().map(RecvBuf::recv_buf).collect();
        // SAFETY: all buffers are borrowed until we return, those of `recv` mutably, so they do not overlap.
        unsafe { raw::neighbor_alltoallw(self.as_raw(), &send, &recv) }
    }
}

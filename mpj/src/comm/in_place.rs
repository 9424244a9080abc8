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
        let items = buf.recv_buf();
        let send = if self.rank() == root { Buf::in_place() } else { items.clone() };
        // SAFETY: as in `reduce_in_place`.
        unsafe { raw::gather(self.as_raw(), &send, &items, BlockLayout::EvenSplit, number(root)) }
    }

    /// Scatters the buffer of `root` in equal parts. The root's own part stays in place; each other rank's buffer
    /// receives its part. See [`scatter`](Self::scatter).
    ///
    /// # Errors
    /// As [`scatter`](Self::scatter).
    pub fn scatter_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B, root: usize) -> Result<()> {
        let items = buf.recv_buf();
        let recv = if self.rank() == root { Buf::in_place() } else { items.clone() };
        // SAFETY: `buf` is borrowed mutably until we return; the root's buffer is only read.
        unsafe { raw::scatter(self.as_raw(), &items, BlockLayout::EvenSplit, &recv, number(root)) }
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

    /// Sends part `r` of the buffer to rank `r`, and replaces it by the part from that rank. Allocates temporary memory
    /// of the size of the buffer. See [`alltoall`](Self::alltoall).
    ///
    /// # Errors
    /// As [`alltoall`](Self::alltoall).
    pub fn alltoall_in_place<B: RecvBuf + ?Sized>(&self, buf: &mut B) -> Result<()> {
        // SAFETY: as in `allreduce_in_place`.
        unsafe {
            raw::alltoall(
                self.as_raw(),
                &Buf::in_place(),
                BlockLayout::EvenSplit,
                &buf.recv_buf(),
                BlockLayout::EvenSplit,
            )
        }
    }
}

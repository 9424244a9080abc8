//! Collectives of single values, which return their result.

use mpj_datatypes::Receivable;

use super::Intracomm;
use super::object_collectives::check_one_per_rank;
use crate::address::number;
use crate::error::Result;
use crate::op::Op;
use crate::raw::{self, BlockLayout, Buf};
use crate::types::SendBuf;

/// Collectives of one value of each rank, which return their result instead of writing it to a buffer. The type must be
/// the same on all ranks.
impl Intracomm {
    /// Returns the value of `root` on every rank: [`bcast`](Self::bcast).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let seed = world.bcast_value(10 * world.rank(), 1)?;
    /// assert_eq!(seed, 10);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn bcast_value<T: Receivable>(&self, mut value: T, root: usize) -> Result<T> {
        self.bcast(std::slice::from_mut(&mut value), root)?;
        Ok(value)
    }

    /// Combines the values of all ranks at `root`: [`reduce`](Self::reduce). Other ranks get `None`.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn reduce_value<T: Receivable>(&self, value: T, op: Op, root: usize) -> Result<Option<T>> {
        let mut result = [value];
        self.reduce(&[value], &mut result, op, root)?;
        Ok((self.rank() == root).then_some(result[0]))
    }

    /// Combines the values of all ranks on every rank: [`allreduce`](Self::allreduce).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let total = world.allreduce_value(world.rank(), mpj::Op::Sum)?;
    /// assert_eq!(total, 3);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Self::allreduce).
    pub fn allreduce_value<T: Receivable>(&self, value: T, op: Op) -> Result<T> {
        let mut result = [value];
        self.allreduce(&[value], &mut result, op)?;
        Ok(result[0])
    }

    /// Combines the values of the ranks up to this one: [`scan`](Self::scan).
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn scan_value<T: Receivable>(&self, value: T, op: Op) -> Result<T> {
        let mut result = [value];
        self.scan(&[value], &mut result, op)?;
        Ok(result[0])
    }

    /// Combines the values of the ranks below this one: [`exscan`](Self::exscan). Rank 0 gets `None`.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let offset = world.exscan_value(100, mpj::Op::Sum)?.unwrap_or(0);
    /// assert_eq!(offset, 100 * world.rank());
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`exscan`](Self::exscan).
    pub fn exscan_value<T: Receivable>(&self, value: T, op: Op) -> Result<Option<T>> {
        let mut result = [value];
        self.exscan(&[value], &mut result, op)?;
        Ok((self.rank() > 0).then_some(result[0]))
    }

    /// Gathers the values of all ranks at `root`, in order of rank: [`gather`](Self::gather). Other ranks get `None`.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn gather_value<T: Receivable>(&self, value: T, root: usize) -> Result<Option<Vec<T>>> {
        let is_root = self.rank() == root;
        let mut all = vec![value; if is_root { self.size() } else { 0 }];
        self.gather(&[value], &mut all, root)?;
        Ok(is_root.then_some(all))
    }

    /// Gathers the values of all ranks on every rank, in order of rank: [`allgather`](Self::allgather).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let squares = world.allgather_value(world.rank() * world.rank())?;
    /// assert_eq!(squares, [0, 1, 4]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`allgather`](Self::allgather).
    pub fn allgather_value<T: Receivable>(&self, value: T) -> Result<Vec<T>> {
        let mut all = vec![value; self.size()];
        self.allgather(&[value], &mut all)?;
        Ok(all)
    }

    /// Returns `values[r]` of `root` on each rank `r`: [`scatter`](Self::scatter). The `values` of other ranks are
    /// ignored.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let values: &[char] = if world.rank() == 0 { &['a', 'b', 'c'] } else { &[] };
    /// assert_eq!(world.scatter_value(values, 0)?, ['a', 'b', 'c'][world.rank()]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`scatter`](Self::scatter).
    pub fn scatter_value<T: Receivable>(&self, values: &[T], root: usize) -> Result<T> {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        let recv = Buf::new(value.as_mut_ptr().cast(), 1, T::datatype());
        let send = values.send_buf();
        // SAFETY: the values are borrowed until we return; the place for one value is ours.
        unsafe { raw::scatter(self.as_raw(), &send, BlockLayout::EvenSplit, &recv, number(root)) }?;
        // SAFETY: the call has received an item of `T`'s datatype, which makes a valid value of a `Receivable` type.
        Ok(unsafe { value.assume_init() })
    }

    /// Sends `values[r]` to each rank `r`, and returns the values from all ranks, in order of rank:
    /// [`alltoall`](Self::alltoall).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// // The number of items for each rank, and the number from each.
    /// let (me, counts) = (world.rank(), [1, 20, 300].map(|count| count * (world.rank() + 1)));
    /// assert_eq!(world.alltoall_value(&counts)?, [1, 2, 3].map(|rank| rank * [1, 20, 300][me]));
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`alltoall`](Self::alltoall); [`ErrorClass::Count`](crate::ErrorClass::Count) if the number of values is not
    /// the number of ranks.
    pub fn alltoall_value<T: Receivable>(&self, values: &[T]) -> Result<Vec<T>> {
        if values.len() != self.size() {
            // A call that is refused fails on all ranks.
            let call = "alltoall_value";
            return self.as_raw().collective(call, |blocking| {
                check_one_per_rank(call, values.len(), blocking.size()).map(|()| Vec::new())
            });
        }
        let mut received = values.to_vec();
        self.alltoall(values, &mut received)?;
        Ok(received)
    }
}

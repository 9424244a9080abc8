//! Arrays of `ndarray` and views of them, with any strides: all elements in the order of their indices.

use mpj_datatypes::{Datatype, Equivalent, Receivable};
use ndarray::{ArrayBase, ArrayRef, Data, DataMut, Dimension};

use super::{RecvBuf, SendBuf};
use crate::raw::Buf;

// SAFETY: the items are the elements of the array, which borrows them or owns them on the heap.
unsafe impl<T: Equivalent, D: Dimension> SendBuf for ArrayRef<T, D> {
    fn send_buf(&self) -> Buf {
        match self.as_slice() {
            Some(slice) => Buf::slice(slice),
            None => {
                let (count, datatype) = strided(self);
                Buf::read_only(self.as_ptr().cast(), count, datatype)
            }
        }
    }
}

// SAFETY: as above; no other code reads or writes elements behind an exclusive reference, and no two elements overlap.
unsafe impl<T: Receivable, D: Dimension> RecvBuf for ArrayRef<T, D> {
    fn recv_buf(&mut self) -> Buf {
        match self.as_slice_mut() {
            Some(slice) => Buf::slice_mut(slice),
            None => {
                let (count, datatype) = strided(self);
                Buf::new(self.as_mut_ptr().cast(), count, datatype)
            }
        }
    }
}

// SAFETY: as for its `ArrayRef`.
unsafe impl<T: Equivalent, S: Data<Elem = T>, D: Dimension> SendBuf for ArrayBase<S, D> {
    fn send_buf(&self) -> Buf {
        ArrayRef::send_buf(self)
    }
}

// SAFETY: as for its `ArrayRef`; a mutable `ArrayRef` has no shared elements, because `ndarray` copies these.
unsafe impl<T: Receivable, S: DataMut<Elem = T>, D: Dimension> RecvBuf for ArrayBase<S, D> {
    fn recv_buf(&mut self) -> Buf {
        ArrayRef::recv_buf(self)
    }
}

/// Describes an array with gaps or in another order as one item, relative to its first element.
fn strided<T: Equivalent, D: Dimension>(array: &ArrayRef<T, D>) -> (usize, Datatype) {
    match Datatype::of_array_view(&array.view()) {
        Ok(datatype) => (1, datatype),
        // Only repeated elements (stride 0) can overflow the byte count. Describe the first element `usize::MAX` times:
        // calls then fail, and calls that send parts access only that element.
        Err(_) => match T::datatype().resized(0, 0) {
            Ok(first) => (usize::MAX, first),
            Err(why) => unreachable!("no extent: {why}"),
        },
    }
}

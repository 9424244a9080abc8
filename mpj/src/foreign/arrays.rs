//! Arrays of `ndarray` and views of them, however strided: all of their elements in the order of their indices.

use mpj_datatypes::{Datatype, Equivalent, Receivable};
use mpj_devices::Shape;
use ndarray::{ArrayBase, ArrayRef, Data, DataMut, Dimension};

use crate::types::{RecvBuf, RecvParts, SendBuf, SendParts};

// SAFETY: the items are the elements of the array, which borrows or owns them, on the heap if it owns them.
unsafe impl<T: Equivalent, D: Dimension> SendBuf for ArrayRef<T, D> {
    fn send_parts(&self) -> SendParts {
        match self.as_slice() {
            Some(slice) => slice.send_parts(),
            None => {
                let (count, shape) = strided(self);
                SendParts { base: self.as_ptr().cast(), count, shape }
            }
        }
    }
}

// SAFETY: as above; nobody else reads or writes elements behind an exclusive reference, no two of which are one place.
unsafe impl<T: Receivable, D: Dimension> RecvBuf for ArrayRef<T, D> {
    fn recv_parts(&mut self) -> RecvParts {
        match self.as_slice_mut() {
            Some(slice) => slice.recv_parts(),
            None => {
                let (count, shape) = strided(self);
                RecvParts { base: self.as_mut_ptr().cast(), count, shape }
            }
        }
    }
}

// SAFETY: as of the `ArrayRef` that it is.
unsafe impl<T: Equivalent, S: Data<Elem = T>, D: Dimension> SendBuf for ArrayBase<S, D> {
    fn send_parts(&self) -> SendParts {
        ArrayRef::send_parts(self)
    }
}

// SAFETY: as of the `ArrayRef` that it is; elements that are shared have been copied when it is there.
unsafe impl<T: Receivable, S: DataMut<Elem = T>, D: Dimension> RecvBuf for ArrayBase<S, D> {
    fn recv_parts(&mut self) -> RecvParts {
        ArrayRef::recv_parts(self)
    }
}

/// Describes an array with gaps, or in another order: one item, from its first element on.
fn strided<T: Equivalent, D: Dimension>(array: &ArrayRef<T, D>) -> (usize, Shape) {
    match Datatype::of_view(&array.view()) {
        Ok(datatype) => (1, Shape::of(&datatype)),
        // Some element is repeated more often than bytes can be counted. So is the first one here, which is where every
        // part of it lies, too: calls that send parts read no other memory.
        Err(_) => match T::datatype().resized(0, 0) {
            Ok(first) => (usize::MAX, Shape::Typed(first)),
            Err(why) => unreachable!("no extent: {why}"),
        },
    }
}

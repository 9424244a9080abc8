//! Datatypes of `ndarray` views.

use crate::{Datatype, Equivalent, OutOfRangeError, Packer, Receivable, TypeError, Unpacker};
use ndarray::{ArrayView, ArrayViewMut, Dimension};

impl Datatype {
    /// Returns the type of a view: one item is all elements, in the order of their indices; its origin is the first
    /// element, at `view.as_ptr()`.
    ///
    /// # Errors
    /// [`TypeError`] if the view repeats elements so often that the size overflows, or if `T` is nested too deeply.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::{Datatype, Run};
    /// use ndarray::{Array2, s};
    /// let grid = Array2::<f32>::zeros((4, 5));
    /// let inner = Datatype::of_array_view(&grid.slice(s![1..3, 1..;2]))?;
    /// assert_eq!(inner.element_count(), 4);
    /// assert_eq!(inner.runs(1).nth(1), Some(Run { offset: 8, len: 4 }));
    /// // The origin of a reversed view is its first element, too.
    /// assert_eq!(Datatype::of_array_view(&grid.slice(s![..;-1, 0]))?.byte_bounds(1)?, (-60, 4));
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn of_array_view<T: Equivalent, D: Dimension>(
        view: &ArrayView<'_, T, D>,
    ) -> Result<Datatype, TypeError> {
        let mut datatype = T::datatype();
        if view.is_empty() {
            return datatype.contiguous(0);
        }
        // The stride of a dimension with one element is arbitrary. Fewer than 64 dimensions have more, because the
        // number of elements fits an `isize`, so the depth stays small.
        let taken = view.shape().iter().zip(view.strides()).filter(|(count, _)| **count > 1);
        for (&count, &stride) in taken.rev() {
            datatype = datatype.hvector(count, 1, (stride as i64).wrapping_mul(size_of::<T>() as i64))?;
        }
        Ok(datatype)
    }
}

impl<'a> Packer<'a> {
    /// Starts to pack all elements of a view, in the order of their indices.
    ///
    /// # Errors
    /// As [`Datatype::of_array_view`].
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Packer;
    /// use ndarray::array;
    /// let matrix = array![[1u8, 2, 3], [4, 5, 6]];
    /// let mut packed = [0; 6];
    /// Packer::view(matrix.t())?.pack_into_bytes(&mut packed);
    /// assert_eq!(packed, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn view<T: Equivalent, D: Dimension>(view: ArrayView<'a, T, D>) -> Result<Packer<'a>, TypeError> {
        let datatype = Datatype::of_array_view(&view)?;
        // SAFETY: the type contains only elements of the view, which it borrows, and of each only initialised bytes.
        Ok(unsafe { Packer::borrowed(datatype, view.as_ptr().cast()) })
    }
}

impl<'a> Unpacker<'a> {
    /// Starts to unpack into all elements of a view, in the order of their indices.
    ///
    /// # Errors
    /// [`OutOfRangeError`] if [`Datatype::of_array_view`] fails or the type
    /// [needs validation](Datatype::needs_validation), as for [`Unpacker::of_slice`].
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Unpacker;
    /// use ndarray::{Array2, s};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut matrix = Array2::<u8>::zeros((2, 3));
    /// Unpacker::view(matrix.slice_mut(s![.., 1]))?.unpack_from(&[7, 8])?;
    /// assert_eq!(matrix, ndarray::array![[0, 7, 0], [0, 8, 0]]);
    /// # Ok(()) }
    /// ```
    pub fn view<T: Receivable, D: Dimension>(
        mut view: ArrayViewMut<'a, T, D>,
    ) -> Result<Unpacker<'a>, OutOfRangeError> {
        let error = |needs_validation| {
            let available = view.len().saturating_mul(size_of::<T>());
            OutOfRangeError { lowest: i64::MIN, highest: i64::MAX, origin: 0, available, needs_validation }
        };
        let datatype = Datatype::of_array_view(&view.view()).map_err(|_| error(false))?;
        if datatype.needs_validation() {
            return Err(error(true));
        }
        // SAFETY: the type contains only elements of the view, which it borrows exclusively, and any bytes may be
        // stored in them, because they need no validation.
        Ok(unsafe { Unpacker::borrowed(datatype, view.as_mut_ptr().cast()) })
    }
}

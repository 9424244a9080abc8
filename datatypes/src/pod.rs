//! Structures of other crates, which cannot have `#[derive(Datatype)]`.

use crate::{Datatype, Equivalent, Primitive, Receivable};

/// A [`bytemuck::Pod`] type of another crate as an element, such as a vector of `glam`.
///
/// It is sent as [`Primitive::Byte`]s, which are never swapped. A receive of any other `PodElement` type of the same
/// length accepts them. For your own structures use [`#[derive(Datatype)]`](macro@crate::Datatype), which checks the
/// fields and allows a `PodElement` as a field.
///
/// ```
/// use mpj_datatypes::{Packer, PodElement};
///
/// #[repr(C)]
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// struct Foreign {
///     at: [f32; 2],
///     id: u32,
/// }
/// let points = [Foreign { at: [0.5, 1.5], id: 7 }; 3];
/// let packer = Packer::of_slice(PodElement::wrap_slice(&points))?;
/// assert_eq!(packer.remaining(), 36);
/// # Ok::<(), mpj_datatypes::OutOfRangeError>(())
/// ```
/// A type with padding, or with invalid bit patterns, cannot be a `PodElement`:
/// ```compile_fail,E0277
/// mpj_datatypes::Datatype::of::<mpj_datatypes::PodElement<bool>>();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct PodElement<T>(pub T);

// SAFETY: a `#[repr(transparent)]` structure with the one field `T`.
unsafe impl<T> bytemuck::TransparentWrapper<T> for PodElement<T> {}

impl<T: bytemuck::Pod> PodElement<T> {
    /// Returns a slice as elements, without a copy.
    pub fn wrap_slice(slice: &[T]) -> &[Self] {
        bytemuck::TransparentWrapper::wrap_slice(slice)
    }

    /// Returns a slice as elements that can be received, without a copy.
    pub fn wrap_slice_mut(slice: &mut [T]) -> &mut [Self] {
        bytemuck::TransparentWrapper::wrap_slice_mut(slice)
    }
}

// SAFETY: `bytemuck::Pod` promises that every byte of every value is initialised (there is no padding) and that none
// changes behind a shared reference. The datatype has each byte once, and its extent is the size of the type.
unsafe impl<T: bytemuck::Pod> Equivalent for PodElement<T> {
    const PRIMITIVE: Option<Primitive> = None;

    fn datatype() -> Datatype {
        match Datatype::primitive(Primitive::Byte).contiguous(size_of::<T>()) {
            Ok(datatype) => datatype,
            Err(why) => unreachable!("bytes of a type: {why}"),
        }
    }
}

// SAFETY: `bytemuck::Pod` promises that any bytes are a value.
unsafe impl<T: bytemuck::Pod> Receivable for PodElement<T> {}

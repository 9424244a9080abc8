//! The bounds check of the safe API: the bytes of the items must be inside the slice.

use crate::{Datatype, Equivalent, OutOfRangeError, Receivable, extent};
use core::mem::MaybeUninit;

/// Returns the packed size of the items, or an error if they exceed a slice of `available` bytes.
#[inline]
pub(crate) fn check(
    datatype: &Datatype,
    origin: usize,
    count: usize,
    available: usize,
) -> Result<usize, OutOfRangeError> {
    // The error for bounds beyond 64 bits, and for packed sizes above isize::MAX.
    let everything =
        OutOfRangeError { lowest: i64::MIN, highest: i64::MAX, origin, available, needs_validation: false };
    let node = datatype.node();
    let (lowest, highest) = extent::bounds(&node.extent, count).map_err(|_| everything)?;
    let total =
        node.size.checked_mul(count).filter(|&total| total <= isize::MAX as usize).ok_or(everything)?;
    let (low, high) = (origin as i128 + i128::from(lowest), origin as i128 + i128::from(highest));
    if total > 0 && (low < 0 || high > available as i128) {
        return Err(OutOfRangeError { lowest, highest, ..everything });
    }
    Ok(total)
}

/// Returns the bytes of a slice, including padding.
pub(crate) fn view<T: Equivalent>(slice: &[T]) -> &[MaybeUninit<u8>] {
    // SAFETY: the same memory and lifetime; a MaybeUninit<u8> may be read at any address and need not be
    // initialised; T is `Copy`, so it has no interior mutability.
    unsafe { core::slice::from_raw_parts(slice.as_ptr().cast(), size_of_val(slice)) }
}

/// Returns the bytes of a slice, for writing initialised bytes that are values of `T`.
pub(crate) fn view_mut<T: Receivable>(slice: &mut [T]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same memory and lifetime, exclusive; the callers in this crate write only initialised bytes, and only
    // where the datatype of T or (for u8) any type has them, so that the elements stay values of T.
    unsafe { core::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), size_of_val(slice)) }
}

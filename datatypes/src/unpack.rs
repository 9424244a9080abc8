//! From packed bytes to a layout: the raw function and the safe, resumable [`Unpacker`].

use crate::cursor::Cursor;
use crate::kernels;
use crate::{Datatype, OutOfRangeError, Receivable, TooLongError, slice_bounds};
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use std::borrow::Cow;

impl Datatype {
    /// Unpacks `input` as the packed bytes of `count` items from `position` on, up to the end of the last item. Returns
    /// the number of bytes used. If pieces overlap, which MPI 4.1 §5.1.11 calls erroneous, the last write wins.
    ///
    /// # Safety
    /// With `(low, high) = self.byte_bounds(count)`, which must be `Ok`: every byte in `dst + low .. dst + high` that
    /// the items contain is writable, in one allocation, is not accessed otherwise meanwhile, and is not part of
    /// `input`. Before the memory is read as `bool` or `char`, [`Datatype::validate`] must be called.
    #[inline]
    pub unsafe fn unpack(&self, dst: *mut u8, count: usize, position: usize, input: &[u8]) -> usize {
        let packed = input.as_ptr().cast_mut();
        let node = self.node();
        let args = node.kernel_args(dst, count, position, packed, input.len());
        if args.len > 0 {
            // SAFETY: `args` exceeds neither the items nor `input`, which is only read; the caller promises the memory.
            unsafe { kernels::unpack(&node.plan, args) };
        }
        args.len
    }
}

/// Unpacks into a slice in portions, as bytes arrive.
///
/// ```
/// use mpj_datatypes::{Datatype, Unpacker};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut matrix = [0u8; 12];
/// let column = Datatype::of::<u8>().vector(3, 1, 4)?;
/// let mut unpacker = Unpacker::new(&column, &mut matrix, 1, 1)?;
/// unpacker.unpack_from(&[7, 8])?;
/// assert_eq!(unpacker.remaining(), 1);
/// unpacker.unpack_from(&[9])?;
/// assert!(unpacker.unpack_from(&[10]).is_err());
/// assert_eq!(matrix, [0, 7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0]);
/// # Ok(()) }
/// ```
pub struct Unpacker<'a> {
    /// Invariant: any byte may be written to the memory of its items, which is exclusively borrowed for `'a`.
    pub(crate) cursor: Cursor<'a>,
    borrow: PhantomData<&'a mut [u8]>,
}

impl<'a> Unpacker<'a> {
    /// Starts to unpack `count` items into `dst`; displacement 0 of the first is at byte `origin`.
    ///
    /// # Errors
    /// [`OutOfRangeError`] if a byte of the items is outside of `dst`, or their packed size exceeds `isize::MAX`.
    #[inline]
    pub fn new(
        datatype: &'a Datatype,
        dst: &'a mut [u8],
        origin: usize,
        count: usize,
    ) -> Result<Unpacker<'a>, OutOfRangeError> {
        Unpacker::over(Cow::Borrowed(datatype), slice_bounds::view_mut(dst), origin, count)
    }

    /// Starts to unpack into memory that need not be initialised; see [`Unpacker::new`].
    ///
    /// # Errors
    /// [`OutOfRangeError`] if a byte of the items is outside of `dst`, or their packed size exceeds `isize::MAX`.
    #[inline]
    pub fn new_uninit(
        datatype: &'a Datatype,
        dst: &'a mut [MaybeUninit<u8>],
        origin: usize,
        count: usize,
    ) -> Result<Unpacker<'a>, OutOfRangeError> {
        Unpacker::over(Cow::Borrowed(datatype), dst, origin, count)
    }

    #[inline(always)]
    fn over(
        datatype: Cow<'a, Datatype>,
        dst: &'a mut [MaybeUninit<u8>],
        origin: usize,
        count: usize,
    ) -> Result<Unpacker<'a>, OutOfRangeError> {
        let cursor = Cursor::new(datatype, dst.as_mut_ptr().cast(), dst.len(), origin, count)?;
        Ok(Unpacker { cursor, borrow: PhantomData })
    }

    /// # Safety
    /// Any byte may be written to the memory of one item at `at`, which is exclusively borrowed for `'a`.
    #[cfg(feature = "ndarray")]
    pub(crate) unsafe fn borrowed(datatype: Datatype, at: *mut u8) -> Unpacker<'a> {
        Unpacker { cursor: Cursor::item(datatype, at), borrow: PhantomData }
    }

    /// Starts to unpack into all elements of `dst` as items of [`T::datatype()`](crate::Equivalent::datatype).
    ///
    /// # Errors
    /// [`OutOfRangeError`] if the type exceeds the slice, which no correct `Equivalent` does, and for types that [need
    /// validation](Datatype::needs_validation): a forgotten unpacker must not expose an unchecked `bool`. Unpack such
    /// types into `MaybeUninit` with [`Unpacker::new_uninit`].
    pub fn of_slice<T: Receivable>(dst: &'a mut [T]) -> Result<Unpacker<'a>, OutOfRangeError> {
        let datatype = T::datatype();
        let (count, available) = (dst.len(), size_of_val(dst));
        if datatype.needs_validation() {
            let highest = available as i64;
            return Err(OutOfRangeError { lowest: 0, highest, origin: 0, available, needs_validation: true });
        }
        Unpacker::over(Cow::Owned(datatype), slice_bounds::view_mut(dst), 0, count)
    }

    /// Unpacks all of `input` as the next bytes and returns its length.
    ///
    /// # Errors
    /// [`TooLongError`] if `input` is longer than [`remaining`](Unpacker::remaining); then nothing is written.
    #[inline]
    pub fn unpack_from(&mut self, input: &[u8]) -> Result<usize, TooLongError> {
        let capacity = self.remaining();
        if input.len() > capacity {
            return Err(TooLongError { given: input.len(), capacity });
        }
        let (datatype, at, count, position) = self.cursor.parts();
        // SAFETY: the bytes of the items may be written and are exclusively borrowed, by the invariant of `cursor`, so
        // `input` is elsewhere.
        let n = unsafe { datatype.unpack(at, count, position, input) };
        self.cursor.skip(n);
        Ok(n)
    }

    /// Returns the number of packed bytes that remain.
    pub fn remaining(&self) -> usize {
        self.cursor.remaining()
    }

    /// Returns the number of bytes unpacked so far.
    pub fn position(&self) -> usize {
        self.cursor.position()
    }
}

// SAFETY: an unpacker is an exclusive borrow of bytes.
unsafe impl Send for Unpacker<'_> {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for Unpacker<'_> {}

impl fmt::Debug for Unpacker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cursor.debug("Unpacker", f)
    }
}

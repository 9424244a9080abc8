//! From a layout to packed bytes: the raw function and the safe, resumable [`Packer`].

use crate::cursor::Cursor;
use crate::kernels;
use crate::{Datatype, Equivalent, OutOfRangeError, slice_bounds};
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use std::borrow::Cow;

impl Datatype {
    /// Packs `count` items from packed position `position` on into `out`, as far as they fit. Returns the number of
    /// bytes. A call may start and end at any byte, even inside a primitive.
    ///
    /// # Safety
    /// With `(low, high) = self.byte_bounds(count)`, which must be `Ok`: every byte in `src + low .. src + high` that
    /// the items contain is readable and initialised, in one allocation, and none of them is written meanwhile.
    ///
    /// # Examples
    /// ```
    /// use core::mem::MaybeUninit;
    /// use mpj_datatypes::Datatype;
    /// # fn main() -> Result<(), mpj_datatypes::TypeError> {
    /// let data = [1u8, 2, 3, 4, 5, 6];
    /// let every_second = Datatype::of::<u8>().vector(3, 1, 2)?;
    /// let mut out = [MaybeUninit::uninit(); 8];
    /// assert_eq!(every_second.byte_bounds(1)?, (0, 5));
    /// // SAFETY: the items have bytes in 0..5 of six initialised ones.
    /// let n = unsafe { every_second.pack(data.as_ptr(), 1, 1, &mut out) };
    /// assert_eq!(n, 2);
    /// // SAFETY: `pack` wrote two bytes.
    /// assert_eq!(unsafe { out[0].assume_init() }, 3);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub unsafe fn pack(
        &self,
        src: *const u8,
        count: usize,
        position: usize,
        out: &mut [MaybeUninit<u8>],
    ) -> usize {
        let packed = out.as_mut_ptr().cast();
        let node = self.node();
        let args = node.kernel_args(src.cast_mut(), count, position, packed, out.len());
        if args.len > 0 {
            // SAFETY: `args` exceeds neither the items nor `out`, which is exclusive; the caller promises the bytes in
            // memory, which is only read.
            unsafe { kernels::pack(&node.plan, args) };
        }
        args.len
    }
}

/// Packs a slice in portions.
///
/// ```
/// use mpj_datatypes::{Datatype, Packer};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let matrix: [u8; 12] = core::array::from_fn(|i| i as u8);
/// let column = Datatype::of::<u8>().vector(3, 1, 4)?;
/// let mut packer = Packer::new(&column, &matrix, 1, 1)?;
/// let mut portion = [0; 2];
/// assert_eq!(packer.pack_into_bytes(&mut portion), 2);
/// assert_eq!((portion, packer.remaining()), ([1, 5], 1));
/// assert_eq!(packer.pack_into_bytes(&mut portion), 1);
/// assert_eq!(portion[0], 9);
/// # Ok(()) }
/// ```
///
/// A packer borrows what it packs:
/// ```compile_fail
/// use mpj_datatypes::{Datatype, Packer};
/// let mut data = vec![0u8; 4];
/// let bytes = Datatype::of::<u8>();
/// let packer = Packer::new(&bytes, &data, 0, 4).unwrap();
/// data.clear();
/// drop(packer);
/// ```
pub struct Packer<'a> {
    /// Invariant: the bytes of its items (not those between) are initialised, and borrowed for `'a`.
    pub(crate) cursor: Cursor<'a>,
    borrow: PhantomData<&'a [u8]>,
}

impl<'a> Packer<'a> {
    /// Starts to pack `count` items from `src`; displacement 0 of the first is at byte `origin`.
    ///
    /// # Errors
    /// [`OutOfRangeError`] if a byte of the items is outside of `src`, or their packed size exceeds `isize::MAX`.
    #[inline]
    pub fn new(
        datatype: &'a Datatype,
        src: &'a [u8],
        origin: usize,
        count: usize,
    ) -> Result<Packer<'a>, OutOfRangeError> {
        Packer::over(Cow::Borrowed(datatype), slice_bounds::view(src), origin, count)
    }

    /// Starts to pack all elements of `src` as items of [`T::datatype()`](Equivalent::datatype).
    ///
    /// # Errors
    /// [`OutOfRangeError`] if the type exceeds the slice, which no correct `Equivalent` does.
    pub fn of_slice<T: Equivalent>(src: &'a [T]) -> Result<Packer<'a>, OutOfRangeError> {
        Packer::over(Cow::Owned(T::datatype()), slice_bounds::view(src), 0, src.len())
    }

    /// The caller ensures that the bytes of the items in `src` are initialised.
    #[inline(always)]
    fn over(
        datatype: Cow<'a, Datatype>,
        src: &'a [MaybeUninit<u8>],
        origin: usize,
        count: usize,
    ) -> Result<Packer<'a>, OutOfRangeError> {
        let start = src.as_ptr().cast::<u8>().cast_mut();
        let cursor = Cursor::new(datatype, start, src.len(), origin, count)?;
        Ok(Packer { cursor, borrow: PhantomData })
    }

    /// # Safety
    /// The bytes of one item at `at` are initialised, and borrowed shared, for `'a`.
    #[cfg(feature = "ndarray")]
    pub(crate) unsafe fn borrowed(datatype: Datatype, at: *const u8) -> Packer<'a> {
        Packer { cursor: Cursor::item(datatype, at.cast_mut()), borrow: PhantomData }
    }

    /// Packs the next bytes into `out` and returns their number: `min(out.len(), self.remaining())`.
    #[inline]
    pub fn pack_into(&mut self, out: &mut [MaybeUninit<u8>]) -> usize {
        let (datatype, at, count, position) = self.cursor.parts();
        // SAFETY: the bytes of the items are initialised and borrowed, by the invariant of `cursor`.
        let n = unsafe { datatype.pack(at, count, position, out) };
        self.cursor.skip(n);
        n
    }

    /// Packs the next bytes as [`pack_into`](Packer::pack_into) does, into initialised memory.
    #[inline]
    pub fn pack_into_bytes(&mut self, out: &mut [u8]) -> usize {
        self.pack_into(slice_bounds::view_mut(out))
    }

    /// Returns the number of packed bytes that remain.
    pub fn remaining(&self) -> usize {
        self.cursor.remaining()
    }

    /// Returns the number of bytes packed so far.
    pub fn position(&self) -> usize {
        self.cursor.position()
    }
}

// SAFETY: a packer is a shared borrow of bytes.
unsafe impl Send for Packer<'_> {}
// SAFETY: as above.
unsafe impl Sync for Packer<'_> {}

impl fmt::Debug for Packer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cursor.debug("Packer", f)
    }
}

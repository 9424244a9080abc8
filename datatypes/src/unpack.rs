//! From packed bytes to a layout: the raw entry and the safe, resumable [`Unpacker`].

use crate::kernels::{self, Job, Side};
use crate::{Datatype, OutOfRange, Receivable, TooLong, range};
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use std::borrow::Cow;

impl Datatype {
    /// Unpacks `input`, which holds the packed bytes of `count` items from `position` on, and returns how many were
    /// used: all, or those up to the end of the last item.
    ///
    /// Types whose pieces overlap are unpacked in order, the last write wins (MPI 4.1 §5.1.11 calls such a receive
    /// erroneous; here it is harmless).
    ///
    /// # Safety
    /// With `(low, high) = self.bounds(count)`, which must be `Ok`: every byte in `dst + low .. dst + high` that the
    /// type names is writable, in one allocation, is not accessed otherwise meanwhile, and is not part of `input`.
    /// Where the memory is seen as `bool` or `char` later, [`Datatype::validate`] must come first.
    #[inline]
    pub unsafe fn unpack(&self, dst: *mut u8, count: usize, position: usize, input: &[u8]) -> usize {
        let left = self.packed_size_or_max(count).saturating_sub(position);
        let len = left.min(input.len());
        if len == 0 {
            return 0;
        }
        let packed = input.as_ptr().cast_mut();
        let job = Job { user: dst, packed, len, position, count, stride: self.extent() };
        let plan = self.plan();
        // SAFETY: position + len is at most the packed size; `input` is long enough and unpacking only reads it; the
        // caller promises the bytes in memory.
        unsafe { kernels::unpack(plan, job) };
        len
    }
}

/// Unpacks into a slice piece by piece, as the bytes arrive.
///
/// # Examples
/// ```
/// use mpj_datatypes::{Datatype, Unpacker};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut matrix = [0u8; 12];
/// let column = Datatype::of::<u8>().vector(3, 1, 4)?;
/// let mut unpacker = Unpacker::new(&column, &mut matrix, 1, 1)?;
/// unpacker.feed(&[7, 8])?;
/// assert_eq!(unpacker.remaining(), 1);
/// unpacker.feed(&[9])?;
/// assert!(unpacker.feed(&[10]).is_err());
/// assert_eq!(matrix, [0, 7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0]);
/// # Ok(()) }
/// ```
pub struct Unpacker<'a> {
    datatype: Cow<'a, Datatype>,
    /// The origin of the first item. Invariant: the bytes that `count` items there name may hold any initialised bytes,
    /// and are exclusively borrowed for `'a`.
    at: *mut u8,
    borrow: PhantomData<&'a mut [u8]>,
    count: usize,
    position: usize,
    total: usize,
}

impl<'a> Unpacker<'a> {
    /// Starts to unpack `count` items into `dst`; displacement 0 of the first lies at byte `origin`.
    ///
    /// # Errors
    /// [`OutOfRange`] if a byte named lies outside of `dst`.
    #[inline]
    pub fn new(
        datatype: &'a Datatype,
        dst: &'a mut [u8],
        origin: usize,
        count: usize,
    ) -> Result<Unpacker<'a>, OutOfRange> {
        Unpacker::over(Cow::Borrowed(datatype), range::view_mut(dst), origin, count)
    }

    /// Starts to unpack into memory that need not be initialised; see [`Unpacker::new`].
    ///
    /// # Errors
    /// [`OutOfRange`] if a byte named lies outside of `dst`.
    #[inline]
    pub fn uninit(
        datatype: &'a Datatype,
        dst: &'a mut [MaybeUninit<u8>],
        origin: usize,
        count: usize,
    ) -> Result<Unpacker<'a>, OutOfRange> {
        Unpacker::over(Cow::Borrowed(datatype), dst, origin, count)
    }

    #[inline]
    fn over(
        datatype: Cow<'a, Datatype>,
        dst: &'a mut [MaybeUninit<u8>],
        origin: usize,
        count: usize,
    ) -> Result<Unpacker<'a>, OutOfRange> {
        let total = range::check(&datatype, origin, count, dst.len())?;
        let at = dst.as_mut_ptr().cast::<u8>().wrapping_add(origin);
        Ok(Unpacker { datatype, at, borrow: PhantomData, count, position: 0, total })
    }

    /// One item.
    ///
    /// # Safety
    /// The bytes that the type names around `at` are writable, may hold any bytes, and are borrowed exclusively, for `'a`.
    #[cfg(feature = "ndarray")]
    pub(crate) unsafe fn borrowed(datatype: Datatype, at: *mut u8) -> Unpacker<'a> {
        let total = datatype.size();
        Unpacker { datatype: Cow::Owned(datatype), at, borrow: PhantomData, count: 1, position: 0, total }
    }

    /// What the raw entries take.
    pub(crate) fn place(&mut self) -> (&Datatype, *mut u8, usize, usize) {
        (&self.datatype, self.at, self.count, self.position)
    }

    /// Starts to unpack into all elements of `dst` as items of [`T::datatype()`](crate::Equivalent::datatype).
    ///
    /// # Errors
    /// [`OutOfRange`] if the type names bytes outside of the slice, which no correct `Equivalent` does, and also for
    /// types that [need a check](Datatype::needs_check): an unpacker can be forgotten half-way, and an unchecked
    /// `bool` must not come to light then. Unpack such types into `MaybeUninit` with [`Unpacker::uninit`].
    pub fn typed<T: Receivable>(dst: &'a mut [T]) -> Result<Unpacker<'a>, OutOfRange> {
        let datatype = T::datatype();
        let (count, available) = (dst.len(), size_of_val(dst));
        if datatype.needs_check() {
            return Err(OutOfRange { lowest: 0, highest: available as i64, origin: 0, available: 0 });
        }
        Unpacker::over(Cow::Owned(datatype), range::view_mut(dst), 0, count)
    }

    /// Unpacks the next packed bytes and returns how many: all of `input`.
    ///
    /// # Errors
    /// [`TooLong`] if they are more than [`remaining`](Unpacker::remaining); then nothing is written.
    #[inline]
    pub fn feed(&mut self, input: &[u8]) -> Result<usize, TooLong> {
        let room = self.remaining();
        if input.len() > room {
            return Err(TooLong { given: input.len(), room });
        }
        // SAFETY: the bytes named may be written and are exclusively borrowed, by the invariant of `at`, so that `input`
        // is elsewhere.
        let n = unsafe { self.datatype.unpack(self.at, self.count, self.position, input) };
        self.position += n;
        Ok(n)
    }

    /// What is left, for a kernel.
    pub(crate) fn side(&mut self) -> Side<'_> {
        let user = self.at;
        let (plan, stride) = (self.datatype.plan(), self.datatype.extent());
        Side { plan, user, count: self.count, stride, position: self.position }
    }

    /// Counts `len` bytes as taken; there is room for as many.
    pub(crate) fn skip(&mut self, len: usize) {
        self.position += len;
    }

    /// Returns the packed bytes for which there still is room.
    pub fn remaining(&self) -> usize {
        self.total - self.position
    }

    /// Returns the packed bytes already taken.
    pub fn position(&self) -> usize {
        self.position
    }
}

// SAFETY: an unpacker is an exclusive borrow of bytes.
unsafe impl Send for Unpacker<'_> {}
// SAFETY: as above; through a shared one nothing is written.
unsafe impl Sync for Unpacker<'_> {}

impl fmt::Debug for Unpacker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker")
            .field("datatype", &self.datatype)
            .field("count", &self.count)
            .field("position", &self.position)
            .field("total", &self.total)
            .finish()
    }
}

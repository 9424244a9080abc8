//! From a layout to packed bytes: the raw entry and the safe, resumable [`Packer`].

use crate::kernels::Job;
use crate::{Datatype, Equivalent, OutOfRange, range};
use core::fmt;
use core::mem::MaybeUninit;

impl Datatype {
    /// Packs into `out` the packed bytes of `count` items from `position` on, as many as there are or as fit, and
    /// returns how many. It may stop and resume at any byte, also inside of a primitive.
    ///
    /// # Safety
    /// With `(low, high) = self.bounds(count)`, which must be `Ok`: every byte in `src + low .. src + high` that the
    /// type names is readable and initialised, in one allocation, and none of them is written meanwhile.
    ///
    /// # Examples
    /// ```
    /// use core::mem::MaybeUninit;
    /// use mpj_datatypes::Datatype;
    /// # fn main() -> Result<(), mpj_datatypes::TypeError> {
    /// let data = [1u8, 2, 3, 4, 5, 6];
    /// let every_second = Datatype::of::<u8>().vector(3, 1, 2)?;
    /// let mut out = [MaybeUninit::uninit(); 8];
    /// assert_eq!(every_second.bounds(1)?, (0, 5));
    /// // SAFETY: the type touches bytes 0..5 of six initialised ones.
    /// let n = unsafe { every_second.pack(data.as_ptr(), 1, 1, &mut out) };
    /// assert_eq!(n, 2);
    /// // SAFETY: `pack` wrote two bytes.
    /// assert_eq!(unsafe { out[0].assume_init() }, 3);
    /// # Ok(()) }
    /// ```
    pub unsafe fn pack(
        &self,
        src: *const u8,
        count: usize,
        position: usize,
        out: &mut [MaybeUninit<u8>],
    ) -> usize {
        let left = self.packed_size_or_max(count).saturating_sub(position);
        let len = left.min(out.len());
        if len == 0 {
            return 0;
        }
        let packed = out.as_mut_ptr().cast::<u8>();
        let user = src.cast_mut();
        let job = Job { user, packed, len, position, count, stride: self.extent() };
        let plan = self.plan();
        // SAFETY: position + len is at most the packed size; `out` is exclusive and long enough; the caller promises
        // the bytes in memory, which a pack kernel only reads; the kernel is the plan's own.
        unsafe { (plan.pack)(plan, job) };
        len
    }
}

/// Packs a slice piece by piece: a cell, a fragment or a socket buffer at a time.
///
/// # Examples
/// ```
/// use mpj_datatypes::{Datatype, Packer};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let matrix: [u8; 12] = core::array::from_fn(|i| i as u8);
/// let column = Datatype::of::<u8>().vector(3, 1, 4)?;
/// let mut packer = Packer::new(&column, &matrix, 1, 1)?;
/// let mut cell = [0; 2];
/// assert_eq!(packer.fill_bytes(&mut cell), 2);
/// assert_eq!((cell, packer.remaining()), ([1, 5], 1));
/// assert_eq!(packer.fill_bytes(&mut cell), 1);
/// assert_eq!(cell[0], 9);
/// # Ok(()) }
/// ```
///
/// A packer borrows what it packs:
/// ```compile_fail
/// use mpj_datatypes::{Datatype, Packer};
/// let mut data = vec![0u8; 4];
/// let packer = Packer::new(&Datatype::of::<u8>(), &data, 0, 4).unwrap();
/// data.clear();
/// drop(packer);
/// ```
pub struct Packer<'a> {
    datatype: Datatype,
    /// Invariant: the bytes that `count` items at `origin` name are inside, and initialised.
    src: &'a [MaybeUninit<u8>],
    origin: usize,
    count: usize,
    position: usize,
    total: usize,
}

impl<'a> Packer<'a> {
    /// Starts to pack `count` items from `src`; displacement 0 of the first lies at byte `origin`.
    ///
    /// # Errors
    /// [`OutOfRange`] if a byte named lies outside of `src`.
    pub fn new(
        datatype: &Datatype,
        src: &'a [u8],
        origin: usize,
        count: usize,
    ) -> Result<Packer<'a>, OutOfRange> {
        Packer::over(datatype, range::view(src), origin, count)
    }

    /// Starts to pack all elements of `src` as items of [`T::datatype()`](Equivalent::datatype).
    ///
    /// # Errors
    /// [`OutOfRange`] if the type names bytes outside of the slice, which no correct `Equivalent` does.
    pub fn typed<T: Equivalent>(src: &'a [T]) -> Result<Packer<'a>, OutOfRange> {
        Packer::over(&T::datatype(), range::view(src), 0, src.len())
    }

    /// `src` must be initialised wherever the type names it.
    fn over(
        datatype: &Datatype,
        src: &'a [MaybeUninit<u8>],
        origin: usize,
        count: usize,
    ) -> Result<Packer<'a>, OutOfRange> {
        let total = range::check(datatype, origin, count, src.len())?;
        Ok(Packer { datatype: datatype.clone(), src, origin, count, position: 0, total })
    }

    /// Writes the next packed bytes to `out` and returns how many: `min(out.len(), self.remaining())`.
    pub fn fill(&mut self, out: &mut [MaybeUninit<u8>]) -> usize {
        let at = self.src.as_ptr().cast::<u8>().wrapping_add(self.origin);
        // SAFETY: `range::check` found all bytes named inside of `src`, which is borrowed, so that nobody writes it;
        // they are initialised by the invariant of `src`.
        let n = unsafe { self.datatype.pack(at, self.count, self.position, out) };
        self.position += n;
        n
    }

    /// The same as [`fill`](Packer::fill) for memory that is initialised already.
    pub fn fill_bytes(&mut self, out: &mut [u8]) -> usize {
        self.fill(range::view_mut(out))
    }

    /// Returns the packed bytes still to come.
    pub fn remaining(&self) -> usize {
        self.total - self.position
    }

    /// Returns the packed bytes already delivered.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl fmt::Debug for Packer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer")
            .field("datatype", &self.datatype)
            .field("count", &self.count)
            .field("position", &self.position)
            .field("total", &self.total)
            .finish()
    }
}

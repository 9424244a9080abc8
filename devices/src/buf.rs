//! The caller's description of a buffer: address, number and type of items, and kind of memory.
//!
//! A `Buf` is safe to create with any address. The code that creates a [`Source`](crate::Source) or a
//! [`Target`](crate::Target) from it promises that the memory is valid.

use std::fmt;
use std::ptr::NonNull;

use mpj_datatypes::{Datatype, Equivalent, Primitive, Receivable};
use mpj_pool::{RawBuffer, Region};
use smallvec::SmallVec;

/// Items in memory.
///
/// ```
/// use mpj_datatypes::Datatype;
/// use mpj_devices::Buf;
///
/// let row = Datatype::of::<f32>().contiguous(3)?;
/// let numbers = [0f32; 12];
/// let rows = Buf::read_only(numbers.as_ptr().cast(), 4, row);
/// assert_eq!(rows.bytes(), Ok(48));
/// assert_eq!(rows.part(1, 2).base().addr(), numbers[3..].as_ptr().addr());
/// # Ok::<(), mpj_datatypes::TypeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Buf {
    base: *mut u8,
    count: usize,
    datatype: Datatype,
    origin: Origin,
}

/// The kind of memory that a [`Buf`] names. Devices have shorter paths for some kinds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// Memory of the program.
    Memory,
    /// A block in a region of a pool, which a device registers once for all its blocks.
    Region(RegionRef),
    /// The packed form of the items, in pieces. It can be sent, but a message cannot be received into it.
    Chain(Chain),
    /// The items are in the call's other buffer already (`MPI_IN_PLACE`).
    InPlace,
    /// The displacements of the type are addresses (`MPI_BOTTOM`).
    Absolute,
}

/// The address of the [`Region`] of a pool that contains a [`Buf`]. It does not keep the region alive.
#[derive(Clone, Copy, Debug)]
pub struct RegionRef(NonNull<Region>);

// SAFETY: it is an address; code that reads there is responsible for the access.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Send for RegionRef {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Sync for RegionRef {}

/// The reason why a [`Buf`] cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BufError {
    /// The length of the items in bytes overflows.
    TooLarge {
        /// The number of items.
        count: usize,
    },
    /// The length of a chain is not a multiple of the item size.
    PartialItem {
        /// The length of the chain in bytes.
        bytes: usize,
        /// The packed size of one item in bytes.
        item: usize,
    },
    /// A chain was given to receive into.
    Chain,
    /// An in-place buffer was given to a call that has no other buffer.
    InPlace,
}

impl fmt::Display for BufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BufError::TooLarge { count } => write!(f, "{count} items overflow the byte count"),
            BufError::PartialItem { bytes, item } => {
                write!(f, "the chain has {bytes} bytes, not a multiple of the item size {item}")
            }
            BufError::Chain => f.write_str("a chain is send-only"),
            BufError::InPlace => {
                f.write_str("MPI_IN_PLACE is not allowed here: the call has no other buffer")
            }
        }
    }
}

impl std::error::Error for BufError {}

impl Buf {
    /// Describes `count` items of `datatype`, a [`Datatype`](struct@Datatype) or a [`Primitive`], the first at `base`.
    #[inline]
    pub fn new(base: *mut u8, count: usize, datatype: impl Into<Datatype>) -> Self {
        Buf { base, count, datatype: datatype.into(), origin: Origin::Memory }
    }

    /// Describes items that are only read.
    #[inline]
    pub fn read_only(base: *const u8, count: usize, datatype: impl Into<Datatype>) -> Self {
        Buf::new(base.cast_mut(), count, datatype)
    }

    /// Describes the elements of a slice, to send.
    #[inline]
    pub fn slice<T: Equivalent>(slice: &[T]) -> Self {
        Buf::read_only(slice.as_ptr().cast(), slice.len(), T::datatype())
    }

    /// Describes the elements of a slice, to receive into.
    #[inline]
    pub fn slice_mut<T: Receivable>(slice: &mut [T]) -> Self {
        Buf::new(slice.as_mut_ptr().cast(), slice.len(), T::datatype())
    }

    /// Describes one item, to send.
    #[inline]
    pub fn item<T: Equivalent>(item: &T) -> Self {
        Buf::slice(core::slice::from_ref(item))
    }

    /// Describes one item, to receive into.
    #[inline]
    pub fn item_mut<T: Receivable>(item: &mut T) -> Self {
        Buf::slice_mut(core::slice::from_mut(item))
    }

    /// Describes items in a block of a pool, the first at byte `at` of it.
    pub fn in_block(block: &impl RawBuffer, at: usize, count: usize, datatype: impl Into<Datatype>) -> Self {
        Buf::new(block.as_ptr().as_ptr().wrapping_add(at), count, datatype).in_region(block.region())
    }

    /// Sets the pool region that contains the items, if any. The promise of [`Source::new`](crate::Source::new) and
    /// [`Target::new`](crate::Target::new) that the memory is valid also covers the region.
    pub fn in_region(self, region: Option<&Region>) -> Self {
        match region {
            Some(region) => Buf { origin: Origin::Region(RegionRef(region.into())), ..self },
            None => self,
        }
    }

    /// Describes items whose packed form is in pieces; the number of items follows from the total length. Pieces may be
    /// empty and may end anywhere, even within an item. The list may be empty, and is copied.
    pub fn chain(segments: impl IntoIterator<Item = ChainSegment>, datatype: impl Into<Datatype>) -> Self {
        let (chain, datatype) = (Chain::new(segments), datatype.into());
        let count = chain.bytes().checked_div(datatype.size()).unwrap_or(0);
        Buf { base: std::ptr::null_mut(), count, datatype, origin: Origin::Chain(chain) }
    }

    /// Describes items that are already in the call's other buffer (`MPI_IN_PLACE`).
    pub fn in_place() -> Self {
        Buf { origin: Origin::InPlace, ..Buf::empty() }
    }

    /// Describes items of a type whose displacements are addresses (`MPI_BOTTOM`).
    pub fn absolute(count: usize, datatype: impl Into<Datatype>) -> Self {
        let datatype = datatype.into();
        Buf { base: std::ptr::with_exposed_provenance_mut(0), count, datatype, origin: Origin::Absolute }
    }

    /// Describes a buffer without items.
    pub const fn empty() -> Self {
        let datatype = Datatype::primitive(Primitive::Byte);
        Buf { base: std::ptr::null_mut(), count: 0, datatype, origin: Origin::Memory }
    }

    /// Returns the address to which the displacements of the first item are relative; meaningless for a chain and for
    /// an in-place buffer.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the number of items.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the type of an item.
    #[inline]
    pub fn datatype(&self) -> &Datatype {
        &self.datatype
    }

    /// Returns the kind of memory that contains the items.
    #[inline]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the pieces that contain the packed form, if the buffer is a chain.
    #[inline]
    pub fn pieces(&self) -> Option<&Chain> {
        match &self.origin {
            Origin::Chain(chain) => Some(chain),
            _ => None,
        }
    }

    /// Returns the region that contains all items, if it is known.
    ///
    /// # Safety
    /// The region that the origin names, if any, exists for as long as the result is used.
    #[expect(unsafe_code, reason = "the contract is the caller's")]
    #[inline]
    pub(crate) unsafe fn region<'a>(&self) -> Option<&'a Region> {
        let Origin::Region(RegionRef(region)) = self.origin else { return None };
        // SAFETY: the caller's promise.
        let region = unsafe { region.as_ref() };
        self.is_inside(region).then_some(region)
    }

    #[inline(never)]
    fn is_inside(&self, region: &Region) -> bool {
        let Ok((first, end)) = self.datatype.byte_bounds(self.count) else { return false };
        // Addresses and bounds are far from the limits of an `i128`.
        let [base, start] = [self.base.addr(), region.base.addr().get()].map(|addr| addr as i128);
        base + i128::from(first) >= start && base + i128::from(end) <= start + region.len as i128
    }

    /// Returns whether the items are in the call's other buffer.
    #[inline]
    pub fn is_in_place(&self) -> bool {
        matches!(self.origin, Origin::InPlace)
    }

    /// Returns whether the buffer consists of contiguous primitives in ordinary memory of the program.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.datatype.is_primitive() && matches!(self.origin, Origin::Memory)
    }

    /// Returns the length in bytes if the buffer [is plain](Self::is_plain); `None` for other buffers, and if the
    /// length overflows.
    ///
    /// If the compiler knows the type, this is one multiplication, and the fields of the buffer stay in registers.
    /// Otherwise the fields are stored one by one, and a move of the whole buffer waits for these stores.
    #[inline(always)]
    pub(crate) fn plain_bytes(&self) -> Option<usize> {
        if self.is_plain() { self.datatype.packed_size(self.count).ok() } else { None }
    }

    /// Returns the packed length of all items in bytes.
    ///
    /// # Errors
    /// [`BufError::TooLarge`]; [`BufError::PartialItem`]; [`BufError::InPlace`], because the length of an in-place
    /// buffer depends on the call's other buffer.
    #[inline]
    pub fn bytes(&self) -> Result<usize, BufError> {
        if matches!(self.origin, Origin::Chain(_) | Origin::InPlace) {
            return self.bytes_elsewhere();
        }
        self.datatype.packed_size(self.count).map_err(|_| BufError::TooLarge { count: self.count })
    }

    #[cold]
    fn bytes_elsewhere(&self) -> Result<usize, BufError> {
        let Origin::Chain(chain) = &self.origin else { return Err(BufError::InPlace) };
        let (bytes, item) = (chain.bytes(), self.datatype.size());
        match self.datatype.packed_size(self.count) {
            _ if bytes > isize::MAX as usize => Err(BufError::TooLarge { count: self.count }),
            Ok(whole) if whole == bytes => Ok(bytes),
            _ => Err(BufError::PartialItem { bytes, item }),
        }
    }

    #[cold]
    fn origin_of_part(&self, at: usize, count: usize) -> Origin {
        let Origin::Chain(chain) = &self.origin else { return self.origin.clone() };
        let item = self.datatype.size();
        Origin::Chain(Chain::new(chain.range(at.saturating_mul(item), count.saturating_mul(item))))
    }

    /// Describes `count` of the items, from item `at` on.
    #[inline]
    pub fn part(&self, at: usize, count: usize) -> Buf {
        let shift = (at as isize).wrapping_mul(self.datatype.extent() as isize);
        let origin = match &self.origin {
            Origin::Memory => Origin::Memory,
            _ => self.origin_of_part(at, count),
        };
        Buf { base: self.base.wrapping_offset(shift), count, datatype: self.datatype.clone(), origin }
    }
}

/// A contiguous range of bytes of a [`Chain`].
#[derive(Clone, Copy, Debug)]
pub struct ChainSegment {
    /// The first byte.
    pub base: *const u8,
    /// The number of bytes.
    pub len: usize,
}

// SAFETY: it is an address and a length; code that reads there is responsible for the access.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Send for ChainSegment {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Sync for ChainSegment {}

impl From<&[u8]> for ChainSegment {
    fn from(bytes: &[u8]) -> Self {
        ChainSegment { base: bytes.as_ptr(), len: bytes.len() }
    }
}

/// Bytes in any number of pieces.
#[derive(Clone)]
pub struct Chain(Box<ChainLinks>);

/// A [`Chain`] boxes it, because a [`Buf`] is moved often and few of them are chains. A reference count would cost each
/// send of a chain a locked instruction.
type ChainLinks = SmallVec<[ChainLink; 8]>;

/// A segment, and the end of its bytes within the chain, for a binary search by position.
#[derive(Clone, Copy)]
struct ChainLink {
    segment: ChainSegment,
    end: usize,
}

impl Chain {
    fn new(segments: impl IntoIterator<Item = ChainSegment>) -> Self {
        let (mut end, mut links) = (0usize, ChainLinks::new());
        for segment in segments.into_iter().filter(|segment| segment.len > 0) {
            end = end.saturating_add(segment.len);
            links.push(ChainLink { segment, end });
        }
        Chain(Box::new(links))
    }

    /// Returns the sum of the lengths, which saturates at `usize::MAX`.
    pub fn bytes(&self) -> usize {
        self.0.last().map_or(0, |link| link.end)
    }

    /// Returns the segments that are not empty.
    pub fn segments(&self) -> impl Iterator<Item = ChainSegment> + '_ {
        self.0.iter().map(|link| link.segment)
    }

    /// Returns the segments of `len` bytes from `position` on, or of fewer bytes at the end of the chain.
    pub(crate) fn range(&self, position: usize, len: usize) -> ChainRange<'_> {
        let first = self.0.partition_point(|link| link.end <= position);
        let begin = first.checked_sub(1).map_or(0, |before| self.0[before].end);
        let len = len.min(self.bytes().saturating_sub(position));
        ChainRange { links: &self.0[first..], skip: position - begin, len }
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({} B in {})", self.bytes(), self.0.len())
    }
}

/// An iterator over the segments of a range of a chain. No segment is empty.
#[derive(Clone)]
pub(crate) struct ChainRange<'a> {
    links: &'a [ChainLink],
    /// The number of bytes before the range in the first segment; less than the segment's length.
    skip: usize,
    len: usize,
}

impl ChainRange<'_> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Iterator for ChainRange<'_> {
    type Item = ChainSegment;

    fn next(&mut self) -> Option<ChainSegment> {
        if self.len == 0 {
            return None;
        }
        let (first, rest) = self.links.split_first()?;
        let ChainSegment { base, len } = first.segment;
        let skip = std::mem::take(&mut self.skip);
        let len = (len - skip).min(self.len);
        self.links = rest;
        self.len -= len;
        Some(ChainSegment { base: base.wrapping_add(skip), len })
    }
}

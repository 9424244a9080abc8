//! Message and section headers. `README.md` specifies the format; `validate` checks a whole message.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ByteOrder, Element, ElementKind, FormatError};

/// Bytes of a message header.
pub const MESSAGE_HEADER_LEN: usize = 16;
/// Bytes of a section header.
pub const SECTION_HEADER_LEN: usize = 16;
/// Payloads begin at multiples of this, counted from the start of the message.
pub const ALIGN: usize = 16;
/// The format version that this build writes, and the only one that it reads.
pub const VERSION: u8 = 1;

/// Records of the dynamic part begin at multiples of this.
pub(crate) const RECORD_ALIGN: usize = 8;
/// Bytes of a record header: the length in front of each value in the dynamic part.
pub(crate) const RECORD_HEADER_LEN: usize = 8;

/// Offset of the count in a section header.
pub(crate) const COUNT_OFFSET: usize = 8;

const MAGIC: [u8; 4] = *b"mpjb";
const FLAG_DYNAMIC: u8 = 1;
/// Kind byte of the dynamic part, which is not an [`ElementKind`].
const KIND_DYNAMIC: u8 = 33;
/// Encoding: the elements follow the section header.
const ENCODING_IN_PLACE: u8 = 0;
/// Encoding: the elements are records in the dynamic part.
const ENCODING_IN_RECORDS: u8 = 1;
/// Bit of the encoding: the elements do not have the byte order that the message header states. Invalid for objects and
/// one-byte kinds.
const ENCODING_SWAPPED_BIT: u8 = 2;
/// Codec id of the slices that `write_dynamic` writes. Their schema is the kind of their elements.
const CODEC_SLICES: u8 = 3;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMessageHeader {
    magic: [u8; 4],
    version: u8,
    order: u8,
    flags: u8,
    reserved: u8,
    total: [u8; 8],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSectionHeader {
    kind: u8,
    encoding: u8,
    codec: u8,
    schema: u8,
    element_size: [u8; 4],
    count: [u8; 8],
}

const _: () = assert!(
    size_of::<RawMessageHeader>() == MESSAGE_HEADER_LEN
        && size_of::<RawSectionHeader>() == SECTION_HEADER_LEN
);

/// A parsed message header. `total` is not yet compared with the length of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageHeader {
    pub(crate) order: ByteOrder,
    pub(crate) dynamic: bool,
    pub(crate) total: u64,
}

impl MessageHeader {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let Ok((raw, _)) = RawMessageHeader::read_from_prefix(bytes) else {
            return Err(FormatError::Truncated {
                at: 0,
                needed: MESSAGE_HEADER_LEN as u64,
                available: bytes.len() as u64,
            });
        };
        // Magic and version first: a later version may define every other byte differently.
        if raw.magic != MAGIC {
            return Err(FormatError::Magic { found: raw.magic });
        }
        if raw.version != VERSION {
            return Err(FormatError::Version { found: raw.version, supported: VERSION });
        }
        let order = ByteOrder::from_mark(raw.order).ok_or(FormatError::ByteOrder { found: raw.order })?;
        if raw.flags & !FLAG_DYNAMIC != 0 {
            return Err(FormatError::Flags { found: raw.flags });
        }
        if raw.reserved != 0 {
            return Err(FormatError::Padding { at: 7 });
        }
        Ok(Self { order, dynamic: raw.flags & FLAG_DYNAMIC != 0, total: order.u64(raw.total) })
    }

    #[inline]
    pub(crate) fn bytes(dynamic: bool, total: usize) -> [u8; MESSAGE_HEADER_LEN] {
        zerocopy::transmute!(RawMessageHeader {
            magic: MAGIC,
            version: VERSION,
            order: ByteOrder::NATIVE.mark(),
            flags: if dynamic { FLAG_DYNAMIC } else { 0 },
            reserved: 0,
            total: (total as u64).to_ne_bytes(),
        })
    }
}

/// Description of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Section {
    /// The type of its elements.
    pub kind: ElementKind,
    /// Id of the codec that wrote its objects; 0 for primitives.
    pub codec: u8,
    /// The codec's hash of the type of its objects, or 0; for slices of `write_dynamic`, the kind of their elements.
    pub schema: u8,
    /// The byte order of its elements.
    pub byte_order: ByteOrder,
    /// Number of elements. In the result of [`peek`](crate::Buffer::peek), the number of unread elements.
    pub count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SectionHeader {
    Section { tag: SectionTag, kind: ElementKind, order: ByteOrder, count: u64 },
    Dynamic { len: u64 },
}

/// The first four bytes of a section header: kind, encoding, codec, schema. A parsed tag has no `ENCODING_SWAPPED_BIT`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectionTag(u32);

impl SectionTag {
    /// No section; 0 is not a kind.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn of<T: Element>() -> Self {
        Self(u32::from_ne_bytes([T::KIND as u8, ENCODING_IN_PLACE, 0, 0]))
    }

    pub(crate) const fn swapped(self) -> Self {
        Self(self.0 | u32::from_ne_bytes([0, ENCODING_SWAPPED_BIT, 0, 0]))
    }

    pub(crate) const fn objects(codec: u8, schema: u8) -> Self {
        Self(u32::from_ne_bytes([ElementKind::Object as u8, ENCODING_IN_RECORDS, codec, schema]))
    }

    pub(crate) const fn slices<T: Element>() -> Self {
        Self::objects(CODEC_SLICES, T::KIND as u8)
    }

    #[inline]
    pub(crate) fn kind(self) -> ElementKind {
        ElementKind::from_code(self.0.to_ne_bytes()[0]).unwrap_or(ElementKind::Object)
    }

    pub(crate) fn codec(self) -> u8 {
        self.0.to_ne_bytes()[2]
    }

    pub(crate) fn schema(self) -> u8 {
        self.0.to_ne_bytes()[3]
    }

    pub(crate) fn section(self, byte_order: ByteOrder, count: u64) -> Section {
        Section { kind: self.kind(), codec: self.codec(), schema: self.schema(), byte_order, count }
    }

    /// Returns the count in `header` if `header` has this tag and its element size. `order` is that of the message.
    #[inline(always)]
    pub(crate) fn count_in(self, header: &[u8; SECTION_HEADER_LEN], order: ByteOrder) -> Option<u64> {
        let raw: RawSectionHeader = zerocopy::transmute!(*header);
        let tag = Self(u32::from_ne_bytes([raw.kind, raw.encoding, raw.codec, raw.schema]));
        let same = tag == self && order.u32(raw.element_size) as usize == self.kind().size();
        same.then(|| order.u64(raw.count))
    }

    #[inline]
    pub(crate) fn header(self, count: u64) -> [u8; SECTION_HEADER_LEN] {
        let [kind, encoding, codec, schema] = self.0.to_ne_bytes();
        zerocopy::transmute!(RawSectionHeader {
            kind,
            encoding,
            codec,
            schema,
            element_size: (self.kind().size() as u32).to_ne_bytes(),
            count: count.to_ne_bytes(),
        })
    }
}

impl fmt::Debug for SectionTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("none"),
            tag => write!(f, "{} {}.{}", tag.kind(), tag.codec(), tag.schema()),
        }
    }
}

/// Returns the length of `count` elements in bytes, or `None` on overflow.
#[inline]
pub(crate) fn payload(kind: ElementKind, count: u64) -> Option<usize> {
    usize::try_from(count).ok()?.checked_mul(kind.size())
}

impl SectionHeader {
    pub(crate) fn dynamic_bytes(len: usize) -> [u8; SECTION_HEADER_LEN] {
        zerocopy::transmute!(RawSectionHeader {
            kind: KIND_DYNAMIC,
            encoding: ENCODING_IN_PLACE,
            codec: 0,
            schema: 0,
            element_size: 1u32.to_ne_bytes(),
            count: (len as u64).to_ne_bytes(),
        })
    }

    /// Parses the header at the front of `bytes`; `at` is its offset in the message. Does not check the count.
    #[inline]
    pub(crate) fn parse(bytes: &[u8], at: usize, order: ByteOrder) -> Result<Self, FormatError> {
        let at = at as u64;
        let Ok((raw, _)) = RawSectionHeader::read_from_prefix(bytes) else {
            return Err(FormatError::Truncated {
                at,
                needed: SECTION_HEADER_LEN as u64,
                available: bytes.len() as u64,
            });
        };
        let (element_size, count) = (order.u32(raw.element_size), order.u64(raw.count));
        let bad = FormatError::BadSection { at, kind: raw.kind };
        if raw.kind == KIND_DYNAMIC {
            let fits = (raw.encoding, raw.codec, raw.schema, element_size) == (ENCODING_IN_PLACE, 0, 0, 1);
            return if fits { Ok(Self::Dynamic { len: count }) } else { Err(bad) };
        }
        let kind =
            ElementKind::from_code(raw.kind).ok_or(FormatError::UnknownKind { at, found: raw.kind })?;
        let swapped = raw.encoding & ENCODING_SWAPPED_BIT != 0;
        let encoding = raw.encoding & !ENCODING_SWAPPED_BIT;
        let tag = SectionTag(u32::from_ne_bytes([raw.kind, encoding, raw.codec, raw.schema]));
        let fits = element_size as usize == kind.size()
            && !(swapped && element_size <= 1)
            && if kind == ElementKind::Object {
                encoding == ENCODING_IN_RECORDS && raw.codec != 0
            } else {
                (encoding, raw.codec, raw.schema) == (ENCODING_IN_PLACE, 0, 0)
            };
        if !fits {
            return Err(bad);
        }
        let order = if swapped { order.other() } else { order };
        Ok(Self::Section { tag, kind, order, count })
    }
}

pub(crate) fn align_up(at: usize, unit: usize) -> Option<usize> {
    at.checked_next_multiple_of(unit)
}

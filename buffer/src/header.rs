//! Message and section headers. `README.md` specifies the format; `validate` checks a whole message.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ByteOrder, Element, ElementKind, FormatError};

/// Bytes of a message header.
pub const MESSAGE_HEADER: usize = 16;
/// Bytes of a section header.
pub const SECTION_HEADER: usize = 16;
/// Payloads begin at multiples of this, counted from the start of the message.
pub const ALIGN: usize = 16;
/// The format version: the newest that this build reads, and the one that it writes.
pub const VERSION: u8 = 1;

/// Records of the dynamic part begin at multiples of this.
pub(crate) const RECORD_ALIGN: usize = 8;
/// Bytes in front of each value in the dynamic part.
pub(crate) const RECORD_HEADER: usize = 8;

pub(crate) const COUNT_AT: usize = 8;

const MAGIC: [u8; 4] = *b"mpjb";
const FLAG_DYNAMIC: u8 = 1;
/// Kind byte of the dynamic part; not part of the API.
const KIND_DYNAMIC: u8 = 33;
/// Elements follow the section header.
const IN_PLACE: u8 = 0;
/// Elements are records in the dynamic part.
const IN_RECORDS: u8 = 1;
/// Bit of the encoding: elements have the other byte order than byte 5 of the message. Must be 0 for one-byte kinds.
const SWAPPED: u8 = 2;

/// Codec id of slices of primitives; their schema is their kind.
const SLICES: u8 = 3;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMessage {
    magic: [u8; 4],
    version: u8,
    order: u8,
    flags: u8,
    reserved: u8,
    total: [u8; 8],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSection {
    kind: u8,
    encoding: u8,
    codec: u8,
    schema: u8,
    element: [u8; 4],
    count: [u8; 8],
}

const _: () = assert!(size_of::<RawMessage>() == MESSAGE_HEADER && size_of::<RawSection>() == SECTION_HEADER);

/// A message header with valid fields, except `total`, which is not checked yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageHeader {
    pub(crate) order: ByteOrder,
    pub(crate) dynamic: bool,
    pub(crate) total: u64,
}

impl MessageHeader {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let Ok((raw, _)) = RawMessage::read_from_prefix(bytes) else {
            return Err(FormatError::Truncated {
                at: 0,
                needed: MESSAGE_HEADER as u64,
                available: bytes.len() as u64,
            });
        };
        // Magic and version first: a later version may define every other byte differently.
        if raw.magic != MAGIC {
            return Err(FormatError::Magic { found: raw.magic });
        }
        if raw.version != VERSION {
            return Err(FormatError::Version { found: raw.version, newest: VERSION });
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
    pub(crate) fn bytes(dynamic: bool, total: usize) -> [u8; MESSAGE_HEADER] {
        zerocopy::transmute!(RawMessage {
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
    /// The codec's hash of the type of its objects; 0 if the codec has none.
    pub schema: u8,
    /// The byte order of its elements.
    pub byte_order: ByteOrder,
    /// Number of elements; of unread elements if the section is from `peek`.
    pub count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SectionHeader {
    Section { tag: SectionTag, kind: ElementKind, order: ByteOrder, count: u64 },
    Dynamic { len: u64 },
}

/// Kind, encoding, codec and schema in one word, as in the first four bytes of a section header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectionTag(u32);

impl SectionTag {
    /// The tag of no section.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn of<T: Element>() -> Self {
        Self(u32::from_ne_bytes([T::KIND as u8, IN_PLACE, 0, 0]))
    }

    pub(crate) const fn swapped(self) -> Self {
        Self(self.0 | u32::from_ne_bytes([0, SWAPPED, 0, 0]))
    }

    pub(crate) const fn objects(codec: u8, schema: u8) -> Self {
        Self(u32::from_ne_bytes([ElementKind::Object as u8, IN_RECORDS, codec, schema]))
    }

    pub(crate) const fn slices<T: Element>() -> Self {
        Self::objects(SLICES, T::KIND as u8)
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

    /// Returns the count of a header in a message of order `order`, if the header has this tag.
    #[inline(always)]
    pub(crate) fn count_in(self, header: &[u8; SECTION_HEADER], order: ByteOrder) -> Option<u64> {
        let raw: RawSection = zerocopy::transmute!(*header);
        let tag = Self(u32::from_ne_bytes([raw.kind, raw.encoding, raw.codec, raw.schema]));
        let same = tag == self && order.u32(raw.element) as usize == self.kind().size();
        same.then(|| order.u64(raw.count))
    }

    #[inline]
    pub(crate) fn header(self, count: u64) -> [u8; SECTION_HEADER] {
        let [kind, encoding, codec, schema] = self.0.to_ne_bytes();
        zerocopy::transmute!(RawSection {
            kind,
            encoding,
            codec,
            schema,
            element: (self.kind().size() as u32).to_ne_bytes(),
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

/// Returns the bytes of `count` elements, or `None` on overflow.
#[inline]
pub(crate) fn payload(kind: ElementKind, count: u64) -> Option<usize> {
    usize::try_from(count).ok()?.checked_mul(kind.size())
}

impl SectionHeader {
    pub(crate) fn dynamic_bytes(len: usize) -> [u8; SECTION_HEADER] {
        zerocopy::transmute!(RawSection {
            kind: KIND_DYNAMIC,
            encoding: IN_PLACE,
            codec: 0,
            schema: 0,
            element: 1u32.to_ne_bytes(),
            count: (len as u64).to_ne_bytes(),
        })
    }

    /// Parses the header at the front of `bytes`, which begin at `at` in the message. The count is not checked yet.
    #[inline]
    pub(crate) fn parse(bytes: &[u8], at: usize, order: ByteOrder) -> Result<Self, FormatError> {
        let at = at as u64;
        let Ok((raw, _)) = RawSection::read_from_prefix(bytes) else {
            return Err(FormatError::Truncated {
                at,
                needed: SECTION_HEADER as u64,
                available: bytes.len() as u64,
            });
        };
        let (element, count) = (order.u32(raw.element), order.u64(raw.count));
        let bad = FormatError::BadSection { at, kind: raw.kind };
        if raw.kind == KIND_DYNAMIC {
            let fits = (raw.encoding, raw.codec, raw.schema, element) == (IN_PLACE, 0, 0, 1);
            return if fits { Ok(Self::Dynamic { len: count }) } else { Err(bad) };
        }
        let kind =
            ElementKind::from_code(raw.kind).ok_or(FormatError::UnknownKind { at, found: raw.kind })?;
        let swapped = raw.encoding & SWAPPED != 0;
        let encoding = raw.encoding & !SWAPPED;
        let tag = SectionTag(u32::from_ne_bytes([raw.kind, encoding, raw.codec, raw.schema]));
        let fits = element as usize == kind.size()
            && !(swapped && element <= 1)
            && if kind == ElementKind::Object {
                encoding == IN_RECORDS && raw.codec != 0
            } else {
                (encoding, raw.codec, raw.schema) == (IN_PLACE, 0, 0)
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

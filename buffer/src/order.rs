//! Byte order.

use core::fmt;

/// Order of the bytes of a number. Messages are written in the order of the machine, [`NATIVE`](Self::NATIVE);
/// [`section_with_order`](crate::Buffer::section_with_order) opens a section in either order. Readers accept both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ByteOrder {
    /// The lowest byte first.
    Little,
    /// The highest byte first: network order.
    Big,
}

impl ByteOrder {
    /// The order of this machine.
    pub const NATIVE: Self = if cfg!(target_endian = "little") { Self::Little } else { Self::Big };

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Little => Self::Big,
            Self::Big => Self::Little,
        }
    }

    #[inline]
    pub(crate) fn is_foreign(self) -> bool {
        self != Self::NATIVE
    }

    /// Parses byte 5 of a message: `<` or `>`, as in the format strings of Python's `struct`.
    pub(crate) fn from_mark(mark: u8) -> Option<Self> {
        match mark {
            b'<' => Some(Self::Little),
            b'>' => Some(Self::Big),
            _ => None,
        }
    }

    pub(crate) const fn mark(self) -> u8 {
        match self {
            Self::Little => b'<',
            Self::Big => b'>',
        }
    }

    #[inline]
    pub(crate) fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(crate) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }
}

impl fmt::Display for ByteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Little => "little endian",
            Self::Big => "big endian",
        })
    }
}

//! The primitive types and the kinds that name them on the wire.

use core::fmt;

use bytemuck::{CheckedBitPattern, NoUninit};

/// What the elements of a section are. The discriminants are wire values and never change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
#[expect(missing_docs, reason = "each kind is named as its type")]
pub enum Kind {
    I8 = 1,
    U8 = 2,
    I16 = 3,
    U16 = 4,
    I32 = 5,
    U32 = 6,
    I64 = 7,
    U64 = 8,
    I128 = 9,
    U128 = 10,
    F32 = 11,
    F64 = 12,
    Bool = 13,
    Char = 14,
    /// Values written by a codec; they lie in the dynamic part.
    Object = 32,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::I128,
        Self::U128,
        Self::F32,
        Self::F64,
        Self::Bool,
        Self::Char,
        Self::Object,
    ];

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Returns the bytes of one element, 0 for objects.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 | Self::Char => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
            Self::I128 | Self::U128 => 16,
            Self::Object => 0,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::U16 => "u16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::I128 => "i128",
            Self::U128 => "u128",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bool => "bool",
            Self::Char => "char",
            Self::Object => "object",
        })
    }
}

/// A primitive that sections hold as it lies in memory: `i8` to `u128`, `f32`, `f64`, `bool`, `char`.
///
/// `usize` and `isize` are left out on purpose: their width is that of the machine, and a message may be read on
/// another one. Write them as `u64` and `i64`.
///
/// Sealed: a kind is part of the wire format. Structs travel through `mpj-datatypes` or as objects.
pub trait Element: private::Load + NoUninit + CheckedBitPattern {
    /// The kind on the wire.
    const KIND: Kind;
}

pub(crate) mod private {
    /// Copies elements out of wire bytes.
    #[expect(unnameable_types, reason = "seals `Element`")]
    pub trait Load: Sized {
        /// Fills `dst` from `src`, both of the same length in bytes, or touches nothing and returns the index of the
        /// first element that is no value.
        fn load(src: &[u8], dst: &mut [Self], swap: bool) -> Result<(), usize>;
    }
}

use private::Load;

macro_rules! plain {
    ($($type:ident $kind:ident $swapped:expr;)*) => {$(
        impl Element for $type {
            const KIND: Kind = Kind::$kind;
        }

        impl Load for $type {
            fn load(src: &[u8], dst: &mut [Self], swap: bool) -> Result<(), usize> {
                bytemuck::cast_slice_mut::<Self, u8>(dst).copy_from_slice(src);
                if swap && size_of::<Self>() > 1 {
                    let swapped: fn(Self) -> Self = $swapped;
                    dst.iter_mut().for_each(|x| *x = swapped(*x));
                }
                Ok(())
            }
        }

        const _: () = assert!(size_of::<$type>() == Kind::$kind.size());
    )*};
}

plain! {
    i8 I8 |x| x;
    u8 U8 |x| x;
    i16 I16 i16::swap_bytes;
    u16 U16 u16::swap_bytes;
    i32 I32 i32::swap_bytes;
    u32 U32 u32::swap_bytes;
    i64 I64 i64::swap_bytes;
    u64 U64 u64::swap_bytes;
    i128 I128 i128::swap_bytes;
    u128 U128 u128::swap_bytes;
    f32 F32 |x| f32::from_bits(x.to_bits().swap_bytes());
    f64 F64 |x| f64::from_bits(x.to_bits().swap_bytes());
}

impl Element for bool {
    const KIND: Kind = Kind::Bool;
}

impl Load for bool {
    fn load(src: &[u8], dst: &mut [Self], _swap: bool) -> Result<(), usize> {
        if let Some(index) = src.iter().position(|b| *b > 1) {
            return Err(index);
        }
        dst.iter_mut().zip(src).for_each(|(x, b)| *x = *b == 1);
        Ok(())
    }
}

impl Element for char {
    const KIND: Kind = Kind::Char;
}

impl Load for char {
    fn load(src: &[u8], dst: &mut [Self], swap: bool) -> Result<(), usize> {
        let scalars = || {
            src.as_chunks::<4>().0.iter().map(|b| {
                let code = u32::from_ne_bytes(*b);
                char::from_u32(if swap { code.swap_bytes() } else { code })
            })
        };
        // Twice over the source, so that the target is touched only when all of it is valid.
        if let Some(index) = scalars().position(|c| c.is_none()) {
            return Err(index);
        }
        dst.iter_mut().zip(scalars().flatten()).for_each(|(x, c)| *x = c);
        Ok(())
    }
}

const _: () = assert!(size_of::<bool>() == Kind::Bool.size() && size_of::<char>() == Kind::Char.size());

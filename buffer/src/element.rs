//! The primitive types and their codes on the wire.

use core::fmt;

use bytemuck::{CheckedBitPattern, NoUninit};

use crate::swap;

/// Element type of a section. The discriminants are wire values and never change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
#[expect(missing_docs, reason = "each kind is named after its type")]
pub enum ElementKind {
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
    /// IEEE 754 binary16; `half::f16` with feature `half`.
    F16 = 15,
    /// The upper half of an `f32`; `half::bf16` with feature `half`.
    Bf16 = 16,
    /// Real and imaginary part as `f32`; `num_complex::Complex32` with feature `num-complex`.
    Complex32 = 17,
    /// Real and imaginary part as `f64`; `num_complex::Complex64` with feature `num-complex`.
    Complex64 = 18,
    /// Values written by a codec, in the dynamic part.
    Object = 32,
}

impl ElementKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [ElementKind; 19] = {
        use ElementKind::*;
        [
            I8, U8, I16, U16, I32, U32, I64, U64, I128, U128, F32, F64, Bool, Char, F16, Bf16, Complex32,
            Complex64, Object,
        ]
    };

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::I8,
            2 => Self::U8,
            3 => Self::I16,
            4 => Self::U16,
            5 => Self::I32,
            6 => Self::U32,
            7 => Self::I64,
            8 => Self::U64,
            9 => Self::I128,
            10 => Self::U128,
            11 => Self::F32,
            12 => Self::F64,
            13 => Self::Bool,
            14 => Self::Char,
            15 => Self::F16,
            16 => Self::Bf16,
            17 => Self::Complex32,
            18 => Self::Complex64,
            32 => Self::Object,
            _ => return None,
        })
    }

    /// Returns whether some bytes are not a valid element.
    pub(crate) const fn needs_validation(self) -> bool {
        matches!(self, Self::Bool | Self::Char | Self::Object)
    }

    /// Returns the size of one element in bytes, 0 for objects.
    #[inline]
    pub const fn size(self) -> usize {
        SIZES[self as usize] as usize
    }
}

const _: () = {
    let mut at = 0;
    while at < ElementKind::ALL.len() {
        let kind = ElementKind::ALL[at];
        assert!(matches!(ElementKind::from_code(kind as u8), Some(found) if found as u8 == kind as u8));
        at += 1;
    }
};

// A table, because a `match` compiles to a jump that is hard to predict.
const SIZES: [u8; 33] = {
    let mut sizes = [0; 33];
    let mut kind = 0;
    let known = [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 4, 8, 1, 4, 2, 2, 8, 16];
    while kind < known.len() {
        sizes[kind + 1] = known[kind];
        kind += 1;
    }
    sizes
};

impl fmt::Display for ElementKind {
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
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Complex32 => "complex32",
            Self::Complex64 => "complex64",
            Self::Object => "object",
        })
    }
}

/// A primitive that a section can contain: `i8` to `u128`, `f32`, `f64`, `bool`, `char`; `half`'s `f16` and `bf16` with
/// feature `half`; `num_complex`'s `Complex32` and `Complex64` with feature `num-complex`.
///
/// `usize` and `isize` are not elements, because their width depends on the machine: use `u64` and `i64`. The trait is
/// sealed, because a kind is part of the wire format. Structures are sent through `mpj-datatypes` or as objects.
pub trait Element: private::WireElement + NoUninit + CheckedBitPattern {
    /// The kind on the wire.
    const KIND: ElementKind;
}

pub(crate) mod private {
    use bytemuck::NoUninit;

    /// Converts elements from and to wire bytes.
    #[expect(unnameable_types, reason = "seals `Element`")]
    pub trait WireElement: Sized {
        /// Checks all elements in `src`. The error is the index of the first invalid one.
        fn check(src: &[u8], swap: bool) -> Result<(), usize>;

        /// Returns the element with the bytes `src`; unspecified if [`check`](Self::check) would reject them.
        fn from_bytes(src: &[u8], swap: bool) -> Self;

        /// Fills `dst` from `src`, which has the same length in bytes.
        fn copy_from_bytes(src: &[u8], dst: &mut [Self], swap: bool);

        /// The element in the other byte order, of the same size; it might not be a valid value of the type itself.
        type Swapped: NoUninit;

        fn swapped(self) -> Self::Swapped;
    }
}

use private::WireElement;

macro_rules! plain {
    ($($type:ty, $kind:ident, $swap:path, $swapped:expr;)*) => {$(
        impl Element for $type {
            const KIND: ElementKind = ElementKind::$kind;
        }

        impl WireElement for $type {
            #[inline]
            fn check(_src: &[u8], _swap: bool) -> Result<(), usize> {
                Ok(())
            }

            #[inline]
            fn from_bytes(src: &[u8], swap: bool) -> Self {
                let element: Self = bytemuck::pod_read_unaligned(src);
                if swap { element.swapped() } else { element }
            }

            #[inline]
            fn copy_from_bytes(src: &[u8], dst: &mut [Self], swap: bool) {
                let dst: &mut [u8] = bytemuck::cast_slice_mut(dst);
                if swap { $swap(src, dst) } else { dst.copy_from_slice(src) }
            }

            type Swapped = Self;

            #[inline]
            fn swapped(self) -> Self {
                let swapped: fn(Self) -> Self = $swapped;
                swapped(self)
            }
        }

        const _: () = assert!(size_of::<$type>() == ElementKind::$kind.size());
    )*};
}

plain! {
    i8, I8, swap::copy1, |x| x;
    u8, U8, swap::copy1, |x| x;
    i16, I16, swap::copy2, i16::swap_bytes;
    u16, U16, swap::copy2, u16::swap_bytes;
    i32, I32, swap::copy4, i32::swap_bytes;
    u32, U32, swap::copy4, u32::swap_bytes;
    i64, I64, swap::copy8, i64::swap_bytes;
    u64, U64, swap::copy8, u64::swap_bytes;
    i128, I128, swap::copy16, i128::swap_bytes;
    u128, U128, swap::copy16, u128::swap_bytes;
    f32, F32, swap::copy4, f32_swapped;
    f64, F64, swap::copy8, f64_swapped;
}

#[cfg(feature = "half")]
plain! {
    half::f16, F16, swap::copy2, |x| half::f16::from_bits(x.to_bits().swap_bytes());
    half::bf16, Bf16, swap::copy2, |x| half::bf16::from_bits(x.to_bits().swap_bytes());
}

#[cfg(feature = "num-complex")]
plain! {
    num_complex::Complex32, Complex32, swap::copy4, |x| Self::new(f32_swapped(x.re), f32_swapped(x.im));
    num_complex::Complex64, Complex64, swap::copy8, |x| Self::new(f64_swapped(x.re), f64_swapped(x.im));
}

fn f32_swapped(x: f32) -> f32 {
    f32::from_bits(x.to_bits().swap_bytes())
}

fn f64_swapped(x: f64) -> f64 {
    f64::from_bits(x.to_bits().swap_bytes())
}

impl Element for bool {
    const KIND: ElementKind = ElementKind::Bool;
}

impl WireElement for bool {
    fn check(src: &[u8], _swap: bool) -> Result<(), usize> {
        // Without an early exit, so that the loop vectorizes; the index is searched only after a failure.
        if src.iter().fold(0, |all, b| all | *b) <= 1 {
            return Ok(());
        }
        src.iter().position(|b| *b > 1).map_or(Ok(()), Err)
    }

    #[inline]
    fn from_bytes(src: &[u8], _swap: bool) -> Self {
        src.first().is_some_and(|b| *b == 1)
    }

    fn copy_from_bytes(src: &[u8], dst: &mut [Self], _swap: bool) {
        dst.iter_mut().zip(src).for_each(|(x, b)| *x = *b == 1);
    }

    type Swapped = Self;

    #[inline]
    fn swapped(self) -> Self {
        self
    }
}

impl Element for char {
    const KIND: ElementKind = ElementKind::Char;
}

fn scalar(code: u32, swap: bool) -> Option<char> {
    char::from_u32(if swap { code.swap_bytes() } else { code })
}

impl WireElement for char {
    fn check(src: &[u8], swap: bool) -> Result<(), usize> {
        let codes = src.as_chunks::<4>().0.iter().map(|b| u32::from_ne_bytes(*b));
        if codes.clone().fold(true, |good, code| good & scalar(code, swap).is_some()) {
            return Ok(());
        }
        codes.map(|code| scalar(code, swap)).position(|c| c.is_none()).map_or(Ok(()), Err)
    }

    #[inline]
    fn from_bytes(src: &[u8], swap: bool) -> Self {
        scalar(bytemuck::pod_read_unaligned(src), swap).unwrap_or(char::REPLACEMENT_CHARACTER)
    }

    fn copy_from_bytes(src: &[u8], dst: &mut [Self], swap: bool) {
        let codes = src.as_chunks::<4>().0;
        dst.iter_mut().zip(codes).for_each(|(x, code)| *x = Self::from_bytes(code, swap));
    }

    type Swapped = u32;

    #[inline]
    fn swapped(self) -> u32 {
        u32::from(self).swap_bytes()
    }
}

const _: () =
    assert!(size_of::<bool>() == ElementKind::Bool.size() && size_of::<char>() == ElementKind::Char.size());

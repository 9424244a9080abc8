//! Basic types.

/// A basic type, of which every [`Datatype`](struct@crate::Datatype) consists (MPI 4.1 §3.2.2).
///
/// The discriminants never change: they are part of the [`Signature`](crate::Signature) that two ranks compare.
///
/// ```
/// use mpj_datatypes::Primitive;
/// assert_eq!(Primitive::F64.size(), 8);
/// assert_eq!(Primitive::from_code(13), Some(Primitive::F64));
/// assert_eq!(Primitive::from_code(99), None);
/// ```
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each primitive is named after its type")]
pub enum Primitive {
    /// A raw byte (`MPI_BYTE`): never converted, and different from a number of 8 bits.
    Byte = 1,
    I8 = 2,
    /// `u8`, a number.
    U8 = 3,
    I16 = 4,
    U16 = 5,
    I32 = 6,
    U32 = 7,
    I64 = 8,
    U64 = 9,
    I128 = 10,
    U128 = 11,
    F32 = 12,
    F64 = 13,
    /// `bool`: only the bytes 0 and 1 are values.
    Bool = 14,
    /// `char`: only Unicode scalar values are values.
    Char = 15,
    Usize = 16,
    Isize = 17,
    /// A byte of a packed or serialized message (`MPI_PACKED`).
    Packed = 18,
    /// `half::f16`, IEEE 754 binary16.
    F16 = 19,
    /// `half::bf16`, the upper half of an `f32`.
    Bf16 = 20,
    /// `num_complex::Complex<f32>`: the real part, then the imaginary.
    Complex32 = 21,
    /// `num_complex::Complex<f64>`.
    Complex64 = 22,
}

impl Primitive {
    /// All primitives, in the order of their codes.
    pub const ALL: [Primitive; 22] = {
        use Primitive::*;
        [
            Byte, I8, U8, I16, U16, I32, U32, I64, U64, I128, U128, F32, F64, Bool, Char, Usize, Isize,
            Packed, F16, Bf16, Complex32, Complex64,
        ]
    };

    /// Returns the size in bytes.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Primitive::Byte | Primitive::I8 | Primitive::U8 | Primitive::Bool | Primitive::Packed => 1,
            Primitive::I16 | Primitive::U16 | Primitive::F16 | Primitive::Bf16 => 2,
            Primitive::I32 | Primitive::U32 | Primitive::F32 | Primitive::Char => 4,
            Primitive::I64 | Primitive::U64 | Primitive::F64 | Primitive::Complex32 => 8,
            Primitive::I128 | Primitive::U128 | Primitive::Complex64 => 16,
            Primitive::Usize | Primitive::Isize => size_of::<usize>(),
        }
    }

    /// Returns the alignment in bytes of the type on this machine.
    pub const fn align(self) -> usize {
        match self {
            Primitive::Byte | Primitive::I8 | Primitive::U8 | Primitive::Bool | Primitive::Packed => 1,
            Primitive::I16 | Primitive::U16 | Primitive::F16 | Primitive::Bf16 => align_of::<u16>(),
            Primitive::I32 | Primitive::U32 => align_of::<u32>(),
            Primitive::F32 | Primitive::Complex32 => align_of::<f32>(),
            Primitive::Char => align_of::<char>(),
            Primitive::I64 | Primitive::U64 => align_of::<u64>(),
            Primitive::F64 | Primitive::Complex64 => align_of::<f64>(),
            Primitive::I128 | Primitive::U128 => align_of::<u128>(),
            Primitive::Usize | Primitive::Isize => align_of::<usize>(),
        }
    }

    /// Returns the variant's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Primitive::Byte => "byte",
            Primitive::I8 => "i8",
            Primitive::U8 => "u8",
            Primitive::I16 => "i16",
            Primitive::U16 => "u16",
            Primitive::I32 => "i32",
            Primitive::U32 => "u32",
            Primitive::I64 => "i64",
            Primitive::U64 => "u64",
            Primitive::I128 => "i128",
            Primitive::U128 => "u128",
            Primitive::F32 => "f32",
            Primitive::F64 => "f64",
            Primitive::Bool => "bool",
            Primitive::Char => "char",
            Primitive::Usize => "usize",
            Primitive::Isize => "isize",
            Primitive::Packed => "packed",
            Primitive::F16 => "f16",
            Primitive::Bf16 => "bf16",
            Primitive::Complex32 => "complex32",
            Primitive::Complex64 => "complex64",
        }
    }

    /// Returns the code on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the primitive with this code, or `None` for an unknown code.
    pub const fn from_code(code: u8) -> Option<Primitive> {
        // Codes start at 1, without gaps, in the order of `ALL` (asserted below).
        if code >= 1 && (code as usize) <= Primitive::ALL.len() {
            Some(Primitive::ALL[code as usize - 1])
        } else {
            None
        }
    }

    /// Returns the number of bytes that a change of the byte order reverses: for complex numbers, those of one part.
    pub const fn swap_width(self) -> usize {
        match self {
            Primitive::Complex32 | Primitive::Complex64 => self.size() / 2,
            _ => self.size(),
        }
    }

    /// Returns whether some bit patterns are invalid, so that received bytes must be validated.
    #[inline]
    pub const fn needs_validation(self) -> bool {
        matches!(self, Primitive::Bool | Primitive::Char)
    }
}

const _: () = {
    let mut i = 0;
    while i < Primitive::ALL.len() {
        assert!(Primitive::ALL[i] as usize == i + 1);
        i += 1;
    }
};

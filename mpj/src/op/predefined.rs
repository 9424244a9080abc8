//! The predefined operations on primitives: a table with a function for each operation and type.

use mpj_datatypes::Primitive;

use super::{Op, half};

/// Combines primitives at the first address with those at the second, and stores the results there. The number is their
/// length in bytes. [`Op::combine`] has the contract.
pub(super) type Kernel = unsafe fn(*const u8, *mut u8, usize);

/// The kernels of a type, in the order of [`Op::wire_code`]; `None` if an operation is not defined for the type.
type Row = [Option<Kernel>; 10];

static KERNELS: [Row; Primitive::ALL.len() + 1] = {
    let mut rows = [[None; 10]; Primitive::ALL.len() + 1];
    let mut at = 0;
    while at < Primitive::ALL.len() {
        let primitive = Primitive::ALL[at];
        rows[primitive as usize] = row_of(primitive);
        at += 1;
    }
    rows
};

/// Returns the kernel of an operation on a primitive; `None` if the operation is not defined for it.
#[inline]
pub(super) fn kernel(op: &Op, primitive: Primitive) -> Option<Kernel> {
    *KERNELS[primitive as usize].get(usize::from(op.wire_code()))?
}

/// # Safety
/// As for a [`Kernel`].
#[inline]
unsafe fn combine_slices<T: Copy>(from: *const u8, into: *mut u8, bytes: usize, f: impl Fn(T, T) -> T) {
    let (from, into) = (from.cast::<T>(), into.cast::<T>());
    for at in 0..bytes / size_of::<T>() {
        // SAFETY: the caller's contract.
        let a = unsafe { from.add(at) };
        // SAFETY: the caller's contract.
        let a = unsafe { a.read_unaligned() };
        // SAFETY: the caller's contract.
        let slot = unsafe { into.add(at) };
        // SAFETY: the caller's contract.
        let b = unsafe { slot.read_unaligned() };
        // SAFETY: the caller's contract.
        unsafe { slot.write_unaligned(f(a, b)) };
    }
}

/// Expands to the kernel that applies a function to values of a type.
macro_rules! kernel {
    ($type:ty, $f:expr) => {{
        /// # Safety
        /// As for a [`Kernel`].
        unsafe fn kernel(from: *const u8, into: *mut u8, bytes: usize) {
            // SAFETY: the caller's contract.
            unsafe { combine_slices::<$type>(from, into, bytes, $f) }
        }
        Some(kernel as Kernel)
    }};
}

/// Expands to the row of a type of floats. The values are stored as `$stored`; `$load` and `$store` convert them from
/// and to `$type`, which computes.
macro_rules! float {
    ($type:ty) => {
        float!($type, $type, std::convert::identity, std::convert::identity)
    };
    ($stored:ty, $type:ty, $load:expr, $store:expr) => {{
        // The result of a minimum or a maximum must not depend on the order of the operands: a NaN operand gives `NAN`,
        // and -0 is less than 0.
        fn smaller(a: $type, b: $type) -> $type {
            if b < a {
                b
            } else if a < b {
                a
            } else if a == b {
                <$type>::from_bits(a.to_bits() | b.to_bits())
            } else {
                <$type>::NAN
            }
        }
        fn larger(a: $type, b: $type) -> $type {
            if b > a {
                b
            } else if a > b {
                a
            } else if a == b {
                <$type>::from_bits(a.to_bits() & b.to_bits())
            } else {
                <$type>::NAN
            }
        }
        let sum = kernel!($stored, |a, b| $store($load(a) + $load(b)));
        let prod = kernel!($stored, |a, b| $store($load(a) * $load(b)));
        let min = kernel!($stored, |a, b| $store(smaller($load(a), $load(b))));
        let max = kernel!($stored, |a, b| $store(larger($load(a), $load(b))));
        [sum, prod, min, max, None, None, None, None, None, None]
    }};
}

/// Expands to the row of complex numbers: a real part, then an imaginary one.
macro_rules! complex {
    ($type:ty) => {{
        let sum = kernel!([$type; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
        let prod = kernel!([$type; 2], |a, b| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]);
        [sum, prod, None, None, None, None, None, None, None, None]
    }};
}

macro_rules! integer {
    ($type:ty) => {
        [
            kernel!($type, <$type>::wrapping_add),
            kernel!($type, <$type>::wrapping_mul),
            kernel!($type, Ord::min),
            kernel!($type, Ord::max),
            kernel!($type, |a, b| <$type>::from(a != 0 && b != 0)),
            kernel!($type, |a, b| <$type>::from(a != 0 || b != 0)),
            kernel!($type, |a, b| <$type>::from((a != 0) != (b != 0))),
            kernel!($type, |a, b| a & b),
            kernel!($type, |a, b| a | b),
            kernel!($type, |a, b| a ^ b),
        ]
    };
}

/// Returns the row without the four operations on numbers.
const fn only_bits(integer: Row) -> Row {
    let [.., land, lor, lxor, band, bor, bxor] = integer;
    [None, None, None, None, land, lor, lxor, band, bor, bxor]
}

const fn row_of(primitive: Primitive) -> Row {
    match primitive {
        Primitive::I8 => integer!(i8),
        Primitive::U8 => integer!(u8),
        Primitive::I16 => integer!(i16),
        Primitive::U16 => integer!(u16),
        Primitive::I32 => integer!(i32),
        Primitive::U32 => integer!(u32),
        Primitive::I64 => integer!(i64),
        Primitive::U64 => integer!(u64),
        Primitive::I128 => integer!(i128),
        Primitive::U128 => integer!(u128),
        Primitive::Usize => integer!(usize),
        Primitive::Isize => integer!(isize),
        // The result of bytes 0 and 1 is 0 or 1, a valid `bool`.
        Primitive::Byte | Primitive::Bool => only_bits(integer!(u8)),
        Primitive::F64 => float!(f64),
        Primitive::F32 => float!(f32),
        Primitive::F16 => float!(u16, f32, half::f16_to_f32, half::f32_to_f16),
        Primitive::Bf16 => float!(u16, f32, half::bf16_to_f32, half::f32_to_bf16),
        Primitive::Complex32 => complex!(f32),
        Primitive::Complex64 => complex!(f64),
        Primitive::Char | Primitive::Packed => [None; 10],
    }
}

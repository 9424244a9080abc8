//! The predefined operations on primitives.

use mpj_datatypes::Primitive;

use super::{Op, half};

/// Returns whether the operation is defined for this primitive; [`combine`] implements it.
pub(super) fn is_defined_for(op: &Op, primitive: Primitive) -> bool {
    use Primitive::*;
    let (has_sum, has_order, has_bits) = match primitive {
        I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64 | I128 | U128 | Usize | Isize => (true, true, true),
        F32 | F64 | F16 | Bf16 => (true, true, false),
        Complex32 | Complex64 => (true, false, false),
        Byte | Bool => (false, false, true),
        Char | Packed => (false, false, false),
    };
    match op {
        Op::Sum | Op::Prod => has_sum,
        Op::Min | Op::Max => has_order,
        Op::Land | Op::Lor | Op::Lxor | Op::Band | Op::Bor | Op::Bxor => has_bits,
        Op::MinLoc | Op::MaxLoc | Op::Replace | Op::NoOp | Op::User(_) => false,
    }
}

/// # Safety
/// As [`Op::combine`], for `count` primitives in a row.
unsafe fn combine_slices<T: Copy>(from: *const u8, into: *mut u8, count: usize, f: impl Fn(T, T) -> T) {
    let (from, into) = (from.cast::<T>(), into.cast::<T>());
    for at in 0..count {
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

/// Expands to a `match` with a separate loop for each operation, so that each loop can be vectorised.
macro_rules! arms {
    ($type:ty, $op:expr, $from:expr, $into:expr, $count:expr; $($($pattern:pat_param)|+ => $f:expr),* $(,)?) => {
        match $op {
            $($($pattern)|+ => {
                // SAFETY: the contract of `combine`.
                unsafe { combine_slices::<$type>($from, $into, $count, $f) }
            })*
            _ => (),
        }
    };
}

/// # Safety
/// As [`Op::combine`], for `count` primitives in a row.
pub(super) unsafe fn combine(op: &Op, primitive: Primitive, from: *const u8, into: *mut u8, count: usize) {
    // The values are stored as `$stored`; `$load` and `$store` convert them from and to `$type`, which computes.
    macro_rules! float {
        ($type:ty) => {
            float!($type, $type, std::convert::identity, std::convert::identity)
        };
        ($stored:ty, $type:ty, $load:expr, $store:expr) => {
            arms!($stored, op, from, into, count;
                Op::Sum => |a, b| $store($load(a) + $load(b)),
                Op::Prod => |a, b| $store($load(a) * $load(b)),
                // The result must not depend on the order of the operands: a NaN operand gives `NAN`, and -0 is less
                // than 0.
                Op::Min => |a, b| {
                    let (a, b) = ($load(a), $load(b));
                    $store(if b < a {
                        b
                    } else if a < b {
                        a
                    } else if a == b {
                        <$type>::from_bits(a.to_bits() | b.to_bits())
                    } else {
                        <$type>::NAN
                    })
                },
                Op::Max => |a, b| {
                    let (a, b) = ($load(a), $load(b));
                    $store(if b > a {
                        b
                    } else if a > b {
                        a
                    } else if a == b {
                        <$type>::from_bits(a.to_bits() & b.to_bits())
                    } else {
                        <$type>::NAN
                    })
                },
            )
        };
    }
    // A real part, then an imaginary one.
    macro_rules! complex {
        ($type:ty) => {
            arms!([$type; 2], op, from, into, count;
                Op::Sum => |a, b| [a[0] + b[0], a[1] + b[1]],
                Op::Prod => |a, b| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]],
            )
        };
    }
    macro_rules! integer {
        ($type:ty) => {
            arms!($type, op, from, into, count;
                Op::Sum => <$type>::wrapping_add,
                Op::Prod => <$type>::wrapping_mul,
                Op::Min => Ord::min,
                Op::Max => Ord::max,
                Op::Band => |a, b| a & b,
                Op::Bor => |a, b| a | b,
                Op::Bxor => |a, b| a ^ b,
                Op::Land => |a, b| <$type>::from(a != 0 && b != 0),
                Op::Lor => |a, b| <$type>::from(a != 0 || b != 0),
                Op::Lxor => |a, b| <$type>::from((a != 0) != (b != 0)),
            )
        };
    }
    match primitive {
        Primitive::F64 => float!(f64),
        Primitive::F32 => float!(f32),
        // The result of bytes 0 and 1 is 0 or 1, a valid `bool`.
        Primitive::Bool => arms!(u8, op, from, into, count;
            Op::Land | Op::Band => |a, b| a & b,
            Op::Lor | Op::Bor => |a, b| a | b,
            Op::Lxor | Op::Bxor => |a, b| a ^ b,
        ),
        Primitive::Byte | Primitive::U8 => integer!(u8),
        Primitive::I8 => integer!(i8),
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
        Primitive::F16 => float!(u16, f32, half::f16_to_f32, half::f32_to_f16),
        Primitive::Bf16 => float!(u16, f32, half::bf16_to_f32, half::f32_to_bf16),
        Primitive::Complex32 => complex!(f32),
        Primitive::Complex64 => complex!(f64),
        // `is_defined_for` is false for all predefined operations.
        Primitive::Char | Primitive::Packed => (),
    }
}

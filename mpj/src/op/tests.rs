//! Operations: the result on every supported primitive, its independence of the operand order on floats and pairs, and
//! the items that a user function gets.

use mpj_datatypes::Primitive;

use super::*;

const OPS: [Op; 10] =
    [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::Land, Op::Lor, Op::Lxor, Op::Band, Op::Bor, Op::Bxor];

fn expected(op: &Op, a: u8, b: u8) -> u8 {
    match op {
        Op::Sum => a + b,
        Op::Prod => a * b,
        Op::Min => a.min(b),
        Op::Max => a.max(b),
        Op::Land => u8::from(a != 0 && b != 0),
        Op::Lor => u8::from(a != 0 || b != 0),
        Op::Lxor => u8::from((a != 0) != (b != 0)),
        Op::Band => a & b,
        Op::Bor => a | b,
        Op::Bxor => a ^ b,
        _ => unreachable!("not in OPS"),
    }
}

/// Returns a small number as a value of the primitive; `None` if no operation is tried on it.
fn value(primitive: Primitive, number: u8) -> Option<Vec<u8>> {
    Some(match primitive {
        Primitive::F32 => f32::from(number).to_ne_bytes().into(),
        Primitive::F64 => f64::from(number).to_ne_bytes().into(),
        Primitive::Byte | Primitive::U8 | Primitive::I8 => vec![number],
        Primitive::Bool if number < 2 => vec![number],
        Primitive::I16 | Primitive::U16 => u16::from(number).to_ne_bytes().into(),
        Primitive::I32 | Primitive::U32 => u32::from(number).to_ne_bytes().into(),
        Primitive::I64 | Primitive::U64 => u64::from(number).to_ne_bytes().into(),
        Primitive::I128 | Primitive::U128 => u128::from(number).to_ne_bytes().into(),
        Primitive::Usize | Primitive::Isize => usize::from(number).to_ne_bytes().into(),
        Primitive::F16 => half::f32_to_f16(number.into()).to_ne_bytes().into(),
        Primitive::Bf16 => half::f32_to_bf16(number.into()).to_ne_bytes().into(),
        Primitive::Complex32 => [f32::from(number), 0.0].map(f32::to_ne_bytes).concat(),
        Primitive::Complex64 => [f64::from(number), 0.0].map(f64::to_ne_bytes).concat(),
        Primitive::Bool | Primitive::Char | Primitive::Packed => return None,
    })
}

/// Returns whether MPI defines the operation for the type (MPI 4.1 §6.9.2), with logical operations of bytes in addition.
fn is_defined_for(op: &Op, primitive: Primitive) -> bool {
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
        _ => has_bits,
    }
}

#[test]
fn operations_are_defined_for_the_types_of_mpi() {
    for (primitive, op) in Primitive::ALL.into_iter().flat_map(|p| OPS.iter().map(move |op| (p, op))) {
        let is_defined = op.unsupported_reason(&Datatype::primitive(primitive)).is_none();
        assert_eq!(is_defined, is_defined_for(op, primitive), "{op:?} of {}", primitive.name());
    }
}

#[test]
fn supported_operations_compute_the_result() {
    for (primitive, op) in Primitive::ALL.into_iter().flat_map(|p| OPS.iter().map(move |op| (p, op))) {
        let datatype = Datatype::primitive(primitive);
        let mut combined = 0;
        for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1), (6, 3), (2, 7)] {
            let (Some(from), Some(mut into)) = (value(primitive, a), value(primitive, b)) else { continue };
            if op.unsupported_reason(&datatype).is_some() {
                continue;
            }
            // SAFETY: both pointers have one value of the primitive, and the operation is supported.
            let done = unsafe {
                op.combine(from.as_ptr(), into.as_mut_ptr(), 1, &datatype, OperandOrder::IncomingFirst)
            };
            done.unwrap();
            let result = value(primitive, expected(op, a, b)).expect("a value of the primitive");
            assert_eq!(into, result, "{op:?} of {a} and {b} as {}", primitive.name());
            combined += 1;
        }
        let is_unsupported = op.unsupported_reason(&datatype).is_some();
        assert_eq!(
            is_unsupported,
            combined == 0,
            "{op:?} is defined for {} and was not tried",
            primitive.name()
        );
    }
}

/// Returns the results of an operation on two values, in both orders of the operands.
fn in_both_orders<T: Copy>(op: &Op, datatype: impl Into<Datatype>, a: T, b: T) -> [T; 2] {
    let datatype = datatype.into();
    assert_eq!(op.unsupported_reason(&datatype), None);
    [(a, b), (b, a)].map(|(from, mut into)| {
        let (from, at): (*const T, *mut T) = (&raw const from, &raw mut into);
        // SAFETY: both pointers have one value of the type, for which the operation is defined.
        unsafe { op.combine(from.cast(), at.cast(), 1, &datatype, OperandOrder::IncomingFirst) }.unwrap();
        into
    })
}

#[test]
fn complex_numbers_are_added_and_multiplied() {
    let (a, b) = ([1.5f64, -2.0], [3.0f64, 0.5]);
    assert_eq!(in_both_orders(&Op::Sum, Primitive::Complex64, a, b), [[4.5, -1.5]; 2]);
    assert_eq!(in_both_orders(&Op::Prod, Primitive::Complex64, a, b), [[5.5, -5.25]; 2]);
    let (a, b) = ([0.0f32, 1.0], [0.0f32, 1.0]);
    assert_eq!(in_both_orders(&Op::Prod, Primitive::Complex32, a, b), [[-1.0, 0.0]; 2]);
}

#[cfg(feature = "half")]
#[test]
fn half_numbers_are_those_of_the_crate_half() {
    use ::half::{bf16, f16};
    for bits in 0..=u16::MAX {
        let (own, other) = (half::f16_to_f32(bits), f16::from_bits(bits).to_f32());
        assert!(own.to_bits() == other.to_bits() || own.is_nan() && other.is_nan(), "{bits:x}");
        let (own, other) = (half::bf16_to_f32(bits), bf16::from_bits(bits).to_f32());
        assert!(own.to_bits() == other.to_bits() || own.is_nan() && other.is_nan(), "{bits:x}");
    }
    // All exponents, with fractions below, at and above each limit of rounding.
    for high in 0..=u16::MAX {
        for low in [0u16, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff] {
            let value = f32::from_bits(u32::from(high) << 16 | u32::from(low));
            let (own, other) = (f16::from_bits(half::f32_to_f16(value)), f16::from_f32(value));
            assert!(own.to_bits() == other.to_bits() || own.is_nan() && other.is_nan(), "{value:e}: {own}");
            let (own, other) = (bf16::from_bits(half::f32_to_bf16(value)), bf16::from_f32(value));
            assert!(own.to_bits() == other.to_bits() || own.is_nan() && other.is_nan(), "{value:e}: {own}");
        }
    }
}

#[test]
fn half_minimum_and_maximum_do_not_depend_on_operand_order() {
    let bits = |value: f32| half::f32_to_f16(value);
    assert_eq!(in_both_orders(&Op::Min, Primitive::F16, bits(0.0), bits(-0.0)), [bits(-0.0); 2]);
    assert_eq!(in_both_orders(&Op::Max, Primitive::F16, bits(0.0), bits(-0.0)), [bits(0.0); 2]);
    assert_eq!(in_both_orders(&Op::Max, Primitive::F16, bits(-3.5), bits(2.0)), [bits(2.0); 2]);
    let [one, other] = in_both_orders(&Op::Min, Primitive::F16, 0x7e01u16, bits(2.0));
    assert!(one == other && half::f16_to_f32(one).is_nan());
    // 60,000 + 60,000 exceeds the largest number.
    assert_eq!(in_both_orders(&Op::Sum, Primitive::F16, bits(6e4), bits(6e4)), [0x7c00; 2]);
}

#[test]
fn chosen_pair_does_not_depend_on_operand_order() {
    let odd = f64::from_bits(f64::NAN.to_bits() + 7);
    for (op, a, b, chosen) in [
        (Op::MinLoc, (1.0, 5), (2.0, 3), (1.0, 5)),
        (Op::MaxLoc, (1.0, 5), (2.0, 3), (2.0, 3)),
        (Op::MinLoc, (2.0, 5), (2.0, 3), (2.0, 3)),
        (Op::MaxLoc, (2.0, 5), (2.0, -3), (2.0, -3)),
        (Op::MinLoc, (0.0, 1), (-0.0, 2), (0.0, 1)),
        (Op::MinLoc, (0.0, 1), (-0.0, 1), (0.0, 1)),
        (Op::MinLoc, (f64::NAN, 9), (f64::NEG_INFINITY, 1), (f64::NAN, 9)),
        (Op::MaxLoc, (f64::NAN, 9), (f64::INFINITY, 1), (f64::NAN, 9)),
        (Op::MaxLoc, (f64::NAN, 9), (odd, 4), (odd, 4)),
        (Op::MinLoc, (odd, 4), (f64::NAN, 4), (f64::NAN, 4)),
    ] {
        let pair = |(value, index): (f64, i32)| Pair { value, index };
        let bits = |pair: Pair<f64>| (pair.value.to_bits(), pair.index);
        let datatype = Datatype::of::<Pair<f64>>();
        assert!(datatype.has_same_elements(&Datatype::pair(Primitive::F64, Primitive::I32)));
        let results = in_both_orders(&op, datatype, pair(a), pair(b));
        assert_eq!(results.map(bits), [bits(pair(chosen)); 2], "{op:?} of {a:?} and {b:?}");
    }
}

#[test]
fn zeros_and_nans_do_not_depend_on_operand_order() {
    let odd = f64::from_bits(f64::NAN.to_bits() + 7);
    let pairs = [(0.0, -0.0), (f64::NAN, odd), (odd, 1.0), (-0.0, -0.0), (2.0, -3.0)];
    for op in [Op::Min, Op::Max, Op::Sum, Op::Prod] {
        for (a, b) in pairs {
            let [one, other] = in_both_orders(&op, Primitive::F64, a, b);
            // The payload of a NaN in a sum or a product depends on the processor.
            let any_nan = matches!(op, Op::Sum | Op::Prod) && one.is_nan();
            assert!(any_nan && other.is_nan() || one.to_bits() == other.to_bits(), "{op:?} of {a} and {b}");
        }
    }
    let zeros = in_both_orders(&Op::Min, Primitive::F64, -0.0f64, 0.0);
    assert!(zeros.iter().all(|zero| zero.is_sign_negative()));
}

/// The items begin with a gap, so their first byte of data is not aligned as the items are.
#[test]
fn raw_function_gets_aligned_items_in_either_order() {
    let datatype = Datatype::structure(&[(1, 4, Datatype::of::<u32>())]).unwrap().resized(0, 8).unwrap();
    let first = Op::from_raw_fn(false, |from, into, len, _| {
        assert!(from.addr().is_multiple_of(8) && into.addr().is_multiple_of(8), "{from:?} {into:?}");
        for word in (1..2 * len).step_by(2) {
            let (from, into) = (from.cast::<u32>().wrapping_add(word), into.cast::<u32>().wrapping_add(word));
            // SAFETY: both pointers have `len` items of two words, of which the second is data.
            unsafe { into.copy_from_nonoverlapping(from, 1) };
        }
    });
    for (order, expected) in [(OperandOrder::IncomingFirst, 1), (OperandOrder::IncomingLast, 2)] {
        let (from, mut into) = ([1u64 << 32 | 1; 5], [2u64 << 32 | 2; 5]);
        // SAFETY: both pointers have five items, and the operation is defined for every datatype.
        let done =
            unsafe { first.combine(from.as_ptr().cast(), into.as_mut_ptr().cast(), 5, &datatype, order) };
        done.unwrap();
        assert!(
            into.iter()
                .all(|item| u32::from_ne_bytes(item.to_ne_bytes()[4..].try_into().unwrap()) == expected)
        );
    }
}

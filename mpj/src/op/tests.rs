//! Predefined operations: the result on every supported primitive, and on `f64` its independence of operand order.

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
        Op::User(_) => unreachable!("not in OPS"),
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
        Primitive::Bool
        | Primitive::Char
        | Primitive::Packed
        | Primitive::F16
        | Primitive::Bf16
        | Primitive::Complex32
        | Primitive::Complex64 => return None,
    })
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
                op.reduce_local(from.as_ptr(), into.as_mut_ptr(), 1, &datatype, OperandOrder::IncomingFirst)
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

#[test]
fn zeros_and_nans_do_not_depend_on_operand_order() {
    let (datatype, odd) = (Datatype::primitive(Primitive::F64), f64::from_bits(f64::NAN.to_bits() + 7));
    let pairs = [(0.0, -0.0), (f64::NAN, odd), (odd, 1.0), (-0.0, -0.0), (2.0, -3.0)];
    for op in [Op::Min, Op::Max, Op::Sum, Op::Prod] {
        for (a, b) in pairs {
            let combined = [(a, b), (b, a)].map(|(from, mut into)| {
                let (from, at): (*const f64, *mut f64) = (&raw const from, &raw mut into);
                // SAFETY: both pointers have one value, and the operation is defined for it.
                unsafe { op.reduce_local(from.cast(), at.cast(), 1, &datatype, OperandOrder::IncomingFirst) }
                    .unwrap();
                into
            });
            let [one, other] = combined;
            // The payload of a NaN in a sum or a product depends on the processor.
            let any_nan = matches!(op, Op::Sum | Op::Prod) && one.is_nan();
            assert!(any_nan && other.is_nan() || one.to_bits() == other.to_bits(), "{op:?} of {a} and {b}");
        }
    }
    let (mine, mut zero) = (-0.0f64, 0.0f64);
    let (from, into): (*const f64, *mut f64) = (&raw const mine, &raw mut zero);
    // SAFETY: as above.
    unsafe { Op::Min.reduce_local(from.cast(), into.cast(), 1, &datatype, OperandOrder::IncomingFirst) }
        .unwrap();
    assert!(zero.is_sign_negative());
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
        let done = unsafe {
            first.reduce_local(from.as_ptr().cast(), into.as_mut_ptr().cast(), 5, &datatype, order)
        };
        done.unwrap();
        assert!(
            into.iter()
                .all(|item| u32::from_ne_bytes(item.to_ne_bytes()[4..].try_into().unwrap()) == expected)
        );
    }
}

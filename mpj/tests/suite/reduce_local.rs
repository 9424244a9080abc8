//! Reductions of two buffers of one rank, and numbers of 16 bits and complex numbers in reductions of all ranks.
#![allow(unsafe_code, reason = "the raw calls take pointers")]

use crate::common::{RANKS, ranks, text_of};
use mpj::raw::{self, Buf};
use mpj::{Datatype, ErrorClass, Op, View, ViewMut, World};

#[test]
fn incoming_items_are_the_left_operands() {
    let mut result = [3u32, 4];
    Op::Sum.reduce_local(&[10u32, 20], &mut result).expect("defined");
    assert_eq!(result, [13, 24]);
    let digits = Op::user(false, |a: &u32, b: &u32| 100 * a + b);
    digits.reduce_local(&[1u32, 2], &mut result).expect("defined");
    assert_eq!(result, [113, 224]);
    Op::Land.reduce_local(&true, &mut false).expect("defined");
    Op::Sum.reduce_local(&[0u8; 0], &mut [0u8; 0]).expect("nothing to do");
}

#[test]
fn replace_copies_items_of_any_type_and_no_op_does_nothing() {
    let (from, mut into) = (['x', 'y'], ['a', 'b']);
    Op::NoOp.reduce_local(&from, &mut into).expect("defined");
    assert_eq!(into, ['a', 'b']);
    Op::Replace.reduce_local(&from, &mut into).expect("defined");
    assert_eq!(into, ['x', 'y']);
}

#[test]
fn buffers_can_have_different_layouts() {
    let column = Datatype::of::<i64>().vector(3, 1, 2).expect("fits");
    let (matrix, mut other) = ([1i64, -1, 2, -2, 3, -3], [100i64, 0, 200, 0, 300, 0]);
    let view = View::new(&matrix, 1, &column, 1).expect("inside");
    let mut flat = [10i64, 20, 30];
    Op::Sum.reduce_local(&view, &mut flat).expect("the same elements");
    assert_eq!(flat, [9, 18, 27]);
    let mut into = ViewMut::new(&mut other, 0, &column, 1).expect("inside");
    Op::Sum.reduce_local(&flat, &mut into).expect("the same elements");
    assert_eq!(other, [109, 0, 218, 0, 327, 0]);
    let mut threes = [[1i64; 3]];
    Op::Prod.reduce_local(&flat, &mut threes).expect("the same elements");
    assert_eq!(threes, [[9, 18, 27]]);
}

#[test]
fn buffers_that_do_not_match_are_refused() {
    let class = |outcome: mpj::Result<()>| outcome.expect_err("refused").class();
    assert_eq!(class(Op::Sum.reduce_local(&[1u8; 3], &mut [1u8; 2])), ErrorClass::Count);
    assert_eq!(class(Op::Sum.reduce_local(&[1u8; 2], &mut [1i8; 2])), ErrorClass::Type);
    assert_eq!(class(Op::Sum.reduce_local(&['x'], &mut ['y'])), ErrorClass::Op);
    assert_eq!(class(Op::MinLoc.reduce_local(&[1.5], &mut [2.5])), ErrorClass::Op);
    let error = Op::Max.reduce_local(&[1u8; 3], &mut [1u8; 2]).expect_err("refused").to_string();
    assert_eq!(error, "reduce_local: send buffer has 3 × u8 (3 bytes), receive buffer 2 × u8 (2 bytes)");
}

#[test]
fn raw_buffers_are_checked() {
    let mut bytes = [0u8, 7, 1, 1];
    let base: *mut u8 = bytes.as_mut_ptr();
    let two = |at: usize, datatype: Datatype| Buf::new(base.wrapping_add(at), 2, datatype);
    let reduce = |from: &Buf, into: &Buf| {
        // SAFETY: the items lie in `bytes`.
        unsafe { raw::reduce_local(from, into, &Op::Lor) }
    };
    let overlap = reduce(&two(0, Datatype::of::<u8>()), &two(1, Datatype::of::<u8>()));
    assert_eq!(overlap.expect_err("they overlap").class(), ErrorClass::Buffer);
    // A byte 7 is not a `bool`.
    let invalid = reduce(&two(0, Datatype::of::<bool>()), &two(2, Datatype::of::<bool>()));
    assert_eq!(invalid.expect_err("an invalid value").class(), ErrorClass::Type);
    assert_eq!(bytes, [0, 7, 1, 1]);
}

#[test]
fn panic_of_a_user_function_unwinds() {
    let op = Op::user(true, |_: &u8, _: &u8| panic!("deliberate"));
    let mut result = [1u8];
    let call = || op.reduce_local(&[2u8], &mut result);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    assert_eq!(result, [1]);
}

#[mpj::test(ranks = 2)]
fn collectives_refuse_replace_and_no_op(world: World) -> mpj::Result<()> {
    for op in [Op::Replace, Op::NoOp] {
        let comm = world.dup()?;
        let error = comm.allreduce(&[1u8], &mut [0u8], op.clone()).expect_err("refused");
        assert_eq!(error.class(), ErrorClass::Op);
        assert_eq!(text_of(&error), format!("allreduce: {op:?} is only for reduce_local"));
    }
    Ok(())
}

#[test]
fn complex_and_half_numbers_are_reduced() {
    use half::{bf16, f16};
    use num_complex::{Complex32, Complex64};
    for size in RANKS {
        ranks(size, |world| {
            let complex = |rank: usize| Complex64::new(rank as f64 + 0.5, -(rank as f64));
            let mut got = [Complex64::default(); 2];
            world.allreduce(&[complex(world.rank()); 2], &mut got, Op::Sum)?;
            assert_eq!(got, [(0..size).map(complex).sum(); 2]);
            world.allreduce(&[complex(world.rank()); 2], &mut got, Op::Prod)?;
            let product: Complex64 = (0..size).map(complex).product();
            assert!((got[0] - product).l1_norm() <= 1e-12 * product.l1_norm() && got[0] == got[1]);

            let small = |rank: usize| f16::from_f32(rank as f32 + 0.25);
            let mut sum = [f16::ZERO; 3];
            world.allreduce(&[small(world.rank()); 3], &mut sum, Op::Sum)?;
            assert_eq!(sum, [f16::from_f32((0..size).map(|rank| rank as f32 + 0.25).sum()); 3]);
            let small = |rank: usize| bf16::from_f32(rank as f32 + 0.5);
            let mut sum = [bf16::ZERO; 3];
            world.allreduce(&[small(world.rank()); 3], &mut sum, Op::Sum)?;
            assert_eq!(sum, [bf16::from_f32((0..size).map(|rank| rank as f32 + 0.5).sum()); 3]);
            let mut single = Complex32::default();
            world.allreduce(&Complex32::new(world.rank() as f32, -1.0), &mut single, Op::Sum)?;
            assert_eq!(single, Complex32::new((0..size).sum::<usize>() as f32, -(size as f32)));
            let mut max = bf16::ZERO;
            world.allreduce(&bf16::from_f32(-1.0 - world.rank() as f32), &mut max, Op::Max)?;
            assert_eq!(max, bf16::from_f32(-1.0));
            let refused = world.dup()?.allreduce(&complex(0), &mut Complex64::default(), Op::Max);
            assert_eq!(refused.expect_err("no order").class(), ErrorClass::Op);
            Ok(())
        });
    }
}

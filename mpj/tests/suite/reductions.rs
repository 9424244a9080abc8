//! Compares reductions with a fold in rank order: predefined operations on primitives, and derived types.

use crate::common::reduction::{check_reductions, fold};
use crate::common::{COUNTS, LONG, RANKS, blanks, ranks, samples};
use mpj::{Datatype, ErrorClass, Intracomm, Op, View, ViewMut};

fn predefined() -> [Op; 10] {
    use Op::{Band, Bor, Bxor, Land, Lor, Lxor, Max, Min, Prod, Sum};
    [Sum, Prod, Min, Max, Land, Lor, Lxor, Band, Bor, Bxor]
}

trait Model: crate::common::Sample {
    /// Returns the result of an operation on two elements; `None` if it is not defined.
    fn combine(op: &Op, a: Self, b: Self) -> Option<Self>;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Model for $type {
            fn combine(op: &Op, a: Self, b: Self) -> Option<Self> {
                Some(match op {
                    Op::Sum => a.wrapping_add(b),
                    Op::Prod => a.wrapping_mul(b),
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::Land => (a != 0 && b != 0) as $type,
                    Op::Lor => (a != 0 || b != 0) as $type,
                    Op::Lxor => ((a != 0) ^ (b != 0)) as $type,
                    Op::Band => a & b,
                    Op::Bor => a | b,
                    Op::Bxor => a ^ b,
                    _ => return None,
                })
            }
        }
    )*};
}

integers!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Model for $type {
            fn combine(op: &Op, a: Self, b: Self) -> Option<Self> {
                Some(match op {
                    Op::Sum => a + b,
                    Op::Prod => a * b,
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    _ => return None,
                })
            }
        }
    )*};
}

floats!(f32, f64);

impl Model for bool {
    fn combine(op: &Op, a: Self, b: Self) -> Option<Self> {
        Some(match op {
            Op::Land | Op::Band => a & b,
            Op::Lor | Op::Bor => a | b,
            Op::Lxor | Op::Bxor => a ^ b,
            _ => return None,
        })
    }
}

impl Model for char {
    fn combine(_: &Op, _: Self, _: Self) -> Option<Self> {
        None
    }
}

/// Checks every predefined operation on one type: the result is right, or the call is rejected.
fn every_op<T: Model>(comm: &Intracomm, count: usize) -> mpj::Result<()> {
    for op in predefined() {
        let part = |rank: usize| -> Vec<T> {
            let value = |at: usize| T::sample(rank, at);
            (0..count).map(|at| if at % 2 == 0 { value(at) } else { value((at + rank) % 2) }).collect()
        };
        if T::combine(&op, T::blank(), T::blank()).is_some() {
            let f = |a, b| T::combine(&op, a, b).expect("defined");
            // Products of different factors would round in floats, so all ranks contribute ones.
            let exact = |rank: usize| match (&op, T::PRIMITIVE) {
                (Op::Prod, _) => vec![T::sample(0, 0); part(rank).len()],
                _ => part(rank),
            };
            check_reductions(comm, &op, exact, f, comm.size() - 1)?;
        } else {
            let (mine, mut got) = (part(comm.rank()), blanks::<T>(count));
            // A refused call disables the collectives of its communicator.
            let refused = [
                comm.dup()?.reduce(&mine, &mut got, op.clone(), 0),
                comm.dup()?.allreduce(&mine, &mut got, op.clone()),
                comm.dup()?.scan(&mine, &mut got, op.clone()),
                comm.dup()?.exscan(&mine, &mut got, op.clone()),
                comm.dup()?.reduce_scatter_block(&mine[..0], &mut got[..0], op.clone()),
                comm.dup()?.reduce_scatter(&mine, &mut [] as &mut [T; 0], &vec![0; comm.size()], op.clone()),
            ];
            assert!(refused.into_iter().all(|r| r.is_err_and(|e| e.class() == ErrorClass::Op)), "{op:?}");
        }
    }
    Ok(())
}

#[test]
fn predefined_operations_are_right_or_rejected() {
    macro_rules! all {
        ($world:expr, $count:expr; $($type:ty),*) => {$( every_op::<$type>($world, $count)?; )*};
    }
    for size in RANKS {
        ranks(size, |world| {
            for count in COUNTS {
                every_op::<i32>(&world, count)?;
                every_op::<f64>(&world, count)?;
            }
            if size == 3 {
                all!(&world, 40; u8, i8, u16, i16, u32, u64, i64, u128, i128, usize, isize, f32, bool, char);
            }
            if matches!(size, 2 | 5) {
                all!(&world, LONG; u16, f64);
            }
            Ok(())
        });
    }
}

/// Integers of full width, so that sums wrap, and zeros, so that the logical operations differ.
#[test]
fn integers_wrap_and_zeros_are_false() {
    ranks(5, |world| {
        for op in predefined() {
            let wide = |rank: usize| {
                (0..100u64).map(|at| (at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 << rank)).collect()
            };
            let few = |rank: usize| (0..32i8).map(|at| if at >> rank & 1 == 1 { -at } else { 0 }).collect();
            check_reductions(&world, &op, wide, |a, b| u64::combine(&op, a, b).expect("defined"), 3)?;
            check_reductions(&world, &op, few, |a, b| i8::combine(&op, a, b).expect("defined"), 2)?;
        }
        Ok(())
    });
}

#[test]
fn float_sums_have_the_same_bits_on_all_ranks() {
    for size in RANKS {
        ranks(size, |world| {
            for count in [1, 7, 1000, 5000, LONG] {
                let mine: Vec<f64> = samples::<u32>(world.rank(), 0, count)
                    .into_iter()
                    .map(|x| {
                        (f64::from(x) / 7.0).powi(x as i32 % 40 - 20) * if x % 2 == 0 { 1.0 } else { -1.0 }
                    })
                    .collect();
                let mut sums = [vec![0f64; count], vec![0f64; count]];
                for sum in &mut sums {
                    world.allreduce(&mine, sum, Op::Sum)?;
                }
                let bits: Vec<u64> = sums[0].iter().map(|x| x.to_bits()).collect();
                assert!(
                    sums[1].iter().map(|x| x.to_bits()).eq(bits.iter().copied()),
                    "another run, other bits"
                );
                let mut of_root = bits.clone();
                world.bcast(&mut of_root, 0)?;
                assert!(of_root == bits, "{count} elements differ between ranks");
            }
            Ok(())
        });
    }
}

#[test]
fn min_and_max_of_a_nan_are_nan() {
    for size in RANKS {
        ranks(size, |world| {
            for nan in 0..world.size() {
                let mine = if world.rank() == nan { f64::NAN } else { world.rank() as f64 };
                for op in [Op::Min, Op::Max] {
                    let mut got = 0.0f64;
                    world.allreduce(&mine, &mut got, op)?;
                    assert!(got.is_nan());
                }
            }
            Ok(())
        });
    }
}

/// Columns of a row-major matrix: items that interleave, in the buffers and in temporary memory.
#[test]
fn interleaved_columns_are_reduced() {
    for size in RANKS {
        ranks(size, |world| {
            let (me, last) = (world.rank(), size - 1);
            let column = Datatype::of::<i64>().vector(6, 1, 4).and_then(|t| t.resized(0, 8)).expect("fits");
            let matrix = |rank: usize| samples::<i64>(rank, 0, 24);
            let (mine, sum) = (matrix(me), fold(last, matrix, |a, b| a + b));
            let view = || View::new(&mine, 0, &column, 4).expect("inside");
            let by_columns = |m: &[i64]| -> Vec<i64> { (0..24).map(|at| m[at % 6 * 4 + at / 6]).collect() };
            for root in 0..size {
                let mut got = blanks::<i64>(24);
                world.reduce(
                    &view(),
                    &mut ViewMut::new(&mut got, 0, &column, 4).expect("inside"),
                    Op::Sum,
                    root,
                )?;
                assert_eq!(got, if me == root { sum.clone() } else { blanks(24) });
                world.reduce(&view(), &mut got, Op::Sum, root)?;
                assert_eq!(got, if me == root { by_columns(&sum) } else { blanks(24) });
            }
            let mut got = blanks::<i64>(24);
            world.allreduce(&view(), &mut ViewMut::new(&mut got, 0, &column, 4).expect("inside"), Op::Sum)?;
            assert_eq!(got, sum);
            world.scan(&view(), &mut ViewMut::new(&mut got, 0, &column, 4).expect("inside"), Op::Sum)?;
            assert_eq!(got, fold(me, matrix, |a, b| a + b));
            // One column goes to rank 0, the others to the last rank.
            let mut counts = vec![0; size];
            counts[0] = 1;
            counts[last] += 3;
            let first: usize = counts[..me].iter().sum();
            let mut got = blanks::<i64>(24);
            let mut part = ViewMut::new(&mut got, first, &column, counts[me]).expect("inside");
            world.reduce_scatter(&view(), &mut part, &counts, Op::Sum)?;
            let is_mine = |at: usize| (first..first + counts[me]).contains(&(at % 4));
            assert!((0..24).all(|at| got[at] == if is_mine(at) { sum[at] } else { blanks::<i64>(1)[0] }));
            let mut flat = blanks::<i64>(6 * counts[me]);
            world.reduce_scatter(&view(), &mut flat, &counts, Op::Sum)?;
            assert_eq!(flat, by_columns(&sum)[6 * first..][..6 * counts[me]]);
            let mut got = blanks::<i64>(24);
            world.allreduce(&mine, &mut got, Op::Sum)?;
            let mut threes = [[0i64; 3]; 8];
            world.allreduce(&mine, &mut threes, Op::Sum)?;
            assert_eq!(threes.as_flattened(), sum);
            world.scan(&threes, &mut got, Op::Max)?;
            assert_eq!(got, sum);
            world.reduce(&mine, &mut threes, Op::Max, last)?;
            Ok(())
        });
    }
}

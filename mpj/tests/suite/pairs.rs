//! `MinLoc` and `MaxLoc` on pairs of a value and an index.

use crate::common::{RANKS, ranks};
use mpj::raw::{self, Buf};
use mpj::{Datatype, ErrorClass, Op, Pair, Primitive, World};

/// Values with ties between ranks, and different ones at each position.
fn value(rank: usize, at: usize) -> i64 {
    ((rank * 7 + at * 5) % 4) as i64 - 2
}

macro_rules! check_types {
    ($world:expr; $($value:ty, $index:ty);*) => {$(
        let (me, size, len) = ($world.rank(), $world.size(), 50);
        let pair = |rank: usize, at: usize| -> Pair<$value, $index> {
            Pair { value: value(rank, at) as $value, index: (100 - rank) as $index }
        };
        let mine: Vec<_> = (0..len).map(|at| pair(me, at)).collect();
        for (op, is_max) in [(Op::MinLoc, false), (Op::MaxLoc, true)] {
            let chosen = |last: usize, at: usize| {
                (0..=last)
                    .map(|rank| pair(rank, at))
                    .reduce(|a, b| {
                        let is_better = if is_max { b.value > a.value } else { b.value < a.value };
                        if is_better || b.value == a.value && b.index < a.index { b } else { a }
                    })
                    .expect("a rank")
            };
            let all = |last: usize| (0..len).map(|at| chosen(last, at)).collect::<Vec<_>>();
            let mut got = mine.clone();
            $world.allreduce(&mine, &mut got, op.clone())?;
            assert_eq!(got, all(size - 1), "{op:?}");
            $world.scan(&mine, &mut got, op.clone())?;
            assert_eq!(got, all(me), "{op:?}");
            got.clone_from(&mine);
            $world.reduce_in_place(&mut got, op.clone(), size - 1)?;
            assert_eq!(got, if me == size - 1 { all(me) } else { mine.clone() }, "{op:?}");
        }
    )*};
}

#[test]
fn every_rank_gets_the_best_pair_with_the_lowest_index() {
    for size in RANKS {
        ranks(size, |world| {
            check_types!(world; f64, i32; f32, i32; i64, i32; i16, i32; i32, i32; i16, i16; i64, i64; f32, f32;
                f64, f64; i8, u64; i128, u8; i32, usize; isize, u16);
            Ok(())
        });
    }
}

/// Datatypes of MPI: `MPI_DOUBLE_INT`, a C structure, and `MPI_2INT`, two numbers of one type.
#[mpj::test(ranks = 3)]
#[allow(unsafe_code, reason = "the raw calls take pointers")]
fn pairs_of_mpi_are_reduced(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let reduce = |send: Buf, recv: Buf| {
        // SAFETY: the tests' buffers have one item each.
        unsafe { raw::allreduce(world.as_raw(), &send, &recv, &Op::MaxLoc) }
    };
    // MPI_DOUBLE_INT
    let mine = Pair { value: [1.5, 4.5, 4.5][me], index: 7 - me as i32 };
    let (mut got, datatype) = (mine, Datatype::pair(Primitive::F64, Primitive::I32));
    let (from, into): (*const Pair<f64>, *mut Pair<f64>) = (&raw const mine, &raw mut got);
    reduce(Buf::read_only(from.cast(), 1, &datatype), Buf::new(into.cast(), 1, &datatype))?;
    assert_eq!(got, Pair { value: 4.5, index: 5 });
    // MPI_2INT, as an array and as a pair.
    let (mine, mut got) = ([[9, 1], [3, 2], [9, 0]][me], [0i32; 2]);
    let two_int = Datatype::pair(Primitive::I32, Primitive::I32);
    let (from, into): (*const [i32; 2], *mut [i32; 2]) = (&raw const mine, &raw mut got);
    reduce(Buf::read_only(from.cast(), 1, &two_int), Buf::new(into.cast(), 1, &two_int))?;
    assert_eq!(got, [9, 0]);
    let mut got = [[0i32; 2]];
    world.allreduce(&[mine], &mut got, Op::MinLoc)?;
    assert_eq!(got, [[3, 2]]);
    Ok(())
}

/// The index lies before the value in memory.
#[test]
#[allow(unsafe_code, reason = "the raw calls take pointers")]
fn order_of_elements_is_that_of_the_datatype() {
    let fields = [(1, 4, Datatype::of::<f32>()), (1, 0, Datatype::of::<u32>())];
    let swapped = Datatype::structure(&fields).expect("fits");
    assert_eq!(swapped.pair_elements(), Some([(Primitive::F32, 4), (Primitive::U32, 0)]));
    let item = |index: u32, value: f32| [index, value.to_bits()];
    let (from, mut into) = ([item(8, 2.0), item(1, 2.0)], [item(3, 1.0), item(2, 2.0)]);
    let (send, recv) =
        (Buf::read_only(from.as_ptr().cast(), 2, &swapped), Buf::new(into.as_mut_ptr().cast(), 2, &swapped));
    // SAFETY: both buffers have two items.
    unsafe { raw::reduce_local(&send, &recv, &Op::MaxLoc) }.expect("pairs of numbers");
    assert_eq!(into, [item(8, 2.0), item(1, 2.0)]);
}

#[mpj::test(ranks = 2)]
fn other_items_are_refused(world: World) -> mpj::Result<()> {
    let refused = |outcome: mpj::Result<()>| {
        let error = outcome.expect_err("no pairs");
        assert_eq!(error.class(), ErrorClass::Op);
        assert!(
            error.to_string().contains("is not defined for items that are not pairs of two numbers"),
            "{error}"
        );
    };
    let comm = || world.dup().expect("a communicator");
    refused(comm().allreduce(&[1i32, 2], &mut [0i32; 2], Op::MinLoc));
    refused(comm().allreduce(&[[1i32; 3]], &mut [[0i32; 3]], Op::MaxLoc));
    refused(comm().allreduce(&[[true; 2]], &mut [[false; 2]], Op::MinLoc));
    refused(comm().allreduce(
        &[Pair { value: 'x', index: 1 }],
        &mut [Pair { value: 'y', index: 1 }],
        Op::MinLoc,
    ));
    // Pairs have no sum.
    let sum =
        comm().allreduce(&[Pair { value: 1.5, index: 1 }], &mut [Pair { value: 0.0, index: 1 }], Op::Sum);
    assert_eq!(sum.expect_err("mixed").class(), ErrorClass::Op);
    world.barrier()
}

#[test]
fn ranks_with_different_choices_fail() {
    let outcome = crate::common::job(2, |world| {
        let (mine, mut got) = ([[1i32, 2]], [[0i32; 2]]);
        let op = if world.rank() == 0 { Op::MinLoc } else { Op::MaxLoc };
        let failed = world.allreduce(&mine, &mut got, op).and_then(|()| world.barrier());
        assert!(failed.is_err(), "MinLoc and MaxLoc do not match");
        Ok::<_, mpj::Error>(())
    });
    outcome.expect("every rank returns `Ok`");
}

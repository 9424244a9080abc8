//! Reductions with user-defined operations.

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::colliding::{Bytes, WithBool};
use crate::common::reduction::check_reductions;
use crate::common::{COUNTS, LONG, RANKS, ranks, samples};
use mpj::pool::{Pool, RawBuffer};
use mpj::{Datatype, Equivalent, ErrorClass, Op, ViewMut};

/// The map x → a·x + b. Composition is associative and not commutative.
type Affine = [u64; 2];

fn then(f: &Affine, g: &Affine) -> Affine {
    [f[0].wrapping_mul(g[0]), f[1].wrapping_mul(g[0]).wrapping_add(g[1])]
}

#[test]
fn noncommutative_ops_are_applied_in_rank_order() {
    for size in RANKS {
        ranks(size, |world| {
            let op = Op::user(false, then);
            assert!(!op.is_commutative() && Op::Sum.is_commutative());
            let maps = |count: usize| {
                move |rank: usize| {
                    (0..count).map(|at| [2 * (rank + at) as u64 + 3, (rank * rank + at) as u64]).collect()
                }
            };
            for root in 0..size {
                for count in COUNTS {
                    check_reductions(&world, &op, maps(count), |f: Affine, g| then(&f, &g), root)?;
                }
            }
            check_reductions(&world, &op, maps(LONG), |f: Affine, g| then(&f, &g), size / 2)?;
            // Operations that return the first or the last operand show the order most clearly.
            let part = |rank: usize| samples::<char>(rank, 0, 50);
            check_reductions(&world, &Op::user(false, |a: &char, _| *a), part, |a, _| a, size - 1)?;
            check_reductions(&world, &Op::user(false, |_, b: &char| *b), part, |_, b| b, 0)
        });
    }
}

#[test]
fn commutative_user_ops_give_the_same_result() {
    for size in RANKS {
        ranks(size, |world| {
            let longest = |a: &[i32; 3], b: &[i32; 3]| if a[2] >= b[2] { *a } else { *b };
            let op = Op::user(true, longest);
            for count in [0, 1, 7, 1000, 20_000] {
                // The last element differs from rank to rank.
                let part = |rank: usize| {
                    (0..count).map(|at| [rank as i32, at, (at * 7 + 11 * rank as i32) % 101]).collect()
                };
                check_reductions(&world, &op, part, |a, b| longest(&a, &b), size - 1)?;
            }
            let (mine, mut other) = ([1.5f32; 4], [0f32; 4]);
            let refused = world.allreduce(&mine, &mut other, op).expect_err("an operation on other items");
            assert_eq!(refused.class(), ErrorClass::Op);
            Ok(())
        });
    }
}

/// A user's function gets whole items. Views with the same elements in another layout do not have such items.
#[mpj::test(ranks = 2)]
fn user_ops_reject_views_of_another_layout(world: mpj::World) {
    let swapped =
        Datatype::of::<u32>().indexed(&[(1, -1), (1, -2)]).and_then(|t| t.resized(0, 8)).expect("fits");
    let (mine, mut got) = ([1u32, 2], [0u32; 2]);
    let op = || Op::user(true, |a: &[u32; 2], b: &[u32; 2]| [a[0] + b[0], a[1] + b[1]]);
    let mut outside = ViewMut::new(&mut got, 2, &swapped, 1).expect("inside");
    let dup = || world.dup().expect("a communicator");
    assert_eq!(dup().allreduce(&mine, &mut outside, op()).expect_err("refused").class(), ErrorClass::Op);
    assert_eq!(dup().scan(&mine, &mut outside, op()).expect_err("refused").class(), ErrorClass::Op);
    assert_eq!(world.allreduce(&[mine], &mut [mine], op()).map_err(|e| e.class()), Ok(()));
}

type Tested = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[repr(C, align(2))]
#[derive(Clone, Copy, mpj::Datatype)]
struct Spaced {
    byte: u8,
}

/// In a view, the bytes at an item's padding belong to other data.
#[mpj::test(ranks = 2)]
fn user_ops_do_not_change_bytes_between_items(world: mpj::World) -> Tested {
    let datatype = Spaced::datatype();
    let larger = Op::user(true, |a: &Spaced, b: &Spaced| if a.byte > b.byte { *a } else { *b });
    let mut bytes = [world.rank() as u8, 100, 10 - world.rank() as u8, 101];
    let mut items = ViewMut::new(&mut bytes[..3], 0, &datatype, 2)?;
    world.allreduce_in_place(&mut items, larger.clone())?;
    assert_eq!(bytes, [1, 100, 10, 101]);
    let mut items = ViewMut::new(&mut bytes[..3], 0, &datatype, 2)?;
    world.scan_in_place(&mut items, larger)?;
    assert_eq!(bytes, [1, 100, 10, 101]);
    Ok(())
}

#[repr(C, align(256))]
#[derive(Clone, Copy, mpj::Datatype)]
struct Alone {
    word: u64,
}

/// A reduction's temporary memory ends with the last element of its last item, and excludes that item's padding.
#[mpj::test(ranks = 8)]
fn user_ops_on_padded_items_do_not_change_other_blocks(world: mpj::World) -> Tested {
    let mut blocks: Vec<_> =
        (0..64).map(|_| mpj::pool::global().alloc(64).expect("a little memory")).collect();
    blocks.iter_mut().for_each(|block| block.as_uninit_mut().fill(MaybeUninit::new(0x55)));
    drop(blocks.remove(32));
    let sum = Op::user(true, |a: &Alone, b: &Alone| Alone { word: a.word + b.word });
    for root in 0..world.size() {
        let (mine, mut all) = (Alone { word: 1 << world.rank() }, Alone { word: 0 });
        world.reduce(&mine, &mut all, sum.clone(), root)?;
        assert_eq!(all.word, if world.rank() == root { 255 } else { 0 });
        world.scan(&mine, &mut all, sum.clone())?;
        assert_eq!(all.word, (2 << world.rank()) - 1);
    }
    for block in &blocks {
        let bytes = block.as_uninit().as_ptr().cast::<u8>();
        // SAFETY: the whole block was filled.
        #[expect(unsafe_code, reason = "a block does not record which bytes are initialised")]
        let bytes = unsafe { std::slice::from_raw_parts(bytes, 64) };
        assert_eq!(bytes, [0x55; 64], "an operation has written outside of its own block");
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn user_ops_may_exchange_messages(world: mpj::World) -> Tested {
    let inner = Arc::new(Mutex::new(world.dup()?));
    for round in 0..5u64 {
        let inner = Arc::clone(&inner);
        let sum = Op::user(true, move |a: &u64, b: &u64| {
            let inner = inner.lock().expect("no thread has panicked");
            let (rank, other) = (inner.rank() as u64, 1 - inner.rank());
            std::thread::sleep(Duration::from_millis(10 * rank));
            let mut received = [0u64];
            inner
                .sendrecv(&[rank], other, 0, &mut received, other, 0)
                .expect("the other rank is also in its function");
            assert_eq!(received[0], 1 - rank);
            a + b
        });
        let mut total = [0u64];
        world.allreduce(&[round], &mut total, sum)?;
        assert_eq!(total, [2 * round]);
    }
    Ok(())
}

/// If it were called, the function would write an invalid value into an element of type `bool`.
#[test]
fn equal_signatures_of_different_elements_do_not_suffice() {
    let (bytes, with_bool) = (Datatype::of::<Bytes>(), Datatype::of::<WithBool>());
    assert_eq!(bytes.signature(), with_bool.signature());
    assert!(!bytes.has_same_elements(&with_bool));
    ranks(2, |world| {
        let op = Op::user(true, |a: &Bytes, _: &Bytes| {
            let mut result = *a;
            result.f0 = 7;
            result
        });
        let mut got = [WithBool::ZERO];
        let error = world.allreduce(&[WithBool::ZERO], &mut got, op).expect_err("the elements differ");
        assert_eq!(error.class(), ErrorClass::Op);
        assert!(!got[0].f0);
        Ok(())
    });
}

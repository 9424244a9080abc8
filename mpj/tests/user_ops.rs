//! Reductions by operations of the user's own.

mod common;

use common::reduction::check;
use common::{COUNTS, LONG, RANKS, ranks, samples};
use mpj::{Class, Datatype, Op, ViewMut};

/// Maps x → a·x + b; one after the other is associative and not commutative.
type Affine = [u64; 2];

fn then(f: &Affine, g: &Affine) -> Affine {
    [f[0].wrapping_mul(g[0]), f[1].wrapping_mul(g[0]).wrapping_add(g[1])]
}

#[test]
fn operations_that_do_not_commute_go_in_order_of_rank() {
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
                    check(&world, &op, maps(count), |f: Affine, g| then(&f, &g), root)?;
                }
            }
            check(&world, &op, maps(LONG), |f: Affine, g| then(&f, &g), size / 2)?;
            // The first and the last operand: nothing shows the order more plainly.
            let part = |rank: usize| samples::<char>(rank, 0, 50);
            check(&world, &Op::user(false, |a: &char, _| *a), part, |a, _| a, size - 1)?;
            check(&world, &Op::user(false, |_, b: &char| *b), part, |_, b| b, 0)
        });
    }
}

#[test]
fn operations_of_the_user_that_commute() {
    for size in RANKS {
        ranks(size, |world| {
            let longest = |a: &[i32; 3], b: &[i32; 3]| if a[2] >= b[2] { *a } else { *b };
            let op = Op::user(true, longest);
            for count in [0, 1, 7, 1000, 20_000] {
                // The last element differs from rank to rank.
                let part = |rank: usize| {
                    (0..count).map(|at| [rank as i32, at, (at * 7 + 11 * rank as i32) % 101]).collect()
                };
                check(&world, &op, part, |a, b| longest(&a, &b), size - 1)?;
            }
            let (mine, mut other) = ([1.5f32; 4], [0f32; 4]);
            let refused = world.allreduce(&mine, &mut other, op).expect_err("an operation on other items");
            assert_eq!(refused.class(), Class::Op);
            Ok(())
        });
    }
}

/// A function of the user's gets whole items; views that only have the same elements are no such items.
#[mpj::test(ranks = 2)]
fn user_operations_refuse_views_of_other_places(world: mpj::World) {
    let swapped =
        Datatype::of::<u32>().indexed(&[(1, -1), (1, -2)]).and_then(|t| t.resized(0, 8)).expect("fits");
    let (mine, mut got) = ([1u32, 2], [0u32; 2]);
    let op = || Op::user(true, |a: &[u32; 2], b: &[u32; 2]| [a[0] + b[0], a[1] + b[1]]);
    let mut outside = ViewMut::new(&mut got, 2, &swapped, 1).expect("inside");
    assert_eq!(world.allreduce(&mine, &mut outside, op()).expect_err("refused").class(), Class::Op);
    assert_eq!(world.scan(&mine, &mut outside, op()).expect_err("refused").class(), Class::Op);
    assert_eq!(world.allreduce(&[mine], &mut [mine], op()).map_err(|e| e.class()), Ok(()));
}

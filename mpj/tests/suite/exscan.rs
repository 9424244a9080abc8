//! Exclusive scans and scattered reductions: algorithms, started and persistent calls, and errors. `reductions.rs`
//! compares the results of all reductions with a fold in rank order.

use crate::common::{job, ranks, samples, text_of};
use mpj::coll::{self, Operation, Rules};
use mpj::{ErrorClass, Op, World};

/// 1 to 9 ranks, among them those for which the default rules change.
const SIZES: std::ops::RangeInclusive<usize> = 1..=9;

/// x → a·x + b, whose composition is not commutative.
fn then() -> Op {
    Op::user(false, |f: &[u64; 2], g: &[u64; 2]| {
        [f[0].wrapping_mul(g[0]), f[1].wrapping_mul(g[0]).wrapping_add(g[1])]
    })
}

fn map(rank: usize, at: usize) -> [u64; 2] {
    [2 * (rank + at) as u64 + 3, (rank * rank + at) as u64]
}

fn composed(ranks: std::ops::Range<usize>, at: usize) -> [u64; 2] {
    ranks
        .map(|rank| map(rank, at))
        .reduce(|f, g| [f[0].wrapping_mul(g[0]), f[1].wrapping_mul(g[0]).wrapping_add(g[1])])
        .expect("a rank")
}

#[test]
fn every_algorithm_combines_in_rank_order() {
    for size in SIZES {
        ranks(size, |world| {
            for algorithm in coll::algorithms_of(Operation::Exscan) {
                let mut rules = Rules::default();
                rules.set(Operation::Exscan, algorithm.name).expect("its name");
                let (comm, me) = (world.dup_with_rules(rules)?, world.rank());
                for len in [0, 1, 100, 20_000] {
                    let mine: Vec<[u64; 2]> = (0..len).map(|at| map(me, at)).collect();
                    let mut got = vec![[7; 2]; len];
                    comm.exscan(&mine, &mut got, then())?;
                    let expected = |at| if me == 0 { [7; 2] } else { composed(0..me, at) };
                    assert!((0..len).all(|at| got[at] == expected(at)), "{algorithm} on {size} ranks");
                }
            }
            Ok(())
        });
    }
}

#[mpj::test(ranks = 3)]
fn buffer_of_rank_0_can_have_any_length(world: World) -> mpj::Result<()> {
    let mut got = vec![9u16; [0, 2, 2][world.rank()]];
    world.exscan(&[world.rank() as u16 + 1, 5], &mut got, Op::Sum)?;
    assert_eq!(got, [&[][..], &[1, 5], &[3, 10]][world.rank()]);
    Ok(())
}

#[test]
fn started_and_persistent_exscans_and_reduce_scatter_blocks_are_right() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let me = world.rank();
            let sums = |ranks: std::ops::Range<usize>, round: usize, from: usize, len: usize| -> Vec<u64> {
                let all: Vec<Vec<u64>> = ranks.map(|rank| samples(rank, round + from, len)).collect();
                (0..len).map(|at| all.iter().map(|one| one[at]).sum()).collect()
            };
            for len in [1, 500, 20_000] {
                let mut exscan = world.prepare(coll::exscan(vec![0u64; len], vec![0; len], Op::Sum))?;
                let blocks = coll::reduce_scatter_block(vec![0u64; len * size], vec![0; len], Op::Sum);
                let mut blocks = world.prepare(blocks)?;
                for round in 0..3 {
                    let mine = samples::<u64>(me, round, len * size);
                    *exscan.buffers_mut() = (mine[..len].to_vec(), vec![1; len]);
                    *blocks.buffers_mut() = (mine.clone(), vec![0; len]);
                    let one_time = coll::exscan(mine[..len].to_vec(), vec![1u64; len], Op::Sum);
                    let (exscan, blocks, one_time) =
                        (exscan.start()?, blocks.start()?, world.start(one_time)?);
                    let below = if me == 0 { vec![1; len] } else { sums(0..me, round, 0, len) };
                    assert_eq!(one_time.wait()?.0.1, below);
                    assert_eq!(blocks.wait()?.1, sums(0..size, round, me * len, len));
                    assert_eq!(exscan.wait()?.1, below);
                }
            }
            Ok(())
        });
    }
}

#[test]
fn wrong_lengths_fail_and_the_error_states_the_expected_length() {
    let outcome = job(3, |world: World| {
        let comm = || world.dup().expect("a communicator");
        let refused = comm().reduce_scatter_block(&[1u32; 7], &mut [0u32; 2], Op::Sum).expect_err("7 items");
        assert_eq!(
            text_of(&refused),
            "reduce_scatter_block: send buffer has 7 items, expected 6: 2 for each of 3 ranks"
        );
        let refused = comm().reduce_scatter_block(&[1u32; 9], &mut [0u32; 2], Op::Sum).expect_err("9 items");
        assert_eq!(refused.class(), ErrorClass::Count);
        let refused = comm().reduce_scatter_block_in_place(&mut [1u32; 7], Op::Sum).expect_err("7 items");
        assert_eq!(refused.class(), ErrorClass::Count);
        let refused =
            comm().reduce_scatter_in_place(&mut [1u32; 7], &[4, 4, 0], Op::Sum).expect_err("8 items");
        assert_eq!(refused.class(), ErrorClass::Count);
        let refused = comm().reduce_scatter_in_place(&mut [1u32; 7], &[4], Op::Sum).expect_err("a count");
        assert_eq!(refused.class(), ErrorClass::Arg);
        // Rank 0 only sends, and learns of the errors of the others in the barrier.
        let comm = comm();
        let failed = comm.exscan(&[1u32; 2], &mut [0u32; 3], Op::Sum).and_then(|()| comm.barrier());
        assert_eq!(failed.expect_err("3 items").class(), ErrorClass::Count);
        Ok::<_, mpj::Error>(())
    });
    outcome.expect("every rank returns `Ok`");
}

#[test]
fn panicking_operation_fails_on_every_rank() {
    let outcome = job(4, |world: World| {
        for round in 0..2 {
            let comm = world.dup()?;
            let me = world.rank();
            let op = Op::user(false, move |a: &u64, b: &u64| {
                assert!(me != 2, "deliberate");
                a + b
            });
            let call = || match round {
                0 => comm.exscan(&[1u64], &mut [0u64], op.clone()),
                _ => comm.reduce_scatter_block(&[1u64; 4], &mut [0u64], op.clone()),
            };
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
                Err(_) => assert_eq!(me, 2),
                Ok(outcome) => {
                    let error =
                        outcome.and_then(|()| comm.barrier()).expect_err("rank 2 has failed").to_string();
                    assert!(error.contains("a user function panicked"), "{error}");
                }
            }
        }
        world.barrier()
    });
    outcome.expect("every rank returns `Ok`");
}

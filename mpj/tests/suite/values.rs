//! Collectives that return a single value or one of each rank.

use crate::common::{job, ranks, text_of};
use mpj::{ErrorClass, Op, Pair, World};

#[test]
fn values_are_those_of_the_calls_with_buffers() {
    for size in 1..=9 {
        ranks(size, |world| {
            let (me, last) = (world.rank(), size - 1);
            let square = |rank: usize| (rank * rank + 1) as u64;
            let sum = |ranks: std::ops::Range<usize>| ranks.map(square).sum::<u64>();
            for root in [0, last] {
                assert_eq!(world.bcast_value(square(me), root)?, square(root));
                assert_eq!(
                    world.reduce_value(square(me), Op::Sum, root)?,
                    (me == root).then(|| sum(0..size))
                );
                let all = || (0..size).map(square).collect::<Vec<_>>();
                assert_eq!(world.gather_value(square(me), root)?, (me == root).then(all));
                let values = if me == root { all() } else { vec![] };
                assert_eq!(world.scatter_value(&values, root)?, square(me));
                assert_eq!(world.allgather_value(square(me))?, all());
            }
            assert_eq!(world.allreduce_value(square(me), Op::Sum)?, sum(0..size));
            assert_eq!(world.scan_value(square(me), Op::Sum)?, sum(0..me + 1));
            assert_eq!(world.exscan_value(square(me), Op::Sum)?, (me > 0).then(|| sum(0..me)));
            let sent: Vec<[usize; 2]> = (0..size).map(|to| [me, to]).collect();
            assert!(world.alltoall_value(&sent)?.into_iter().eq((0..size).map(|from| [from, me])));
            Ok(())
        });
    }
}

/// Structures with padding, `bool` and `char`.
#[mpj::test(ranks = 3)]
fn values_can_be_of_any_type_that_can_be_received(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let pair = |rank: usize| Pair { value: rank as u8, index: 1000 * rank as i64 };
    assert_eq!(world.bcast_value(pair(me), 2)?, pair(2));
    let pairs: Vec<_> = if me == 1 { (0..3).map(pair).collect() } else { vec![] };
    assert_eq!(world.scatter_value(&pairs, 1)?, pair(me));
    assert_eq!(world.allreduce_value(pair(me), Op::MaxLoc)?, pair(2));
    assert!(!world.allreduce_value(me != 1, Op::Land)?);
    assert_eq!(world.allgather_value(['x', 'y', 'z'][me])?, ['x', 'y', 'z']);
    Ok(())
}

#[test]
fn wrong_number_of_values_fails_on_every_rank() {
    let outcome = job(3, |world: World| {
        let comm = world.dup()?;
        let values = vec![1u8; if world.rank() == 1 { 6 } else { 3 }];
        let error =
            comm.alltoall_value(&values).map(drop).and_then(|()| comm.barrier()).expect_err("6 values");
        assert!(text_of(&error).contains("alltoall_value: 6 values for 3 ranks"), "{error}");
        let comm = world.dup()?;
        let values = vec![1u8; if world.rank() == 0 { 6 } else { 0 }];
        let error =
            comm.scatter_value(&values, 0).map(drop).and_then(|()| comm.barrier()).expect_err("6 values");
        assert!(text_of(&error).contains("scatter: "), "{error}");
        let comm = world.dup()?;
        let error = comm.allreduce_value('x', Op::Sum).expect_err("no sum");
        assert_eq!(error.class(), ErrorClass::Op);
        world.barrier()
    });
    outcome.expect("every rank returns `Ok`");
}

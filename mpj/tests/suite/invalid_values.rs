//! Invalid `char`s in the buffer that a rank contributes to a collective.

use std::cell::Cell;

use crate::common::job;
use mpj::topology::Dim;
use mpj::{Datatype, ErrorClass, Intracomm, Op, Reorder, SendBuf, View, World};

/// A collective to which a rank contributes a buffer, and which may return data to it.
type Contribution<'a> = dyn Fn(&Intracomm, &dyn SendBuf, &mut [char]) -> mpj::Result<()> + 'a;

/// A view of chars can begin inside a char. The chars that it then covers are checked like those of messages, by the
/// receiving rank and by the contributing rank.
#[test]
fn invalid_values_in_the_own_buffer_fail_the_collective() {
    let is_valid = |c: &char| char::from_u32(u32::from(*c)).is_some();
    let op = || {
        Op::user(true, move |a: &char, b: &char| {
            assert!(is_valid(a) && is_valid(b), "the operation is called with chars");
            *a
        })
    };
    for size in [1, 2, 3] {
        let calls = |world: World| {
            let shifted = Datatype::of::<char>().hindexed(&[(1, 1)])?;
            // Bytes 1 to 4 are above the last char in either byte order.
            let (text, me) = (['\u{10ffff}'; 2], world.rank());
            let failed = Cell::new(0);
            let call = |collective: &Contribution<'_>| {
                let mut got = vec!['x'; size];
                let outcome = if me == 0 {
                    collective(&world.dup()?, &View::new(&text, 0, &shifted, 1)?, &mut got)
                } else {
                    collective(&world.dup()?, &['c'], &mut got)
                };
                assert!(got.iter().all(is_valid), "{outcome:?} {got:?}");
                failed.update(|failed| {
                    failed + usize::from(outcome.is_err_and(|error| error.class() == ErrorClass::Type))
                });
                Ok::<_, mpj::Error>(())
            };
            call(&|comm, mine, all| comm.allgather(mine, all))?;
            call(&|comm, mine, all| comm.gather(mine, all, 0))?;
            call(&|comm, mine, all| comm.scan(mine, &mut all[..1], op()))?;
            call(&|comm, mine, all| comm.reduce(mine, &mut all[..1], op(), 0))?;
            call(&|comm, mine, all| comm.allreduce(mine, &mut all[..1], op()))?;
            let (counts, at) = (vec![1; size], (0..size).collect::<Vec<_>>());
            call(&|comm, mine, all| comm.gatherv(mine, all, &counts, &at, 0))?;
            call(&|comm, mine, all| comm.allgatherv(mine, all, &counts, &at))?;
            assert!(failed.get() == 7 || me > 0, "rank 0 must fail in 7 calls, found {failed:?}");
            // Only other ranks use the contribution of rank 0.
            call(&|comm, mine, all| comm.exscan(mine, &mut all[..1], op()))?;
            failed.set(7);
            if size == 1 {
                call(&|comm, mine, all| comm.scatter(mine, all, 0))?;
                call(&|comm, mine, all| comm.alltoall(mine, all))?;
                call(&|comm, mine, all| comm.reduce_scatter(mine, all, &[1], op()))?;
                call(&|comm, mine, all| comm.reduce_scatter_block(mine, all, op()))?;
                call(&|comm, mine, all| comm.scatterv(mine, &[1], &[0], all, 0))?;
                call(&|comm, mine, all| comm.alltoallv(mine, (&[1], &[0]), all, (&[1], &[0])))?;
                let ring = |comm: &Intracomm| comm.cart(&[Dim::periodic(1)], Reorder::No).map(Option::unwrap);
                call(&|comm, mine, all| {
                    let mut both = ['x'; 2];
                    let outcome = ring(comm)?.neighbor_allgather(mine, &mut both);
                    all[0] = both[0];
                    outcome
                })?;
                assert_eq!(failed.get(), 14);
            }
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        };
        job(size, calls).expect("every rank returns `Ok`");
    }
}

#[mpj::test(ranks = 1)]
fn valid_chars_between_two_chars_are_contributed(world: World) -> mpj::Result<()> {
    let (text, mut got) = (['a', '\0'], ['x']);
    let shifted = Datatype::of::<char>().hindexed(&[(1, 1)]).expect("fits");
    world.allgather(&View::new(&text, 0, &shifted, 1).expect("inside"), &mut got)?;
    let between: [u8; 4] =
        std::array::from_fn(|at| u32::from('a').to_ne_bytes().get(at + 1).copied().unwrap_or(0));
    assert_eq!(Some(got[0]), char::from_u32(u32::from_ne_bytes(between)));
    Ok(())
}

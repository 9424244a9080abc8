//! Duplications as requests.

use crate::common::ranks;
use mpj::{ANY_SOURCE, ANY_TAG, Comparison, ErrorClass, Fault, Info, Op, Waitable, World};

#[mpj::test(ranks = 3)]
fn idup_completes_while_other_collectives_run(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let (mut first, second) = (world.idup()?, world.idup()?);
    let mut sum = [0usize];
    world.allreduce(&[me], &mut sum, Op::Sum)?;
    let second = second.wait()?;
    let request = &mut first;
    let first = loop {
        if let Some(outcome) = request.test() {
            break outcome?;
        }
    };
    assert_eq!(request.test().expect("complete").expect_err("returned before").class(), ErrorClass::Request);
    assert_eq!((&*first.name(), &*second.name()), ("world.idup 1", "world.idup 2"));
    // The messages of the two duplicates do not mix.
    let right = (me + 1) % 3;
    second.send(&[me + 10], right, 0)?;
    first.send(&[me], right, 0)?;
    let mut got = [[0usize]; 2];
    first.recv(&mut got[0], ANY_SOURCE, ANY_TAG)?;
    second.recv(&mut got[1], ANY_SOURCE, ANY_TAG)?;
    assert_eq!(got, [[(me + 2) % 3], [(me + 2) % 3 + 10]]);
    assert_eq!(first.compare(&second), Comparison::Congruent);
    Ok(())
}

/// MPI_Comm_idup_with_info. The hints can differ by rank, and those of the original do not matter.
#[mpj::test(ranks = 3)]
fn raw_duplicate_has_the_given_hints(world: World) -> mpj::Result<()> {
    let hints = |at: usize| {
        let mut info = Info::new();
        info.set("rank", &format!("{} of {at}", world.rank()))?;
        info.set("mpi_assert_no_any_tag", "true")?;
        Ok::<_, mpj::Error>(info)
    };
    let original = world.dup_with_info(&hints(0)?)?;
    let started = [original.as_raw().idup(Some(&hints(1)?))?, original.as_raw().idup(Some(&hints(2)?))?];
    let plain = original.as_raw().idup(None)?;
    original.set_info(Info::new());
    for (at, pending) in (1..).zip(started) {
        let twin = pending.wait()?;
        assert_eq!(twin.info(), hints(at)?);
        assert_eq!(twin.compare(original.as_raw()), Comparison::Congruent);
    }
    assert!(plain.wait()?.info().is_empty(), "as after `dup`");
    Ok(())
}

/// Rank 1 drops its request before or after the request has completed.
#[test]
fn dropped_duplication_refuses_the_messages_of_the_duplicate() {
    for completes in [false, true] {
        ranks(3, |world| {
            let request = world.idup()?;
            if world.rank() == 1 {
                while completes && !request.request_ref().poll_complete() {}
                drop(request);
            } else {
                let twin = request.wait()?;
                let error = twin.ssend(&[1u8], 1, 0).expect_err("rank 1 has no duplicate");
                assert_eq!(error.as_fault(), Some(&Fault::Refused { rank: 1 }), "{error}");
                let error = twin.barrier().expect_err("rank 1 has no duplicate");
                assert_eq!(error.class(), ErrorClass::Request, "{error}");
                assert!(error.to_string().contains("rank 1 has dropped the request"), "{error}");
            }
            world.barrier()
        });
    }
}

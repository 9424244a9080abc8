//! Non-blocking collectives that fail: each rank gets an error.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{job, ranks};
use mpj::raw::{self, Buf, Collective};
use mpj::{ErrorClass, Op, World, coll};

const SIZES: [usize; 3] = [2, 3, 5];

/// Returns each rank's error, from `call` or otherwise from the next barrier.
#[track_caller]
fn errors_of_all(size: usize, call: impl Fn(&World) -> mpj::Result<()> + Send + Sync) -> Vec<mpj::Error> {
    let outcome = job(size, |world| {
        let comm = world.dup()?;
        let failed = call(&world).and_then(|()| world.barrier()).expect_err("an error on every rank");
        comm.barrier()?;
        Ok::<_, mpj::Error>(failed)
    });
    outcome.expect("every rank returns `Ok`")
}

#[test]
fn invalid_arguments_on_one_rank_fail_all_ranks() {
    for size in SIZES {
        let errors = errors_of_all(size, |world| {
            let root = if world.rank() == 1 { size } else { 0 };
            world.start(coll::bcast([0u8; 4], root))?.wait().map(drop).map_err(mpj::Error::from)
        });
        assert_eq!(errors[1].class(), ErrorClass::Root);
        for error in errors {
            assert!(error.to_string().contains("ibcast: root"), "{error}");
        }
    }
}

#[test]
fn invalid_arguments_disable_collectives() {
    ranks(3, |world| {
        let comm = world.dup()?;
        let before = comm.start(coll::barrier())?;
        assert_eq!(comm.start(coll::bcast([0u8], 7)).expect_err("a bad root").class(), ErrorClass::Root);
        let error = comm.start(coll::barrier()).expect_err("disabled").to_string();
        assert!(error.contains("are disabled since rank "), "{error}");
        // An earlier call completes, or fails because of the later one.
        let _ = before.wait();
        world.barrier()
    });
}

#[test]
fn failure_during_collective_reaches_all_ranks() {
    for size in SIZES {
        let errors = errors_of_all(size, |world| {
            let len = if world.rank() == 1 { 5 } else { 9 };
            world.start(coll::bcast(vec![0u8; len], 0))?.wait().map(drop).map_err(mpj::Error::from)
        });
        for error in errors {
            assert!(error.to_string().contains("rank 0 sent 9 bytes, expected 5"), "{error}");
        }
    }
}

#[test]
fn mismatched_collective_is_named() {
    for size in SIZES {
        let errors = errors_of_all(size, |world| match world.rank() {
            0 => world.start(coll::barrier())?.wait().map(drop).map_err(mpj::Error::from),
            _ => world
                .start(coll::allreduce([1u8], [0u8], Op::Sum))?
                .wait()
                .map(drop)
                .map_err(mpj::Error::from),
        });
        for error in errors {
            assert!(error.to_string().contains("instead"), "{error}");
        }
    }
}

#[test]
fn panicking_op_fails_its_collective_on_all_ranks() {
    let errors = errors_of_all(3, |world| {
        let op =
            Op::user(true, |a: &u32, b: &u32| if *a + *b > 2 { panic!("as the test wants") } else { a + b });
        world.start(coll::allreduce([1u32], [0u32], op))?.wait().map(drop).map_err(mpj::Error::from)
    });
    for error in errors {
        assert!(error.to_string().contains("panicked"), "{error}");
    }
}

#[test]
fn finalized_rank_fails_pending_collectives() {
    for size in SIZES {
        let left = AtomicUsize::new(0);
        ranks(size, |world| {
            if world.rank() == 0 {
                return Ok(());
            }
            let error = world.start(coll::barrier())?.wait().expect_err("rank 0 takes no part");
            assert!(error.error().failed_rank() == Some(0), "{error}");
            left.fetch_add(1, Ordering::Relaxed);
            // If a rank left before all have their errors, an error could name that rank instead.
            while left.load(Ordering::Relaxed) < size - 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        assert_eq!(left.into_inner(), size - 1);
    }
}

#[test]
fn death_fails_pending_collectives() {
    let (past, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcome = job(3, |world| {
        let first = world.start(coll::barrier()).map_err(|e| e.to_string())?;
        first.wait().map_err(|e| e.to_string())?;
        past.fetch_add(1, Ordering::Relaxed);
        if world.rank() == 2 {
            // As long as a rank waits in the barrier, the death could fail it, although rank 2 has done its part.
            while past.load(Ordering::Relaxed) < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Err("as the test wants".to_owned());
        }
        let sum = world.start(coll::allreduce([1], [0], Op::Sum)).map_err(|e| e.to_string())?;
        let error = sum.wait().expect_err("rank 2 is gone");
        assert_eq!((error.error().call(), error.error().failed_rank()), ("iallreduce", Some(2)), "{error}");
        seen.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    outcome.expect_err("rank 2 has failed");
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

#[test]
fn init_failure_on_one_rank_fails_all_ranks() {
    for size in SIZES {
        let errors = errors_of_all(size, |world| {
            let mut items = [0u8];
            let root = if world.rank() == 0 { -1 } else { 0 };
            let items = Buf::slice_mut(&mut items);
            raw::collective_init(world.as_raw(), Collective::bcast(&items, root), None).map(drop)
        });
        for error in errors {
            assert!(error.to_string().contains("bcast_init: root -1"), "{error}");
        }
    }
}

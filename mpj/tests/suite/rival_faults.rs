//! Faults of other message-passing libraries for Rust. The programs run on threads here, and on processes with every
//! device in the tests of `mpjrun`. There, `failures` and `exits` have the cases in which a rank is killed, exits or
//! panics.

use crate::common::alive;
use crate::common::rival_faults::FAULTS;

#[test]
fn programs_that_fail_with_other_libraries_succeed() {
    for ranks in [2, 3] {
        for (name, program) in FAULTS {
            if let Err(error) = alive(|| mpj::threads(ranks, |world| program(&world))) {
                panic!("{name}, on {ranks} ranks: {error}");
            }
        }
    }
}

#[test]
fn panic_of_a_rank_fails_the_calls_of_the_others() {
    let outcome = alive(|| {
        mpj::threads(3, |world| {
            assert_ne!(world.rank(), 1, "this rank panics");
            world.recv(&mut [0u8], 1, 0).map(drop)
        })
    });
    let error = outcome.expect_err("a rank has panicked");
    assert!(error.is_panic() && error.rank() == 1, "{error}");
}

//! The suite of `Boot` on threads.

#[path = "common/boot.rs"]
mod cases;

use std::sync::Arc;

use mpj::World;
use mpj::boot::{LocalRanks, ThreadBoot};

use super::common::alive;

fn run(ranks: u32, boots: impl Fn() -> LocalRanks) {
    cases::CASES.iter().filter(|case| case.min_ranks <= ranks).for_each(|case| {
        alive(|| cases::run_case(&boots(), case));
    });
}

#[test]
fn boot_suite_passes_on_threads() {
    run(4, || ThreadBoot::ranks(4));
}

#[test]
fn boot_suite_passes_on_one_rank() {
    run(1, || vec![Arc::new(ThreadBoot::singleton())]);
}

/// A message to itself and a sum work in the job of one rank, which then ends.
fn use_and_leave(world: World, round: u32) -> mpj::Result<()> {
    assert_eq!((world.rank(), world.size()), (0, 1));
    let sending = world.isend([round], 0, 0)?;
    assert_eq!(world.recv_vec::<u32>(0, 0)?.0, [round]);
    sending.wait()?;
    assert_eq!(world.allreduce_value(round, mpj::Op::Sum)?, round);
    world.dup()?.barrier()
}

#[test]
fn init_without_a_launcher_can_be_repeated() {
    alive(|| {
        for round in 0..3 {
            use_and_leave(mpj::init().expect("a job of one rank"), round).expect("the rank works");
        }
        // Two jobs at once.
        let (one, other) = (mpj::init().expect("a job"), mpj::init().expect("another job"));
        use_and_leave(one, 3).expect("the rank works");
        use_and_leave(other, 4).expect("the rank works");
    });
}

#[test]
fn connect_with_one_rank_can_be_repeated() {
    alive(|| {
        for round in 0..3 {
            // A job of one rank does not listen at the address.
            let world =
                mpj::connect(0, 1, "localhost:7000", b"a secret of this job").expect("a job of one rank");
            use_and_leave(world, round).expect("the rank works");
        }
    });
}

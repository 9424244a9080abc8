//! The suite of `Boot` on threads.

#[path = "common/boot.rs"]
mod cases;

use std::sync::Arc;

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

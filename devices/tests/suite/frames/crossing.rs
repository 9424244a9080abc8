//! Checks whether the engine tells the device that bodies go both ways between two ranks: a peer that moves bodies
//! itself has no time to help.

use mpj_devices::{Mode, Started};

use super::bench::{Bench, WORLD};
use super::device::{Gets, KEY, PIECE, Step, fetched};
use super::head::*;

const LEN: usize = 2 * PIECE;

fn bench() -> Bench {
    let bench = Bench::with(Gets::Now);
    bench.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    bench
}

/// Receives an announced message from rank 1; returns how many of its pieces are marked as crossing others.
fn crossing(bench: &Bench, early: bool) -> usize {
    let announce = || bench.play([Step::Frame(1, ready(0, 5, LEN as u64), KEY.to_vec())]);
    let before = bench.crossing();
    if early {
        announce();
    }
    let posted = bench.post_bytes(1, LEN);
    if !early {
        announce();
    }
    assert_eq!(bench.ops(1, DONE), [(5, 0)]);
    let (outcome, memory) = posted.finish().unwrap();
    assert_eq!((outcome.unwrap().bytes, memory), (LEN, (0..LEN).map(fetched).collect()));
    bench.others_go_on();
    bench.crossing() - before
}

#[test]
fn a_body_crosses_one_that_its_sender_has_yet_to_get() {
    for early in [false, true] {
        let bench = bench();
        assert!(matches!(bench.send(1, vec![3; LEN], Mode::Standard), Ok(Started::Pending(_))));
        assert_eq!(crossing(&bench, early), 2, "both pieces");
    }
}

#[test]
fn a_body_for_another_rank_or_that_was_got_or_is_short_does_not_count() {
    for early in [false, true] {
        let bench = bench();
        let _short = bench.send(1, vec![3], Mode::Synchronous).unwrap();
        let _other = bench.send(2, vec![3; LEN], Mode::Standard).unwrap();
        let _sent = bench.send(1, vec![3; LEN], Mode::Standard).unwrap();
        let op = bench.ops(1, READY)[0].0;
        bench.play([Step::Frame(1, answer(DONE, 0, op, 0), vec![])]);
        assert_eq!(crossing(&bench, early), 0);
    }
}

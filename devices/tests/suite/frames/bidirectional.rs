//! The engine marks gets from a peer as bidirectional while that peer fetches a body from this rank.

use mpj_devices::{Mode, Started};

use super::device::{Gets, KEY, PIECE, Step, fetched};
use super::fixture::{Fixture, WORLD};
use super::head_encoding::*;

const LEN: usize = 2 * PIECE;

fn bench() -> Fixture {
    let bench = Fixture::with(Gets::Now);
    bench.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    bench
}

/// Receives a rendezvous message from rank 1; returns how many of its pieces are marked as bidirectional.
fn bidirectional_pieces(bench: &Fixture, unexpected: bool) -> usize {
    let announce = || bench.play([Step::Frame(1, rts(0, 5, LEN as u64), KEY.to_vec())]);
    let before = bench.bidirectional();
    if unexpected {
        announce();
    }
    let posted = bench.post_bytes(1, LEN);
    if !unexpected {
        announce();
    }
    assert_eq!(bench.take_ops(1, FIN), [(5, 0)]);
    let (outcome, memory) = posted.finish().unwrap();
    assert_eq!((outcome.unwrap().bytes, memory), (LEN, (0..LEN).map(fetched).collect()));
    bench.assert_others_communicate();
    bench.bidirectional() - before
}

#[test]
fn get_is_bidirectional_while_the_peer_fetches_a_body() {
    for unexpected in [false, true] {
        let bench = bench();
        assert!(matches!(bench.send(1, vec![3; LEN], Mode::Standard), Ok(Started::Pending(_))));
        assert_eq!(bidirectional_pieces(&bench, unexpected), 2, "both pieces");
    }
}

#[test]
fn other_fetched_and_short_bodies_are_not_bidirectional() {
    for unexpected in [false, true] {
        let bench = bench();
        let _short = bench.send(1, vec![3], Mode::Synchronous).unwrap();
        let _other = bench.send(2, vec![3; LEN], Mode::Standard).unwrap();
        let _sent = bench.send(1, vec![3; LEN], Mode::Standard).unwrap();
        let op = bench.take_ops(1, RTS)[0].0;
        bench.play([Step::Frame(1, reply(FIN, 0, op, 0), vec![])]);
        assert_eq!(bidirectional_pieces(&bench, unexpected), 0);
    }
}

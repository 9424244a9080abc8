//! A device whose gets pay only while bodies go both ways: the sender says so, and the receiver knows whether they do.

use mpj_devices::{Mode, Started};

use crate::bench::{Bench, WORLD};
use crate::device::{Gets, KEY, PIECE, Step, fetched};
use crate::head::*;

const LEN: usize = 2 * PIECE;

fn bench(gets: Gets) -> Bench {
    let bench = Bench::with(gets);
    bench.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    bench
}

/// Has `peer` announce a message with such a key, for which a receive is posted or comes later.
fn announce(bench: &Bench, peer: u32, op: u64) {
    bench.play([Step::Frame(peer, ready(0, op, LEN as u64 | CROSSING), KEY.to_vec())]);
}

#[test]
fn a_sender_says_that_its_key_pays_only_then() {
    for (gets, mark) in [(Gets::Crossing, CROSSING), (Gets::Now, 0)] {
        let bench = bench(gets);
        assert!(matches!(bench.send(1, vec![3; LEN], Mode::Standard), Ok(Started::Pending(_))));
        let sent = bench.sent();
        let (_, head, key) = sent.iter().find(|(to, head, _)| (*to, head[0]) == (1, READY)).unwrap();
        assert_eq!((&head[32..], &key[..]), (&(LEN as u64 | mark).to_le_bytes()[..], &KEY[..]));
    }
}

#[test]
fn a_receiver_that_sends_nothing_asks_for_the_body() {
    for early in [false, true] {
        let bench = bench(Gets::Crossing);
        if early {
            announce(&bench, 1, 5);
        }
        let posted = bench.post_bytes(1, LEN);
        if !early {
            announce(&bench, 1, 5);
        }
        let [(5, mine)] = bench.ops(1, CLEAR)[..] else { panic!("the body is asked for") };
        let piece = |at: usize| Step::Frame(1, answer(DATA, 0, mine, at as u64), vec![7; PIECE]);
        bench.play([piece(0), piece(PIECE)]);
        let (outcome, memory) = posted.finish().unwrap();
        assert_eq!((outcome.unwrap().bytes, memory), (LEN, vec![7; LEN]));
        bench.others_go_on();
    }
}

#[test]
fn a_receiver_that_has_a_body_for_the_sender_gets_it() {
    for early in [false, true] {
        let bench = bench(Gets::Crossing);
        let _send = bench.send(1, vec![3; LEN], Mode::Standard).unwrap();
        let posted = (!early).then(|| bench.post_bytes(1, LEN));
        announce(&bench, 1, 5);
        let posted = posted.unwrap_or_else(|| bench.post_bytes(1, LEN));
        assert_eq!(bench.ops(1, DONE), [(5, 0)]);
        let (outcome, memory) = posted.finish().unwrap();
        assert_eq!((outcome.unwrap().bytes, memory), (LEN, (0..LEN).map(fetched).collect()));
        bench.others_go_on();
    }
}

#[test]
fn a_body_for_another_rank_or_that_was_got_or_is_short_does_not_count() {
    let bench = bench(Gets::Crossing);
    let _short = bench.send(1, vec![3], Mode::Synchronous).unwrap();
    let _other = bench.send(2, vec![3; LEN], Mode::Standard).unwrap();
    let _sent = bench.send(1, vec![3; LEN], Mode::Standard).unwrap();
    let [(op, _)] = bench.ops(1, READY)[..] else { panic!("one message was announced") };
    bench.play([Step::Frame(1, answer(DONE, 0, op, 0), vec![])]);
    let posted = bench.post_bytes(1, LEN);
    announce(&bench, 1, 5);
    assert!(posted.completion().is_some() && matches!(bench.ops(1, CLEAR)[..], [(5, _)]));
}

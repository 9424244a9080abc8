//! A device that moves memory and reports the completion later: in any order, twice, after a death, or never. No
//! operation completes before the device has stopped using its memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mpj_devices::{Completion, Exit, Fault, Mode, Started};

use super::bench::{Bench, Posted, WORLD};
use super::device::{EAGER, FRAGMENT, Gets, KEY, PIECE, Started as Move, Step, Wire, fetched, lock};
use super::head::*;

const LEN: usize = 2 * PIECE + 100;

/// A bench whose device starts moves, and whose peers have bound the world.
fn bench() -> Bench {
    let bench = Bench::with(Gets::Start);
    bench.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    bench
}

fn moves(bench: &Bench) -> Vec<Move> {
    lock(&bench.wire.moves).clone()
}

fn registrations(wire: &Wire) -> usize {
    lock(&wire.dropped).iter().filter(|what| **what == "registration").count()
}

/// Returns the body of a message that is fetched from the peer.
fn body(len: usize) -> Vec<u8> {
    (0..len).map(fetched).collect()
}

/// Returns a receive that has matched an announced message of `LEN` bytes, and the moves into it.
fn getting(bench: &Bench) -> (Posted, Vec<Move>) {
    let posted = bench.post_bytes(1, LEN);
    bench.play([Step::Frame(1, ready(0, 5, LEN as u64), vec![1, 2, 3])]);
    let moves = moves(bench);
    assert!(moves.iter().all(|it| it.key == [1, 2, 3]), "{moves:?}");
    assert_eq!(
        moves.iter().map(|it| (it.at, it.len)).collect::<Vec<_>>(),
        [(0, PIECE), (PIECE, PIECE), (2 * PIECE, 100)]
    );
    (posted, moves)
}

fn has_ended(posted: &Posted) -> bool {
    posted.completion().unwrap().outcome().is_some()
}

fn send(bench: &Bench, len: usize, mode: Mode) -> Completion {
    match bench.send(1, vec![3; len], mode).unwrap() {
        Started::Pending(completion) => completion,
        Started::Done(_) => panic!("it has ended already"),
    }
}

/// Announces a message and calls `then`. Returns the message, and the token under which its memory is being quiesced.
fn asked(bench: &Bench, then: impl FnOnce(&Completion)) -> (Completion, u64) {
    let send = send(bench, LEN, Mode::Standard);
    then(&send);
    let [token] = lock(&bench.wire.asked)[..] else { panic!("one operation was asked about") };
    assert!(send.outcome().is_none(), "the peer may still read");
    (send, token)
}

fn dead(outcome: Option<&Result<mpj_devices::Envelope, Fault>>) -> bool {
    matches!(outcome, Some(Err(Fault::Dead { rank: 1, .. })))
}

#[test]
fn pieces_end_in_any_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let bench = bench();
        let (posted, moves) = getting(&bench);
        for (nth, at) in order.into_iter().enumerate() {
            assert!(!has_ended(&posted), "{nth} pieces have landed");
            assert_eq!(bench.ops(1, DONE), []);
            bench.play([Step::Moved(moves[at].token, true)]);
        }
        assert_eq!(bench.ops(1, DONE), [(5, 0)], "the sender hears that all has been got");
        let (outcome, memory) = posted.finish().unwrap();
        assert_eq!((outcome.unwrap().bytes, memory == body(LEN)), (LEN, true));
        assert_eq!(registrations(&bench.wire), 1);
        bench.others_go_on();
    }
}

#[test]
fn early_announcements_are_got_when_they_are_received() {
    let bench = bench();
    bench.play([
        Step::Begin(1, ready(0, 5, 100), 20),
        Step::Bytes(1, vec![7; 15]),
        Step::Bytes(1, vec![8; 5]),
    ]);
    bench.play([Step::Landed(1)]);
    let posted = bench.post_bytes(1, 100);
    let [Move { token, key, .. }] = &moves(&bench)[..] else { panic!("one move") };
    assert_eq!(key[..], [vec![7; 15], vec![8; 5]].concat(), "a key that was streamed");
    bench.play([Step::Moved(*token, true)]);
    assert_eq!(posted.finish().unwrap().1, body(100));
    // A message without a key and an empty message are not moved.
    for (len, key) in [(100, vec![]), (0, vec![1; 20])] {
        let posted = bench.post_bytes(1, 100);
        bench.play([Step::Frame(1, ready(0, 6, len), key)]);
        let [(6, mine)] = bench.ops(1, CLEAR)[..] else { panic!("it is asked for") };
        bench.play([Step::Frame(1, answer(DATA, 0, mine, 0), vec![1; len as usize])]);
        assert_eq!(posted.finish().unwrap().0.unwrap().bytes, len as usize);
    }
    assert_eq!(bench.death(), None);
}

#[test]
fn what_ends_twice_or_never_began_changes_nothing() {
    let bench = bench();
    let (posted, moves) = getting(&bench);
    let wild = [0, 1, u64::MAX, 1 << 32 | 77, moves[0].token ^ 1 << 63];
    for token in wild {
        bench.play([Step::Moved(token, true), Step::Moved(token, false), Step::Quiet(token)]);
    }
    // A get cannot be quiesced, and its token stays valid.
    bench.play(moves.iter().map(|it| Step::Quiet(it.token)));
    for _ in 0..3 {
        bench.play([Step::Moved(moves[0].token, true), Step::Moved(moves[1].token, true)]);
        assert!(!has_ended(&posted), "the third piece has not landed");
    }
    bench.play([Step::Moved(moves[2].token, true)]);
    assert!(posted.finish().unwrap().1 == body(LEN));
    // The slots of those tokens are reused: the old tokens do not name the new moves.
    let (posted, again) = getting(&bench);
    for it in &moves {
        bench.play([Step::Moved(it.token, true), Step::Moved(it.token, false)]);
    }
    assert!(!has_ended(&posted));
    bench.play(again.iter().map(|it| Step::Moved(it.token, true)));
    assert!(posted.finish().unwrap().1 == body(LEN));
    assert_eq!(bench.death(), None);
}

#[test]
fn a_get_that_fails_is_asked_for_when_nothing_is_under_way() {
    let bench = bench();
    let (posted, moves) = getting(&bench);
    bench.play([Step::Moved(moves[1].token, false), Step::Moved(moves[0].token, true)]);
    // A piece is still being written: data that the peer sends now must not go to the same memory.
    bench.play([Step::Frame(1, answer(DATA, 0, 1 << 32, 0), vec![7; 900])]);
    assert_eq!(bench.ops(1, CLEAR), []);
    bench.play([Step::Moved(moves[2].token, true)]);
    let [(5, mine)] = bench.ops(1, CLEAR)[..] else { panic!("a clear for operation 5") };
    for (i, part) in vec![4; LEN].chunks(FRAGMENT).enumerate() {
        bench.play([Step::Frame(1, answer(DATA, 0, mine, (i * FRAGMENT) as u64), part.to_vec())]);
    }
    assert!(posted.finish().unwrap().1 == vec![4; LEN]);
    assert_eq!(bench.death(), None);
}

#[test]
fn gets_wait_for_room() {
    let bench = bench();
    bench.stop_links(true);
    let posted = [bench.post_bytes(1, LEN), bench.post_bytes(1, LEN)];
    bench.play((5..7).map(|op| Step::Frame(1, ready(0, op, LEN as u64), vec![1])));
    assert_eq!(moves(&bench).len(), 0);
    bench.stop_links(false);
    bench.play([]);
    bench.play(moves(&bench).iter().map(|it| Step::Moved(it.token, true)));
    posted.into_iter().for_each(|posted| assert!(posted.finish().unwrap().1 == body(LEN)));
    // A death fails operations that wait for room.
    bench.stop_links(true);
    let posted = bench.post_bytes(1, LEN);
    bench.play([Step::Frame(1, ready(0, 8, LEN as u64), vec![1]), Step::Lost(1)]);
    assert!(dead(posted.finish().unwrap().0.err().map(Err).as_ref()));
    bench.engine.close();
}

/// A receiver that copies a long body leaves time for others: it copies a few pieces in each pass, and does not sleep
/// between passes.
#[test]
fn long_gets_go_a_few_pieces_at_a_time() {
    const MANY: usize = 100;
    let bench = Bench::with(Gets::Now);
    bench.play([Step::Frame(1, bind(0, WORLD, 1), vec![])]);
    let posted = [bench.post_bytes(1, MANY * PIECE), bench.post_bytes(1, PIECE + 1)];
    let sizes = [MANY * PIECE, PIECE + 1];
    let frame = |(op, len): (u64, usize)| Step::Frame(1, ready(0, op, len as u64), vec![1]);
    lock(&bench.wire.steps).extend((5..).zip(sizes).map(frame));
    let pieces = || bench.wire.pieces.load(Ordering::Relaxed);
    let mut passes = 0;
    while pieces() < MANY + 2 {
        let before = pieces();
        assert!(bench.engine.progress() > 0, "who waits would sleep");
        // Each announcement also posts some pieces, once.
        let most = if passes == 0 { 3 * 16 } else { 16 };
        assert!((1..=most).contains(&(pieces() - before)), "{} pieces in pass {passes}", pieces() - before);
        passes += 1;
    }
    assert!(passes > 3);
    assert_eq!(bench.ops(1, DONE), [(5, 0), (6, 0)]);
    for (posted, len) in posted.into_iter().zip(sizes) {
        assert!(posted.finish().expect("no pass without a piece is needed").1 == body(len));
    }
    bench.engine.close();
}

#[test]
fn a_death_gives_memory_back_when_the_last_piece_has_ended() {
    for well in [true, false] {
        for whose in [1, 3] {
            let bench = bench();
            let (posted, moves) = getting(&bench);
            bench.play([Step::Moved(moves[2].token, true)]);
            bench.roster.report(whose, Exit::Died("elsewhere".into()));
            bench.play([Step::Moved(moves[0].token, well)]);
            assert!(!has_ended(&posted), "the device still writes");
            bench.play([Step::Moved(moves[1].token, well)]);
            let outcome = posted.finish().unwrap().0;
            assert!(matches!(outcome, Err(Fault::Dead { rank, .. }) if rank == whose), "{outcome:?}");
            assert_eq!(registrations(&bench.wire), 1);
            bench.engine.close();
        }
    }
}

/// A device that never completes a move keeps the memory, and nothing else.
#[test]
fn what_never_ends_does_not_keep_the_engine() {
    let bench = bench();
    let (posted, _) = getting(&bench);
    let lent = send(&bench, LEN, Mode::Standard);
    let (op, _) = bench.ops(1, READY)[0];
    bench.play([Step::Frame(1, answer(CLEAR, 0, op, 9), vec![])]);
    let exposed = send(&bench, LEN, Mode::Standard);
    bench.play([Step::Lost(1)]);
    bench.engine.close();
    for send in [&lent, &exposed] {
        assert!(send.outcome().is_none(), "a device or a peer may still touch it");
    }
    assert!(!has_ended(&posted));
    let (wire, Bench { engine, world, .. }) = (Arc::clone(&bench.wire), bench);
    drop(world);
    drop(engine);
    assert!(dead(posted.finish().unwrap().0.err().map(Err).as_ref()));
    assert!(lent.outcome().is_some_and(Result::is_err) && dead(exposed.outcome()));
    let dropped = lock(&wire.dropped).clone();
    let device = dropped.iter().position(|what| *what == "device").unwrap();
    assert!(dropped[..device].contains(&"inlet") && dropped[..device].contains(&"link"), "{dropped:?}");
    // The registration of the announced message ended when the peer asked for its body (`CLEAR`).
    assert_eq!(dropped[device..].iter().filter(|what| **what == "registration").count(), 3, "{dropped:?}");
}

#[test]
fn an_announcement_brings_the_devices_key() {
    let bench = bench();
    let send = send(&bench, LEN, Mode::Standard);
    let sent = bench.sent();
    let (_, head, key) = sent.iter().find(|sent| sent.1[0] == READY).unwrap();
    assert_eq!(key[..], KEY);
    assert_eq!(registrations(&bench.wire), 0);
    bench.play([Step::Frame(1, answer(DONE, 0, word(head, 24), 0), vec![])]);
    assert!(send.outcome().is_some_and(Result::is_ok));
    assert_eq!(registrations(&bench.wire), 1);
    assert_eq!(lock(&bench.wire.asked)[..], [], "the peer itself has said that it is done");
}

#[test]
fn a_message_that_is_taken_back_ends_when_its_memory_is_quiet() {
    let bench = bench();
    let (send, token) = asked(&bench, |send| assert!(bench.engine.cancel(&bench.world, send)));
    assert!(!bench.engine.cancel(&bench.world, &send), "once");
    bench.play([Step::Moved(token, true), Step::Quiet(token ^ 1 << 40)]);
    assert!(send.outcome().is_none(), "those are no answers");
    // The peer requests its body, or reports that it has fetched it: the message is being quiesced.
    let (op, _) = bench.ops(1, READY)[0];
    bench.play([Step::Frame(1, answer(DONE, 0, op, 0), vec![])]);
    assert!(send.outcome().is_none());
    assert_eq!(registrations(&bench.wire), 0);
    bench.play([Step::Quiet(token), Step::Quiet(token)]);
    assert_eq!(send.outcome(), Some(&Err(Fault::Cancelled)));
    assert_eq!(registrations(&bench.wire), 1);
    assert_eq!(bench.death(), None);
    bench.engine.close();
}

#[test]
fn a_death_gives_announced_memory_back_when_it_is_quiet() {
    let bench = bench();
    let (send, token) = asked(&bench, |_| bench.play([Step::Lost(1)]));
    bench.play([Step::Quiet(token)]);
    assert!(dead(send.outcome()));
    bench.engine.close();
}

#[test]
fn a_lent_body_is_the_users_when_the_last_piece_has_ended() {
    for failing in [None, Some(0), Some(1)] {
        let bench = bench();
        let send = send(&bench, LEN, Mode::Standard);
        let (op, _) = bench.ops(1, READY)[0];
        bench.play([Step::Frame(1, answer(CLEAR, 0, op, 9), vec![])]);
        let data: Vec<u8> =
            bench.sent().into_iter().filter(|sent| sent.1[0] == DATA).flat_map(|s| s.2).collect();
        assert!(data == vec![3; LEN]);
        let moves = moves(&bench);
        assert_eq!(moves.iter().map(|it| it.len).sum::<usize>(), LEN);
        for (at, it) in moves.iter().enumerate().rev() {
            assert!(send.outcome().is_none(), "piece {at} is lent");
            bench.play([Step::Moved(it.token, failing != Some(at)), Step::Moved(it.token, true)]);
        }
        let outcome = send.outcome().expect("all pieces have ended");
        match failing {
            None => assert!(outcome.is_ok()),
            Some(_) => assert!(matches!(outcome, Err(Fault::Unreachable { rank: 1, .. })), "{outcome:?}"),
        }
        bench.engine.close();
    }
}

#[test]
fn a_death_gives_a_lent_body_back_when_the_last_piece_has_ended() {
    let bench = bench();
    let send = send(&bench, LEN, Mode::Standard);
    let (op, _) = bench.ops(1, READY)[0];
    bench.play([Step::Frame(1, answer(CLEAR, 0, op, 9), vec![]), Step::Lost(1)]);
    let moves = moves(&bench);
    for it in &moves {
        assert!(send.outcome().is_none());
        bench.play([Step::Moved(it.token, false)]);
    }
    assert!(send.outcome().is_some_and(Result::is_err));
    bench.engine.close();
}

#[test]
fn eager_messages_are_not_lent() {
    let bench = bench();
    assert!(matches!(bench.send(1, vec![1; EAGER], Mode::Standard), Ok(Started::Done(_))));
    assert_eq!(moves(&bench).len(), 0);
}

//! A device that executes gets and zero-copy sends asynchronously. It reports a completion in any order, twice, after a
//! death, or never. A receive or send does not complete while the device still uses its memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mpj_devices::{Completion, Exit, Fault, Mode, Started};

use super::device::{EAGER_LIMIT, FRAGMENT, Gets, KEY, PIECE, StartedOp, Step, Wire, fetched, lock};
use super::fixture::{Fixture, Posted, WORLD};
use super::head_encoding::*;

const LEN: usize = 2 * PIECE + 100;

/// Returns a fixture whose device completes operations later, and whose peers have bound the world.
fn fixture() -> Fixture {
    let fixture = Fixture::with(Gets::Start);
    fixture.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    fixture
}

fn ops(fixture: &Fixture) -> Vec<StartedOp> {
    lock(&fixture.wire.ops).clone()
}

fn registrations(wire: &Wire) -> usize {
    lock(&wire.dropped).iter().filter(|what| **what == "registration").count()
}

fn body(len: usize) -> Vec<u8> {
    (0..len).map(fetched).collect()
}

/// Starts a receive of an RTS of `LEN` bytes. Returns it and the pending gets into its memory.
fn start_gets(fixture: &Fixture) -> (Posted, Vec<StartedOp>) {
    let posted = fixture.post_bytes(1, LEN);
    fixture.play([Step::Frame(1, rts(0, 5, LEN as u64), vec![1, 2, 3])]);
    let ops = ops(fixture);
    assert!(ops.iter().all(|it| it.key == [1, 2, 3]), "{ops:?}");
    assert_eq!(
        ops.iter().map(|it| (it.at, it.len)).collect::<Vec<_>>(),
        [(0, PIECE), (PIECE, PIECE), (2 * PIECE, 100)]
    );
    (posted, ops)
}

fn is_complete(posted: &Posted) -> bool {
    posted.completion().unwrap().outcome().is_some()
}

fn send(fixture: &Fixture, len: usize, mode: Mode) -> Completion {
    match fixture.send(1, vec![3; len], mode).unwrap() {
        Started::Pending(completion) => completion,
        Started::Done(_) => panic!("it has ended already"),
    }
}

/// Sends an RTS and calls `then`, which ends the send. Returns the send, and the token of the quiesce of its memory.
fn start_quiesce(fixture: &Fixture, then: impl FnOnce(&Completion)) -> (Completion, u64) {
    let send = send(fixture, LEN, Mode::Standard);
    then(&send);
    let [token] = lock(&fixture.wire.quiescing)[..] else { panic!("one quiesce") };
    assert!(send.outcome().is_none(), "the peer might still read");
    (send, token)
}

fn dead(outcome: Option<&Result<mpj_devices::Envelope, Fault>>) -> bool {
    matches!(outcome, Some(Err(Fault::Dead { rank: 1, .. })))
}

#[test]
fn pieces_complete_in_any_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let fixture = fixture();
        let (posted, ops) = start_gets(&fixture);
        for (nth, at) in order.into_iter().enumerate() {
            assert!(!is_complete(&posted), "{nth} pieces have landed");
            assert_eq!(fixture.take_ops(1, FIN), []);
            fixture.play([Step::Completed(ops[at].token, true)]);
        }
        assert_eq!(fixture.take_ops(1, FIN), [(5, 0)], "FIN: all pieces are complete");
        let (outcome, memory) = posted.finish().unwrap();
        assert_eq!((outcome.unwrap().bytes, memory == body(LEN)), (LEN, true));
        assert_eq!(registrations(&fixture.wire), 1);
        fixture.assert_others_communicate();
    }
}

#[test]
fn unexpected_rts_is_fetched_when_it_is_received() {
    let fixture = fixture();
    fixture.play([
        Step::Begin(1, rts(0, 5, 100), 20),
        Step::Bytes(1, vec![7; 15]),
        Step::Bytes(1, vec![8; 5]),
    ]);
    fixture.play([Step::Landed(1)]);
    let posted = fixture.post_bytes(1, 100);
    let [StartedOp { token, key, .. }] = &ops(&fixture)[..] else { panic!("one get") };
    assert_eq!(key[..], [vec![7; 15], vec![8; 5]].concat(), "a key that was streamed");
    fixture.play([Step::Completed(*token, true)]);
    assert_eq!(posted.finish().unwrap().1, body(100));
    // The device does not fetch messages without a key, or empty messages.
    for (len, key) in [(100, vec![]), (0, vec![1; 20])] {
        let posted = fixture.post_bytes(1, 100);
        fixture.play([Step::Frame(1, rts(0, 6, len), key)]);
        let [(6, mine)] = fixture.take_ops(1, CTS)[..] else { panic!("a CTS") };
        fixture.play([Step::Frame(1, reply(DATA, 0, mine, 0), vec![1; len as usize])]);
        assert_eq!(posted.finish().unwrap().0.unwrap().bytes, len as usize);
    }
    assert_eq!(fixture.death(), None);
}

#[test]
fn unknown_and_repeated_completions_have_no_effect() {
    let fixture = fixture();
    let (posted, ops) = start_gets(&fixture);
    let unknown_tokens = [0, 1, u64::MAX, 1 << 32 | 77, ops[0].token ^ 1 << 63];
    for token in unknown_tokens {
        fixture.play([Step::Completed(token, true), Step::Completed(token, false), Step::Quiesced(token)]);
    }
    // A `quiesced` for a get has no effect, and the token of the get stays valid.
    fixture.play(ops.iter().map(|it| Step::Quiesced(it.token)));
    for _ in 0..3 {
        fixture.play([Step::Completed(ops[0].token, true), Step::Completed(ops[1].token, true)]);
        assert!(!is_complete(&posted), "the third piece has not landed");
    }
    fixture.play([Step::Completed(ops[2].token, true)]);
    assert!(posted.finish().unwrap().1 == body(LEN));
    // New gets reuse the slots of those tokens. The old tokens must not complete the new gets.
    let (posted, again) = start_gets(&fixture);
    for it in &ops {
        fixture.play([Step::Completed(it.token, true), Step::Completed(it.token, false)]);
    }
    assert!(!is_complete(&posted));
    fixture.play(again.iter().map(|it| Step::Completed(it.token, true)));
    assert!(posted.finish().unwrap().1 == body(LEN));
    assert_eq!(fixture.death(), None);
}

#[test]
fn failed_get_is_refetched_when_no_piece_is_in_progress() {
    let fixture = fixture();
    let (posted, ops) = start_gets(&fixture);
    fixture.play([Step::Completed(ops[1].token, false), Step::Completed(ops[0].token, true)]);
    // The device still writes a piece. Data that the peer sends now must not be written to the same memory.
    fixture.play([Step::Frame(1, reply(DATA, 0, 1 << 32, 0), vec![7; 900])]);
    assert_eq!(fixture.take_ops(1, CTS), []);
    fixture.play([Step::Completed(ops[2].token, true)]);
    let [(5, mine)] = fixture.take_ops(1, CTS)[..] else { panic!("a CTS for operation 5") };
    for (i, part) in vec![4; LEN].chunks(FRAGMENT).enumerate() {
        fixture.play([Step::Frame(1, reply(DATA, 0, mine, (i * FRAGMENT) as u64), part.to_vec())]);
    }
    assert!(posted.finish().unwrap().1 == vec![4; LEN]);
    assert_eq!(fixture.death(), None);
}

#[test]
fn rejected_gets_are_retried() {
    let fixture = fixture();
    fixture.stop_endpoints(true);
    let posted = [fixture.post_bytes(1, LEN), fixture.post_bytes(1, LEN)];
    fixture.play((5..7).map(|op| Step::Frame(1, rts(0, op, LEN as u64), vec![1])));
    assert_eq!(ops(&fixture).len(), 0);
    fixture.stop_endpoints(false);
    fixture.play([]);
    fixture.play(ops(&fixture).iter().map(|it| Step::Completed(it.token, true)));
    posted.into_iter().for_each(|posted| assert!(posted.finish().unwrap().1 == body(LEN)));
    // A death fails operations that wait for space.
    fixture.stop_endpoints(true);
    let posted = fixture.post_bytes(1, LEN);
    fixture.play([Step::Frame(1, rts(0, 8, LEN as u64), vec![1]), Step::Lost(1)]);
    assert!(dead(posted.finish().unwrap().0.err().map(Err).as_ref()));
    fixture.engine.close();
}

/// A pass gets at most 16 pieces of long bodies from a peer, so that there is time for other work. A waiting thread
/// does not sleep between these passes.
#[test]
fn long_gets_post_a_few_pieces_per_pass() {
    const MANY: usize = 100;
    let fixture = Fixture::with(Gets::Now);
    fixture.play([Step::Frame(1, bind(0, WORLD, 1), vec![])]);
    let posted = [fixture.post_bytes(1, MANY * PIECE), fixture.post_bytes(1, PIECE + 1)];
    let sizes = [MANY * PIECE, PIECE + 1];
    let frame = |(op, len): (u64, usize)| Step::Frame(1, rts(0, op, len as u64), vec![1]);
    lock(&fixture.wire.steps).extend((5..).zip(sizes).map(frame));
    let pieces = || fixture.wire.pieces.load(Ordering::Relaxed);
    let mut passes = 0;
    while pieces() < MANY + 2 {
        let before = pieces();
        assert!(fixture.engine.progress() > 0, "a waiting thread would sleep");
        // In the first pass, each RTS also posts some pieces.
        let most = if passes == 0 { 3 * 16 } else { 16 };
        assert!((1..=most).contains(&(pieces() - before)), "{} pieces in pass {passes}", pieces() - before);
        passes += 1;
    }
    assert!(passes > 3);
    assert_eq!(fixture.take_ops(1, FIN), [(5, 0), (6, 0)]);
    for (posted, len) in posted.into_iter().zip(sizes) {
        assert!(posted.finish().expect("the receive completes with its last piece").1 == body(len));
    }
    fixture.engine.close();
}

#[test]
fn death_completes_a_receive_after_its_last_piece() {
    for succeeds in [true, false] {
        for dead_rank in [1, 3] {
            let fixture = fixture();
            let (posted, ops) = start_gets(&fixture);
            fixture.play([Step::Completed(ops[2].token, true)]);
            fixture.roster.report(dead_rank, Exit::Died("elsewhere".into()));
            fixture.play([Step::Completed(ops[0].token, succeeds)]);
            assert!(!is_complete(&posted), "the device still writes");
            fixture.play([Step::Completed(ops[1].token, succeeds)]);
            let outcome = posted.finish().unwrap().0;
            assert!(matches!(outcome, Err(Fault::Dead { rank, .. }) if rank == dead_rank), "{outcome:?}");
            assert_eq!(registrations(&fixture.wire), 1);
            fixture.engine.close();
        }
    }
}

/// If the device never completes an operation, the engine keeps its memory, but `close` returns.
#[test]
fn operations_that_never_complete_do_not_block_close() {
    let fixture = fixture();
    let (posted, _) = start_gets(&fixture);
    let zcopy = send(&fixture, LEN, Mode::Standard);
    let (op, _) = fixture.take_ops(1, RTS)[0];
    fixture.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![])]);
    let exposed = send(&fixture, LEN, Mode::Standard);
    fixture.play([Step::Lost(1)]);
    fixture.engine.close();
    for send in [&zcopy, &exposed] {
        assert!(send.outcome().is_none(), "a device or a peer might still access it");
    }
    assert!(!is_complete(&posted));
    let (wire, Fixture { engine, world, .. }) = (Arc::clone(&fixture.wire), fixture);
    drop(world);
    drop(engine);
    assert!(dead(posted.finish().unwrap().0.err().map(Err).as_ref()));
    assert!(zcopy.outcome().is_some_and(Result::is_err) && dead(exposed.outcome()));
    let dropped = lock(&wire.dropped).clone();
    let device = dropped.iter().position(|what| *what == "device").unwrap();
    assert!(dropped[..device].contains(&"inlet") && dropped[..device].contains(&"endpoint"), "{dropped:?}");
    // The registration of the first send ended with the CTS.
    assert_eq!(dropped[device..].iter().filter(|what| **what == "registration").count(), 3, "{dropped:?}");
}

#[test]
fn rts_carries_the_device_key() {
    let fixture = fixture();
    let send = send(&fixture, LEN, Mode::Standard);
    let sent = fixture.sent();
    let (_, head, key) = sent.iter().find(|sent| sent.1[0] == RTS).unwrap();
    assert_eq!(key[..], KEY);
    assert_eq!(registrations(&fixture.wire), 0);
    fixture.play([Step::Frame(1, reply(FIN, 0, word(head, 28), 0), vec![])]);
    assert!(send.outcome().is_some_and(Result::is_ok));
    assert_eq!(registrations(&fixture.wire), 1);
    assert_eq!(lock(&fixture.wire.quiescing)[..], [], "the peer has sent FIN");
}

#[test]
fn cancelled_send_completes_when_its_memory_is_quiesced() {
    let fixture = fixture();
    let (send, token) = start_quiesce(&fixture, |send| assert!(fixture.engine.cancel(&fixture.world, send)));
    assert!(!fixture.engine.cancel(&fixture.world, &send), "once");
    fixture.play([Step::Completed(token, true), Step::Quiesced(token ^ 1 << 40)]);
    assert!(send.outcome().is_none(), "those tokens are not the quiesce");
    // A FIN for a message that is being quiesced has no effect.
    let (op, _) = fixture.take_ops(1, RTS)[0];
    fixture.play([Step::Frame(1, reply(FIN, 0, op, 0), vec![])]);
    assert!(send.outcome().is_none());
    assert_eq!(registrations(&fixture.wire), 0);
    fixture.play([Step::Quiesced(token), Step::Quiesced(token)]);
    assert_eq!(send.outcome(), Some(&Err(Fault::Cancelled)));
    assert_eq!(registrations(&fixture.wire), 1);
    assert_eq!(fixture.death(), None);
    fixture.engine.close();
}

#[test]
fn death_completes_a_rendezvous_send_when_its_memory_is_quiesced() {
    let fixture = fixture();
    let (send, token) = start_quiesce(&fixture, |_| fixture.play([Step::Lost(1)]));
    fixture.play([Step::Quiesced(token)]);
    assert!(dead(send.outcome()));
    fixture.engine.close();
}

#[test]
fn zcopy_send_completes_after_its_last_piece() {
    for failing in [None, Some(0), Some(1)] {
        let fixture = fixture();
        let send = send(&fixture, LEN, Mode::Standard);
        let (op, _) = fixture.take_ops(1, RTS)[0];
        fixture.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![])]);
        let data: Vec<u8> =
            fixture.sent().into_iter().filter(|sent| sent.1[0] == DATA).flat_map(|s| s.2).collect();
        assert!(data == vec![3; LEN]);
        let ops = ops(&fixture);
        assert_eq!(ops.iter().map(|it| it.len).sum::<usize>(), LEN);
        for (at, it) in ops.iter().enumerate().rev() {
            assert!(send.outcome().is_none(), "piece {at} is in progress");
            fixture.play([Step::Completed(it.token, failing != Some(at)), Step::Completed(it.token, true)]);
        }
        let outcome = send.outcome().expect("all pieces have ended");
        match failing {
            None => assert!(outcome.is_ok()),
            Some(_) => assert!(matches!(outcome, Err(Fault::Unreachable { rank: 1, .. })), "{outcome:?}"),
        }
        fixture.engine.close();
    }
}

#[test]
fn peer_whose_endpoint_rejects_a_queued_frame_is_reported() {
    let fixture = fixture();
    fixture.stop_endpoints(true);
    let Ok(Started::Pending(send)) = fixture.send(1, vec![1; 10], Mode::Standard) else {
        panic!("not queued")
    };
    fixture.play([]);
    fixture.wire.rejects_frames.store(true, Ordering::Relaxed);
    fixture.stop_endpoints(false);
    fixture.play([]);
    assert_eq!(fixture.death(), Some(1));
    assert!(send.outcome().is_some_and(Result::is_err));
}

#[test]
fn pieces_that_the_device_cannot_send_in_place_are_copied() {
    let fixture = fixture();
    let send = send(&fixture, LEN, Mode::Standard);
    let (op, _) = fixture.take_ops(1, RTS)[0];
    fixture.wire.rejects_zcopy.store(true, Ordering::Relaxed);
    fixture.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![])]);
    assert!(send.outcome().is_some_and(Result::is_ok) && ops(&fixture).is_empty());
    let data: Vec<u8> =
        fixture.sent().into_iter().filter(|sent| sent.1[0] == DATA).flat_map(|s| s.2).collect();
    assert!(data == vec![3; LEN]);
    fixture.engine.close();
}

#[test]
fn send_fails_with_all_others_while_its_body_is_requested() {
    let fixture = fixture();
    let send = send(&fixture, LEN, Mode::Standard);
    let (op, _) = fixture.take_ops(1, RTS)[0];
    *lock(&fixture.wire.fails_all) = Arc::downgrade(&fixture.engine);
    fixture.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![])]);
    let outcome = send.outcome();
    assert!(matches!(outcome, Some(Err(Fault::Dead { rank: 0, .. }))), "{outcome:?}");
    assert!(ops(&fixture).is_empty(), "no piece is sent");
}

#[test]
fn death_completes_a_zcopy_send_after_its_last_piece() {
    let fixture = fixture();
    let send = send(&fixture, LEN, Mode::Standard);
    let (op, _) = fixture.take_ops(1, RTS)[0];
    fixture.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![]), Step::Lost(1)]);
    let ops = ops(&fixture);
    for it in &ops {
        assert!(send.outcome().is_none());
        fixture.play([Step::Completed(it.token, false)]);
    }
    assert!(send.outcome().is_some_and(Result::is_err));
    fixture.engine.close();
}

#[test]
fn eager_messages_are_not_sent_zero_copy() {
    let fixture = fixture();
    assert!(matches!(fixture.send(1, vec![1; EAGER_LIMIT], Mode::Standard), Ok(Started::Done(_))));
    assert_eq!(ops(&fixture).len(), 0);
}

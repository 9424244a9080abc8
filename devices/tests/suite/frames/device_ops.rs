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
fn bench() -> Fixture {
    let bench = Fixture::with(Gets::Start);
    bench.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    bench
}

fn ops(bench: &Fixture) -> Vec<StartedOp> {
    lock(&bench.wire.ops).clone()
}

fn registrations(wire: &Wire) -> usize {
    lock(&wire.dropped).iter().filter(|what| **what == "registration").count()
}

fn body(len: usize) -> Vec<u8> {
    (0..len).map(fetched).collect()
}

/// Starts a receive of an RTS of `LEN` bytes. Returns it and the pending gets into its memory.
fn start_gets(bench: &Fixture) -> (Posted, Vec<StartedOp>) {
    let posted = bench.post_bytes(1, LEN);
    bench.play([Step::Frame(1, rts(0, 5, LEN as u64), vec![1, 2, 3])]);
    let ops = ops(bench);
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

fn send(bench: &Fixture, len: usize, mode: Mode) -> Completion {
    match bench.send(1, vec![3; len], mode).unwrap() {
        Started::Pending(completion) => completion,
        Started::Done(_) => panic!("it has ended already"),
    }
}

/// Sends an RTS and calls `then`, which ends the send. Returns the send, and the token of the quiesce of its memory.
fn start_quiesce(bench: &Fixture, then: impl FnOnce(&Completion)) -> (Completion, u64) {
    let send = send(bench, LEN, Mode::Standard);
    then(&send);
    let [token] = lock(&bench.wire.quiescing)[..] else { panic!("one quiesce") };
    assert!(send.outcome().is_none(), "the peer might still read");
    (send, token)
}

fn dead(outcome: Option<&Result<mpj_devices::Envelope, Fault>>) -> bool {
    matches!(outcome, Some(Err(Fault::Dead { rank: 1, .. })))
}

#[test]
fn pieces_complete_in_any_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let bench = bench();
        let (posted, ops) = start_gets(&bench);
        for (nth, at) in order.into_iter().enumerate() {
            assert!(!is_complete(&posted), "{nth} pieces have landed");
            assert_eq!(bench.take_ops(1, FIN), []);
            bench.play([Step::Completed(ops[at].token, true)]);
        }
        assert_eq!(bench.take_ops(1, FIN), [(5, 0)], "FIN: all pieces are complete");
        let (outcome, memory) = posted.finish().unwrap();
        assert_eq!((outcome.unwrap().bytes, memory == body(LEN)), (LEN, true));
        assert_eq!(registrations(&bench.wire), 1);
        bench.assert_others_communicate();
    }
}

#[test]
fn unexpected_rts_is_fetched_when_it_is_received() {
    let bench = bench();
    bench.play([Step::Begin(1, rts(0, 5, 100), 20), Step::Bytes(1, vec![7; 15]), Step::Bytes(1, vec![8; 5])]);
    bench.play([Step::Landed(1)]);
    let posted = bench.post_bytes(1, 100);
    let [StartedOp { token, key, .. }] = &ops(&bench)[..] else { panic!("one get") };
    assert_eq!(key[..], [vec![7; 15], vec![8; 5]].concat(), "a key that was streamed");
    bench.play([Step::Completed(*token, true)]);
    assert_eq!(posted.finish().unwrap().1, body(100));
    // The device does not fetch messages without a key, or empty messages.
    for (len, key) in [(100, vec![]), (0, vec![1; 20])] {
        let posted = bench.post_bytes(1, 100);
        bench.play([Step::Frame(1, rts(0, 6, len), key)]);
        let [(6, mine)] = bench.take_ops(1, CTS)[..] else { panic!("a CTS") };
        bench.play([Step::Frame(1, reply(DATA, 0, mine, 0), vec![1; len as usize])]);
        assert_eq!(posted.finish().unwrap().0.unwrap().bytes, len as usize);
    }
    assert_eq!(bench.death(), None);
}

#[test]
fn unknown_and_repeated_completions_have_no_effect() {
    let bench = bench();
    let (posted, ops) = start_gets(&bench);
    let unknown_tokens = [0, 1, u64::MAX, 1 << 32 | 77, ops[0].token ^ 1 << 63];
    for token in unknown_tokens {
        bench.play([Step::Completed(token, true), Step::Completed(token, false), Step::Quiesced(token)]);
    }
    // A `quiesced` for a get has no effect, and the token of the get stays valid.
    bench.play(ops.iter().map(|it| Step::Quiesced(it.token)));
    for _ in 0..3 {
        bench.play([Step::Completed(ops[0].token, true), Step::Completed(ops[1].token, true)]);
        assert!(!is_complete(&posted), "the third piece has not landed");
    }
    bench.play([Step::Completed(ops[2].token, true)]);
    assert!(posted.finish().unwrap().1 == body(LEN));
    // New gets reuse the slots of those tokens. The old tokens must not complete the new gets.
    let (posted, again) = start_gets(&bench);
    for it in &ops {
        bench.play([Step::Completed(it.token, true), Step::Completed(it.token, false)]);
    }
    assert!(!is_complete(&posted));
    bench.play(again.iter().map(|it| Step::Completed(it.token, true)));
    assert!(posted.finish().unwrap().1 == body(LEN));
    assert_eq!(bench.death(), None);
}

#[test]
fn failed_get_is_refetched_when_no_piece_is_in_progress() {
    let bench = bench();
    let (posted, ops) = start_gets(&bench);
    bench.play([Step::Completed(ops[1].token, false), Step::Completed(ops[0].token, true)]);
    // The device still writes a piece. Data that the peer sends now must not be written to the same memory.
    bench.play([Step::Frame(1, reply(DATA, 0, 1 << 32, 0), vec![7; 900])]);
    assert_eq!(bench.take_ops(1, CTS), []);
    bench.play([Step::Completed(ops[2].token, true)]);
    let [(5, mine)] = bench.take_ops(1, CTS)[..] else { panic!("a CTS for operation 5") };
    for (i, part) in vec![4; LEN].chunks(FRAGMENT).enumerate() {
        bench.play([Step::Frame(1, reply(DATA, 0, mine, (i * FRAGMENT) as u64), part.to_vec())]);
    }
    assert!(posted.finish().unwrap().1 == vec![4; LEN]);
    assert_eq!(bench.death(), None);
}

#[test]
fn rejected_gets_are_retried() {
    let bench = bench();
    bench.stop_endpoints(true);
    let posted = [bench.post_bytes(1, LEN), bench.post_bytes(1, LEN)];
    bench.play((5..7).map(|op| Step::Frame(1, rts(0, op, LEN as u64), vec![1])));
    assert_eq!(ops(&bench).len(), 0);
    bench.stop_endpoints(false);
    bench.play([]);
    bench.play(ops(&bench).iter().map(|it| Step::Completed(it.token, true)));
    posted.into_iter().for_each(|posted| assert!(posted.finish().unwrap().1 == body(LEN)));
    // A death fails operations that wait for space.
    bench.stop_endpoints(true);
    let posted = bench.post_bytes(1, LEN);
    bench.play([Step::Frame(1, rts(0, 8, LEN as u64), vec![1]), Step::Lost(1)]);
    assert!(dead(posted.finish().unwrap().0.err().map(Err).as_ref()));
    bench.engine.close();
}

/// A pass gets at most 16 pieces of long bodies from a peer, so that there is time for other work. A waiting thread
/// does not sleep between these passes.
#[test]
fn long_gets_post_a_few_pieces_per_pass() {
    const MANY: usize = 100;
    let bench = Fixture::with(Gets::Now);
    bench.play([Step::Frame(1, bind(0, WORLD, 1), vec![])]);
    let posted = [bench.post_bytes(1, MANY * PIECE), bench.post_bytes(1, PIECE + 1)];
    let sizes = [MANY * PIECE, PIECE + 1];
    let frame = |(op, len): (u64, usize)| Step::Frame(1, rts(0, op, len as u64), vec![1]);
    lock(&bench.wire.steps).extend((5..).zip(sizes).map(frame));
    let pieces = || bench.wire.pieces.load(Ordering::Relaxed);
    let mut passes = 0;
    while pieces() < MANY + 2 {
        let before = pieces();
        assert!(bench.engine.progress() > 0, "a waiting thread would sleep");
        // In the first pass, each RTS also posts some pieces.
        let most = if passes == 0 { 3 * 16 } else { 16 };
        assert!((1..=most).contains(&(pieces() - before)), "{} pieces in pass {passes}", pieces() - before);
        passes += 1;
    }
    assert!(passes > 3);
    assert_eq!(bench.take_ops(1, FIN), [(5, 0), (6, 0)]);
    for (posted, len) in posted.into_iter().zip(sizes) {
        assert!(posted.finish().expect("the receive completes with its last piece").1 == body(len));
    }
    bench.engine.close();
}

#[test]
fn death_completes_a_receive_after_its_last_piece() {
    for succeeds in [true, false] {
        for dead_rank in [1, 3] {
            let bench = bench();
            let (posted, ops) = start_gets(&bench);
            bench.play([Step::Completed(ops[2].token, true)]);
            bench.roster.report(dead_rank, Exit::Died("elsewhere".into()));
            bench.play([Step::Completed(ops[0].token, succeeds)]);
            assert!(!is_complete(&posted), "the device still writes");
            bench.play([Step::Completed(ops[1].token, succeeds)]);
            let outcome = posted.finish().unwrap().0;
            assert!(matches!(outcome, Err(Fault::Dead { rank, .. }) if rank == dead_rank), "{outcome:?}");
            assert_eq!(registrations(&bench.wire), 1);
            bench.engine.close();
        }
    }
}

/// If the device never completes an operation, the engine keeps its memory, but `close` returns.
#[test]
fn operations_that_never_complete_do_not_block_close() {
    let bench = bench();
    let (posted, _) = start_gets(&bench);
    let zcopy = send(&bench, LEN, Mode::Standard);
    let (op, _) = bench.take_ops(1, RTS)[0];
    bench.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![])]);
    let exposed = send(&bench, LEN, Mode::Standard);
    bench.play([Step::Lost(1)]);
    bench.engine.close();
    for send in [&zcopy, &exposed] {
        assert!(send.outcome().is_none(), "a device or a peer might still access it");
    }
    assert!(!is_complete(&posted));
    let (wire, Fixture { engine, world, .. }) = (Arc::clone(&bench.wire), bench);
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
    let bench = bench();
    let send = send(&bench, LEN, Mode::Standard);
    let sent = bench.sent();
    let (_, head, key) = sent.iter().find(|sent| sent.1[0] == RTS).unwrap();
    assert_eq!(key[..], KEY);
    assert_eq!(registrations(&bench.wire), 0);
    bench.play([Step::Frame(1, reply(FIN, 0, word(head, 28), 0), vec![])]);
    assert!(send.outcome().is_some_and(Result::is_ok));
    assert_eq!(registrations(&bench.wire), 1);
    assert_eq!(lock(&bench.wire.quiescing)[..], [], "the peer has sent FIN");
}

#[test]
fn cancelled_send_completes_when_its_memory_is_quiesced() {
    let bench = bench();
    let (send, token) = start_quiesce(&bench, |send| assert!(bench.engine.cancel(&bench.world, send)));
    assert!(!bench.engine.cancel(&bench.world, &send), "once");
    bench.play([Step::Completed(token, true), Step::Quiesced(token ^ 1 << 40)]);
    assert!(send.outcome().is_none(), "those tokens are not the quiesce");
    // A FIN for a message that is being quiesced has no effect.
    let (op, _) = bench.take_ops(1, RTS)[0];
    bench.play([Step::Frame(1, reply(FIN, 0, op, 0), vec![])]);
    assert!(send.outcome().is_none());
    assert_eq!(registrations(&bench.wire), 0);
    bench.play([Step::Quiesced(token), Step::Quiesced(token)]);
    assert_eq!(send.outcome(), Some(&Err(Fault::Cancelled)));
    assert_eq!(registrations(&bench.wire), 1);
    assert_eq!(bench.death(), None);
    bench.engine.close();
}

#[test]
fn death_completes_a_rendezvous_send_when_its_memory_is_quiesced() {
    let bench = bench();
    let (send, token) = start_quiesce(&bench, |_| bench.play([Step::Lost(1)]));
    bench.play([Step::Quiesced(token)]);
    assert!(dead(send.outcome()));
    bench.engine.close();
}

#[test]
fn zcopy_send_completes_after_its_last_piece() {
    for failing in [None, Some(0), Some(1)] {
        let bench = bench();
        let send = send(&bench, LEN, Mode::Standard);
        let (op, _) = bench.take_ops(1, RTS)[0];
        bench.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![])]);
        let data: Vec<u8> =
            bench.sent().into_iter().filter(|sent| sent.1[0] == DATA).flat_map(|s| s.2).collect();
        assert!(data == vec![3; LEN]);
        let ops = ops(&bench);
        assert_eq!(ops.iter().map(|it| it.len).sum::<usize>(), LEN);
        for (at, it) in ops.iter().enumerate().rev() {
            assert!(send.outcome().is_none(), "piece {at} is in progress");
            bench.play([Step::Completed(it.token, failing != Some(at)), Step::Completed(it.token, true)]);
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
fn peer_whose_endpoint_rejects_a_queued_frame_is_reported() {
    let bench = bench();
    bench.stop_endpoints(true);
    let Ok(Started::Pending(send)) = bench.send(1, vec![1; 10], Mode::Standard) else { panic!("not queued") };
    bench.play([]);
    bench.wire.rejects_frames.store(true, Ordering::Relaxed);
    bench.stop_endpoints(false);
    bench.play([]);
    assert_eq!(bench.death(), Some(1));
    assert!(send.outcome().is_some_and(Result::is_err));
}

#[test]
fn pieces_that_the_device_cannot_send_in_place_are_copied() {
    let bench = bench();
    let send = send(&bench, LEN, Mode::Standard);
    let (op, _) = bench.take_ops(1, RTS)[0];
    bench.wire.rejects_zcopy.store(true, Ordering::Relaxed);
    bench.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![])]);
    assert!(send.outcome().is_some_and(Result::is_ok) && ops(&bench).is_empty());
    let data: Vec<u8> = bench.sent().into_iter().filter(|sent| sent.1[0] == DATA).flat_map(|s| s.2).collect();
    assert!(data == vec![3; LEN]);
    bench.engine.close();
}

#[test]
fn send_fails_with_all_others_while_its_body_is_requested() {
    let bench = bench();
    let send = send(&bench, LEN, Mode::Standard);
    let (op, _) = bench.take_ops(1, RTS)[0];
    *lock(&bench.wire.fails_all) = Arc::downgrade(&bench.engine);
    bench.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![])]);
    let outcome = send.outcome();
    assert!(matches!(outcome, Some(Err(Fault::Dead { rank: 0, .. }))), "{outcome:?}");
    assert!(ops(&bench).is_empty(), "no piece is sent");
}

#[test]
fn death_completes_a_zcopy_send_after_its_last_piece() {
    let bench = bench();
    let send = send(&bench, LEN, Mode::Standard);
    let (op, _) = bench.take_ops(1, RTS)[0];
    bench.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![]), Step::Lost(1)]);
    let ops = ops(&bench);
    for it in &ops {
        assert!(send.outcome().is_none());
        bench.play([Step::Completed(it.token, false)]);
    }
    assert!(send.outcome().is_some_and(Result::is_err));
    bench.engine.close();
}

#[test]
fn eager_messages_are_not_sent_zero_copy() {
    let bench = bench();
    assert!(matches!(bench.send(1, vec![1; EAGER_LIMIT], Mode::Standard), Ok(Started::Done(_))));
    assert_eq!(ops(&bench).len(), 0);
}

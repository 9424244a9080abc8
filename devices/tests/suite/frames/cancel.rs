//! Cancelled operations: unmatched operations complete at once, matched operations cannot be cancelled, and a peer that
//! requests a cancelled body gets a NACK.

use mpj_devices::{ANY_SOURCE, Completion, Exit, Fault, Mode, Pattern, Started};

use super::device::{EAGER_LIMIT, Step};
use super::fixture::{Fixture, WORLD};
use super::head_encoding::*;

fn bench() -> Fixture {
    let bench = Fixture::new();
    bench.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    bench
}

fn pending(started: Started) -> Completion {
    match started {
        Started::Pending(completion) => completion,
        Started::Done(_) => panic!("it is complete already"),
    }
}

fn cancel(bench: &Fixture, completion: &Completion) -> bool {
    bench.engine.cancel(&bench.world, completion)
}

const CANCELLED: Option<&Result<mpj_devices::Envelope, Fault>> = Some(&Err(Fault::Cancelled));

#[test]
fn posted_receive_can_be_cancelled_and_a_matched_one_cannot() {
    let bench = bench();
    let posted = bench.post_bytes(1, 100);
    assert!(cancel(&bench, posted.completion().unwrap()));
    assert_eq!(posted.finish().unwrap().0, Err(Fault::Cancelled));
    let matched = bench.post_bytes(1, 30_000);
    bench.play([Step::Frame(1, rts(0, 5, 30_000), vec![])]);
    assert!(!cancel(&bench, matched.completion().unwrap()));
    assert!(matched.completion().unwrap().outcome().is_none());
}

#[test]
fn cts_for_a_cancelled_body_is_answered_by_a_nack() {
    let bench = bench();
    let send = pending(bench.send(1, vec![1; 50_000], Mode::Standard).unwrap());
    let (op, _) = bench.take_ops(1, RTS)[0];
    assert!(cancel(&bench, &send));
    assert_eq!(send.outcome(), CANCELLED);
    assert!(!cancel(&bench, &send), "it is complete");
    bench.play([Step::Frame(1, reply(CTS, 0, op, 99), vec![])]);
    assert_eq!(bench.take_ops(1, NACK), [(99, 0)]);
    bench.play([Step::Frame(1, reply(FIN, 0, op, 0), vec![])]);
    assert_eq!(bench.death(), None);
    bench.engine.close();
}

#[test]
fn requested_body_cannot_be_cancelled() {
    let bench = bench();
    let send = pending(bench.send(1, vec![1; 50_000], Mode::Standard).unwrap());
    let (op, _) = bench.take_ops(1, RTS)[0];
    bench.stop_endpoints(true);
    bench.play([Step::Frame(1, reply(CTS, 0, op, 99), vec![])]);
    assert!(!cancel(&bench, &send));
    bench.stop_endpoints(false);
    bench.play([]);
    assert!(send.outcome().is_some_and(Result::is_ok));
    let sent: usize = bench.sent().iter().filter(|s| s.1[0] == DATA).map(|s| s.2.len()).sum();
    assert_eq!(sent, 50_000);
}

#[test]
fn sent_synchronous_message_can_be_cancelled() {
    let bench = bench();
    let send = pending(bench.send(1, vec![1; 100], Mode::Synchronous).unwrap());
    let (op, _) = bench.take_ops(1, EAGER_SYNC)[0];
    assert!(cancel(&bench, &send));
    assert_eq!(send.outcome(), CANCELLED);
    bench.play([Step::Frame(1, reply(FIN, 0, op, 0), vec![])]);
    assert_eq!(bench.death(), None);
}

#[test]
fn cancelled_queued_frames_are_not_sent_and_return_their_credit() {
    let bench = bench();
    for mode in [Mode::Standard, Mode::Synchronous] {
        bench.stop_endpoints(true);
        // More messages than the credit allows: each cancel must return the credit of its message.
        for _ in 0..3000 {
            let send = pending(bench.send(1, vec![1; EAGER_LIMIT], mode).unwrap());
            assert!(cancel(&bench, &send));
            assert_eq!(send.outcome(), CANCELLED);
        }
        let announced = pending(bench.send(1, vec![1; 50_000], mode).unwrap());
        assert!(cancel(&bench, &announced));
        bench.stop_endpoints(false);
        bench.play([]);
        assert!(bench.sent().iter().all(|(_, head, _)| head[0] == BIND));
        bench.send(1, vec![1; EAGER_LIMIT], mode).unwrap();
        let kind = bench.sent()[0].1[0];
        assert!(kind == EAGER || kind == EAGER_SYNC, "expected an eager message, found kind {kind}");
    }
    // Cancelled frames leave the queue, and the others keep their order.
    bench.stop_endpoints(true);
    let sends: Vec<_> = (0..9).map(|i| bench.send(1, vec![i; 10], Mode::Standard).unwrap()).collect();
    let sends: Vec<_> = sends.into_iter().map(pending).collect();
    assert!(sends.iter().step_by(2).all(|send| cancel(&bench, send)));
    bench.stop_endpoints(false);
    bench.play([]);
    let bodies: Vec<u8> = bench.sent().iter().map(|(_, _, body)| body[0]).collect();
    assert_eq!(bodies, [1, 3, 5, 7]);
    assert!(sends.iter().all(|send| send.outcome().is_some()));
}

#[test]
fn cancelled_message_to_self_is_not_received() {
    let bench = bench();
    let send = pending(bench.send(0, vec![1; 100], Mode::Synchronous).unwrap());
    assert!(cancel(&bench, &send));
    assert_eq!(send.outcome(), CANCELLED);
    let any = Pattern { source: ANY_SOURCE, tag: 1 };
    assert_eq!(bench.engine.iprobe(&bench.world, any), Ok(None));
}

#[test]
fn receive_of_a_cancelled_body_reports_the_cause() {
    for (exit, fault) in [
        (None, Fault::SendCancelled { rank: 1 }),
        (Some(Exit::Closing), Fault::Left { rank: Some(1) }),
        (Some(Exit::Left), Fault::Left { rank: Some(1) }),
    ] {
        let bench = bench();
        let posted = bench.post_bytes(1, 30_000);
        bench.play([Step::Frame(1, rts(0, 5, 30_000), vec![])]);
        let (5, mine) = bench.take_ops(1, CTS)[0] else { panic!("expected a CTS for operation 5") };
        exit.into_iter().for_each(|exit| bench.roster.report(1, exit));
        bench.play([Step::Frame(1, nack(WORLD, mine), vec![])]);
        assert_eq!(posted.finish().unwrap().0, Err(fault));
    }
}

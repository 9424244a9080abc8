//! Cancelled operations: unmatched operations complete at once, matched operations cannot be cancelled, and a peer that
//! requests a cancelled body gets a NACK.

use mpj_devices::{ANY_SOURCE, Completion, Exit, Fault, Mode, Pattern, Started};

use super::device::{EAGER_LIMIT, Step};
use super::fixture::{Fixture, WORLD};
use super::head_encoding::*;

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    fixture
}

fn pending(started: Started) -> Completion {
    match started {
        Started::Pending(completion) => completion,
        Started::Done(_) => panic!("it is complete already"),
    }
}

fn cancel(fixture: &Fixture, completion: &Completion) -> bool {
    fixture.engine.cancel(&fixture.world, completion)
}

const CANCELLED: Option<&Result<mpj_devices::Envelope, Fault>> = Some(&Err(Fault::Cancelled));

#[test]
fn posted_receive_can_be_cancelled_and_a_matched_one_cannot() {
    let fixture = fixture();
    let posted = fixture.post_bytes(1, 100);
    assert!(cancel(&fixture, posted.completion().unwrap()));
    assert_eq!(posted.finish().unwrap().0, Err(Fault::Cancelled));
    let matched = fixture.post_bytes(1, 30_000);
    fixture.play([Step::Frame(1, rts(0, 5, 30_000), vec![])]);
    assert!(!cancel(&fixture, matched.completion().unwrap()));
    assert!(matched.completion().unwrap().outcome().is_none());
}

#[test]
fn cts_for_a_cancelled_body_is_answered_by_a_nack() {
    let fixture = fixture();
    let send = pending(fixture.send(1, vec![1; 50_000], Mode::Standard).unwrap());
    let (op, _) = fixture.take_ops(1, RTS)[0];
    assert!(cancel(&fixture, &send));
    assert_eq!(send.outcome(), CANCELLED);
    assert!(!cancel(&fixture, &send), "it is complete");
    fixture.play([Step::Frame(1, reply(CTS, 0, op, 99), vec![])]);
    assert_eq!(fixture.take_ops(1, NACK), [(99, 0)]);
    fixture.play([Step::Frame(1, reply(FIN, 0, op, 0), vec![])]);
    assert_eq!(fixture.death(), None);
    fixture.engine.close();
}

#[test]
fn requested_body_cannot_be_cancelled() {
    let fixture = fixture();
    let send = pending(fixture.send(1, vec![1; 50_000], Mode::Standard).unwrap());
    let (op, _) = fixture.take_ops(1, RTS)[0];
    fixture.stop_endpoints(true);
    fixture.play([Step::Frame(1, reply(CTS, 0, op, 99), vec![])]);
    assert!(!cancel(&fixture, &send));
    fixture.stop_endpoints(false);
    fixture.play([]);
    assert!(send.outcome().is_some_and(Result::is_ok));
    let sent: usize = fixture.sent().iter().filter(|s| s.1[0] == DATA).map(|s| s.2.len()).sum();
    assert_eq!(sent, 50_000);
}

#[test]
fn sent_synchronous_message_can_be_cancelled() {
    let fixture = fixture();
    let send = pending(fixture.send(1, vec![1; 100], Mode::Synchronous).unwrap());
    let (op, _) = fixture.take_ops(1, EAGER_SYNC)[0];
    assert!(cancel(&fixture, &send));
    assert_eq!(send.outcome(), CANCELLED);
    fixture.play([Step::Frame(1, reply(FIN, 0, op, 0), vec![])]);
    assert_eq!(fixture.death(), None);
}

#[test]
fn cancelled_queued_frames_are_not_sent_and_return_their_credit() {
    let fixture = fixture();
    for mode in [Mode::Standard, Mode::Synchronous] {
        fixture.stop_endpoints(true);
        // More messages than the credit allows: each cancel must return the credit of its message.
        for _ in 0..3000 {
            let send = pending(fixture.send(1, vec![1; EAGER_LIMIT], mode).unwrap());
            assert!(cancel(&fixture, &send));
            assert_eq!(send.outcome(), CANCELLED);
        }
        let announced = pending(fixture.send(1, vec![1; 50_000], mode).unwrap());
        assert!(cancel(&fixture, &announced));
        fixture.stop_endpoints(false);
        fixture.play([]);
        assert!(fixture.sent().iter().all(|(_, head, _)| head[0] == BIND));
        fixture.send(1, vec![1; EAGER_LIMIT], mode).unwrap();
        let kind = fixture.sent()[0].1[0];
        assert!(kind == EAGER || kind == EAGER_SYNC, "expected an eager message, found kind {kind}");
    }
    // Cancelled frames leave the queue, and the others keep their order.
    fixture.stop_endpoints(true);
    let sends: Vec<_> = (0..9).map(|i| fixture.send(1, vec![i; 10], Mode::Standard).unwrap()).collect();
    let sends: Vec<_> = sends.into_iter().map(pending).collect();
    assert!(sends.iter().step_by(2).all(|send| cancel(&fixture, send)));
    fixture.stop_endpoints(false);
    fixture.play([]);
    let bodies: Vec<u8> = fixture.sent().iter().map(|(_, _, body)| body[0]).collect();
    assert_eq!(bodies, [1, 3, 5, 7]);
    assert!(sends.iter().all(|send| send.outcome().is_some()));
}

#[test]
fn cancelled_message_to_self_is_not_received() {
    let fixture = fixture();
    let send = pending(fixture.send(0, vec![1; 100], Mode::Synchronous).unwrap());
    assert!(cancel(&fixture, &send));
    assert_eq!(send.outcome(), CANCELLED);
    let any = Pattern { source: ANY_SOURCE, tag: 1 };
    assert_eq!(fixture.engine.iprobe(&fixture.world, any), Ok(None));
}

#[test]
fn receive_of_a_cancelled_body_reports_the_cause() {
    for (exit, fault) in [
        (None, Fault::SendCancelled { rank: 1 }),
        (Some(Exit::Closing), Fault::Left { rank: Some(1) }),
        (Some(Exit::Left), Fault::Left { rank: Some(1) }),
    ] {
        let fixture = fixture();
        let posted = fixture.post_bytes(1, 30_000);
        fixture.play([Step::Frame(1, rts(0, 5, 30_000), vec![])]);
        let (5, mine) = fixture.take_ops(1, CTS)[0] else { panic!("expected a CTS for operation 5") };
        exit.into_iter().for_each(|exit| fixture.roster.report(1, exit));
        fixture.play([Step::Frame(1, nack(WORLD, mine), vec![])]);
        assert_eq!(posted.finish().unwrap().0, Err(fault));
    }
}

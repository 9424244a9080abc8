//! Operations that are cancelled: unmatched operations complete at once, matched ones run to completion, and each
//! peer learns the true outcome.

use mpj_devices::{ANY_SOURCE, Completion, Exit, Fault, Mode, Pattern, Started};

use super::bench::{Bench, WORLD};
use super::device::{EAGER, Step};
use super::head::*;

fn bench() -> Bench {
    let bench = Bench::new();
    bench.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    bench
}

fn pending(started: Started) -> Completion {
    match started {
        Started::Pending(completion) => completion,
        Started::Done(_) => panic!("it has ended already"),
    }
}

fn withdraw(bench: &Bench, completion: &Completion) -> bool {
    bench.engine.cancel(&bench.world, completion)
}

const CANCELLED: Option<&Result<mpj_devices::Envelope, Fault>> = Some(&Err(Fault::Cancelled));

#[test]
fn a_posted_receive_is_taken_back_and_one_that_has_matched_is_not() {
    let bench = bench();
    let posted = bench.post_bytes(1, 100);
    assert!(withdraw(&bench, posted.completion().unwrap()));
    assert_eq!(posted.finish().unwrap().0, Err(Fault::Cancelled));
    let matched = bench.post_bytes(1, 30_000);
    bench.play([Step::Frame(1, ready(0, 5, 30_000), vec![])]);
    assert!(!withdraw(&bench, matched.completion().unwrap()));
    assert!(matched.completion().unwrap().outcome().is_none());
}

#[test]
fn a_receiver_that_asks_for_a_withdrawn_body_is_told_so() {
    let bench = bench();
    let send = pending(bench.send(1, vec![1; 50_000], Mode::Standard).unwrap());
    let (op, _) = bench.ops(1, READY)[0];
    assert!(withdraw(&bench, &send));
    assert_eq!(send.outcome(), CANCELLED);
    assert!(!withdraw(&bench, &send), "it has ended");
    bench.play([Step::Frame(1, answer(CLEAR, 0, op, 99), vec![])]);
    assert_eq!(bench.ops(1, GONE), [(99, 0)]);
    bench.play([Step::Frame(1, answer(DONE, 0, op, 0), vec![])]);
    assert_eq!(bench.death(), None);
    bench.engine.close();
}

#[test]
fn a_body_that_was_asked_for_goes_on() {
    let bench = bench();
    let send = pending(bench.send(1, vec![1; 50_000], Mode::Standard).unwrap());
    let (op, _) = bench.ops(1, READY)[0];
    bench.stop_links(true);
    bench.play([Step::Frame(1, answer(CLEAR, 0, op, 99), vec![])]);
    assert!(!withdraw(&bench, &send));
    bench.stop_links(false);
    bench.play([]);
    assert!(send.outcome().is_some_and(Result::is_ok));
    let sent: usize = bench.sent().iter().filter(|s| s.1[0] == DATA).map(|s| s.2.len()).sum();
    assert_eq!(sent, 50_000);
}

#[test]
fn a_synchronous_message_that_has_gone_is_waited_for_no_more() {
    let bench = bench();
    let send = pending(bench.send(1, vec![1; 100], Mode::Synchronous).unwrap());
    let (op, _) = bench.ops(1, EAGER_SYNC)[0];
    assert!(withdraw(&bench, &send));
    assert_eq!(send.outcome(), CANCELLED);
    bench.play([Step::Frame(1, answer(DONE, 0, op, 0), vec![])]);
    assert_eq!(bench.death(), None);
}

#[test]
fn what_waits_for_room_never_goes_and_takes_no_credit() {
    let bench = bench();
    for mode in [Mode::Standard, Mode::Synchronous] {
        bench.stop_links(true);
        // More messages than the credit allows in all: each cancellation returns its credit.
        for _ in 0..3000 {
            let send = pending(bench.send(1, vec![1; EAGER], mode).unwrap());
            assert!(withdraw(&bench, &send));
            assert_eq!(send.outcome(), CANCELLED);
        }
        let announced = pending(bench.send(1, vec![1; 50_000], mode).unwrap());
        assert!(withdraw(&bench, &announced));
        bench.stop_links(false);
        bench.play([]);
        assert!(bench.sent().iter().all(|(_, head, _)| head[0] == BIND));
        bench.send(1, vec![1; EAGER], mode).unwrap();
        let kind = bench.sent()[0].1[0];
        assert!(kind == 2 || kind == EAGER_SYNC, "there is credit, not kind {kind}");
    }
    // Cancelled frames leave the queue, and the others keep their order.
    bench.stop_links(true);
    let sends: Vec<_> = (0..9).map(|i| bench.send(1, vec![i; 10], Mode::Standard).unwrap()).collect();
    let sends: Vec<_> = sends.into_iter().map(pending).collect();
    assert!(sends.iter().step_by(2).all(|send| withdraw(&bench, send)));
    bench.stop_links(false);
    bench.play([]);
    let bodies: Vec<u8> = bench.sent().iter().map(|(_, _, body)| body[0]).collect();
    assert_eq!(bodies, [1, 3, 5, 7]);
    assert!(sends.iter().all(|send| send.outcome().is_some()));
}

#[test]
fn a_message_to_oneself_is_received_by_nobody() {
    let bench = bench();
    let send = pending(bench.send(0, vec![1; 100], Mode::Synchronous).unwrap());
    assert!(withdraw(&bench, &send));
    assert_eq!(send.outcome(), CANCELLED);
    let any = Pattern { source: ANY_SOURCE, tag: 1 };
    assert_eq!(bench.engine.iprobe(&bench.world, any), Ok(None));
}

#[test]
fn who_waits_for_a_body_hears_why_it_does_not_come() {
    for (end, fault) in [
        (None, Fault::SendCancelled { rank: 1 }),
        (Some(Exit::Closing), Fault::Left { rank: Some(1) }),
        (Some(Exit::Left), Fault::Left { rank: Some(1) }),
    ] {
        let bench = bench();
        let posted = bench.post_bytes(1, 30_000);
        bench.play([Step::Frame(1, ready(0, 5, 30_000), vec![])]);
        let (5, mine) = bench.ops(1, CLEAR)[0] else { panic!("a clear for operation 5") };
        end.into_iter().for_each(|end| bench.roster.report(1, end));
        bench.play([Step::Frame(1, gone(WORLD, mine), vec![])]);
        assert_eq!(posted.finish().unwrap().0, Err(fault));
    }
}

//! Channels that are joined and freed while their messages are pending.

use std::collections::HashMap;
use std::sync::Arc;

use mpj_datatypes::Datatype;
use mpj_devices::{Channel, Completion, Fault, Mode, Pattern, Started};

use super::device::{EAGER_LIMIT, Sent, Step};
use super::fixture::{Fixture, WORLD};
use super::head_encoding::*;

const SUB: u64 = 50;

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    fixture
}

fn join(fixture: &Fixture, context: u64) -> Arc<Channel> {
    fixture.engine.join(context, [0, 1].into_iter().collect(), 0).unwrap()
}

fn frame(head: Vec<u8>) -> Step {
    Step::Frame(1, head, vec![])
}

fn pending(started: Result<Started, Fault>) -> Completion {
    match started {
        Ok(Started::Pending(completion)) => completion,
        other => panic!("expected a pending send: {other:?}"),
    }
}

fn kinds(sent: &[Sent]) -> Vec<u8> {
    sent.iter().map(|(_, head, _)| head[0]).collect()
}

/// Returns each frame with its context: the one to which the wire id of the frame was last bound.
fn by_context(sent: Vec<Sent>) -> Vec<(u64, Sent)> {
    let mut bound = HashMap::new();
    let mut named = Vec::new();
    for (to, head, body) in sent {
        let wire_id = u16::from_le_bytes([head[2], head[3]]);
        if head[0] == BIND {
            bound.insert(wire_id, word(&head, 12));
        } else {
            named.push((bound.get(&wire_id).copied().unwrap_or(0), (to, head, body)));
        }
    }
    named
}

#[test]
fn message_completes_after_its_channel_is_freed() {
    for bound_before in [false, true] {
        let fixture = fixture();
        let sub = join(&fixture, SUB);
        if bound_before {
            fixture.play([frame(bind(7, SUB, 1))]);
        }
        let long = pending(fixture.send_on(&sub, 1, vec![1; 50_000], Mode::Standard));
        let sync = pending(fixture.send_on(&sub, 1, vec![2; 100], Mode::Synchronous));
        let sent = fixture.sent();
        let op_of = |kind| sent.iter().find(|s| s.1[0] == kind).map(|s| word(&s.1, 28)).unwrap();
        let (rts_op, sync_op) = (op_of(RTS), op_of(EAGER_SYNC));
        fixture.engine.free(&sub);
        assert!(long.outcome().is_none() && sync.outcome().is_none());
        assert_eq!(fixture.send_on(&sub, 1, vec![1; 10], Mode::Standard).unwrap_err(), Fault::Freed);
        if !bound_before {
            fixture.play([frame(bind(7, SUB, 1))]);
        }
        fixture.play([frame(reply(CTS, 7, rts_op, 99)), frame(reply(FIN, 7, sync_op, 0))]);
        assert!(long.outcome().is_some_and(Result::is_ok) && sync.outcome().is_some_and(Result::is_ok));
        let body: usize = fixture.sent().iter().filter(|s| s.1[0] == DATA).map(|s| s.2.len()).sum();
        assert_eq!(body, 50_000);
        fixture.engine.close();
    }
}

#[test]
fn cts_for_a_cancelled_send_is_answered_by_a_nack() {
    for (bound_before, freed) in [(true, false), (true, true), (false, true)] {
        let fixture = fixture();
        let sub = join(&fixture, SUB);
        if bound_before {
            fixture.play([frame(bind(7, SUB, 1))]);
        }
        let send = pending(fixture.send_on(&sub, 1, vec![1; 50_000], Mode::Standard));
        let (op, _) = fixture.take_ops(1, RTS)[0];
        assert!(fixture.engine.cancel(&sub, &send));
        if freed {
            fixture.engine.free(&sub);
        }
        if !bound_before {
            fixture.play([frame(bind(7, SUB, 1))]);
        }
        fixture.play([frame(reply(CTS, 7, op, 99))]);
        let heads: Vec<_> = fixture.sent().into_iter().map(|s| s.1).collect();
        assert_eq!(heads, [nack(SUB, 99)]);
        assert_eq!(fixture.death(), None);
    }
}

#[test]
fn messages_to_a_freed_channel_are_refused() {
    for bound_before in [false, true] {
        let fixture = fixture();
        let sub = join(&fixture, SUB);
        if bound_before {
            fixture.play([frame(bind(7, SUB, 1)), frame(rts(7, 1, 50_000)), frame(eager_sync(7, 2))]);
        }
        fixture.sent();
        fixture.engine.free(&sub);
        let refused: Vec<_> = fixture.sent().into_iter().map(|s| s.1).collect();
        let early: &[Vec<u8>] = if bound_before { &[refusal(SUB, 1), refusal(SUB, 2)] } else { &[] };
        assert_eq!(refused, early);
        if !bound_before {
            fixture.play([frame(bind(7, SUB, 1))]);
        }
        fixture.play([frame(rts(7, 3, 50_000)), frame(eager_sync(7, 4))]);
        fixture.play([Step::Begin(1, eager_sync(7, 5), 0), Step::Landed(1)]);
        let late: Vec<_> = fixture.sent().into_iter().map(|s| s.1).collect();
        assert_eq!(late, [refusal(SUB, 3), refusal(SUB, 4), refusal(SUB, 5)]);
        // Dropped eager messages return their credit.
        for _ in 0..2000 {
            fixture.play([Step::Frame(1, eager(7), vec![1; EAGER_LIMIT])]);
        }
        assert_eq!(fixture.death(), None);
        let given: u64 = fixture.sent().iter().filter(|s| s.1[0] == CREDIT).map(|s| word(&s.1, 36)).sum();
        assert!(given > 8 << 20, "{given} bytes of credit were returned");
        fixture.assert_others_communicate();
    }
}

#[test]
fn refused_message_fails() {
    let fixture = fixture();
    let sub = join(&fixture, SUB);
    let long = pending(fixture.send_on(&sub, 1, vec![1; 50_000], Mode::Standard));
    let sync = pending(fixture.send_on(&sub, 1, vec![2; 100], Mode::Synchronous));
    let sent = fixture.sent();
    let ops: Vec<u64> = sent.iter().filter(|s| s.1[0] != BIND).map(|s| word(&s.1, 28)).collect();
    fixture.play(ops.iter().map(|op| frame(refusal(SUB, *op))));
    for send in [long, sync] {
        assert_eq!(send.outcome(), Some(&Err(Fault::Refused { rank: 1 })));
    }
    fixture.engine.close();
}

#[test]
fn channel_joined_after_fail_all_rejects_operations() {
    let fixture = fixture();
    fixture.play([frame(bind(7, SUB, 1)), frame(rts(7, 1, 50_000))]);
    fixture.engine.fail_all("the test ends it");
    fixture.engine.fail_all("again");
    let fault = Fault::Dead { rank: 0, cause: "the test ends it".into() };
    for context in [SUB, SUB + 1] {
        let joined = join(&fixture, context);
        assert_eq!(fixture.send_on(&joined, 1, vec![1; 10], Mode::Standard).unwrap_err(), fault);
        let posted = fixture.post(&joined, Pattern { source: 1, tag: 2 }, Datatype::primitive(BYTES), 5, 5);
        assert_eq!(posted.finish().map(|(outcome, _)| outcome), Some(Err(fault.clone())));
    }
}

/// A second `free` of a channel has no effect on channels that were joined after the first.
#[test]
fn wire_id_names_one_channel_at_a_time() {
    let fixture = fixture();
    let freed = join(&fixture, SUB);
    fixture.engine.free(&freed);
    let one = join(&fixture, 60);
    fixture.play([frame(bind(7, SUB, 1)), Step::Frame(1, eager(7), vec![1; 9])]);
    fixture.engine.free(&freed);
    let two = join(&fixture, 70);
    fixture.play([frame(bind(8, 60, 1)), frame(bind(9, 70, 1))]);
    fixture.sent();
    let _long = fixture.send_on(&one, 1, vec![1; 50_000], Mode::Standard).unwrap();
    let _short = fixture.send_on(&two, 1, vec![1; 10], Mode::Standard).unwrap();
    let sent = fixture.sent();
    let op = sent.iter().find(|s| s.1[0] == RTS).map(|s| word(&s.1, 28)).unwrap();
    let contexts: HashMap<_, _> =
        sent.iter().filter(|s| s.1[0] == BIND).map(|s| (s.1[2], word(&s.1, 12))).collect();
    assert_eq!(contexts.len(), 2, "one wire id for two live channels: {contexts:?}");
    fixture.play([frame(reply(CTS, 8, op, 99))]);
    let data: Vec<_> = fixture.sent().into_iter().filter(|s| s.1[0] == DATA).collect();
    assert!(!data.is_empty() && data.iter().all(|s| contexts[&s.1[2]] == 60));
}

/// A body can outlive its channel. Its frames stay bound to the context of that channel, even if the wire id is reused.
#[test]
fn body_in_progress_keeps_its_context() {
    let fixture = fixture();
    let sub = join(&fixture, SUB);
    fixture.play([frame(bind(7, SUB, 1))]);
    let send = pending(fixture.send_on(&sub, 1, vec![1; 200_000], Mode::Standard));
    let mut sent = fixture.sent();
    let op = sent.iter().find(|s| s.1[0] == RTS).map(|s| word(&s.1, 28)).unwrap();
    fixture.stop_endpoints(true);
    fixture.play([frame(reply(CTS, 7, op, 99))]);
    fixture.engine.free(&sub);
    let next: Vec<_> = [60, 70].iter().map(|context| join(&fixture, *context)).collect();
    for channel in &next {
        fixture.send_on(channel, 1, vec![3; 10], Mode::Standard).unwrap();
    }
    fixture.stop_endpoints(false);
    fixture.play([]);
    for channel in &next {
        fixture.send_on(channel, 1, vec![4; 10], Mode::Standard).unwrap();
    }
    fixture.play([]);
    assert!(send.outcome().is_some_and(Result::is_ok));
    sent.extend(fixture.sent());
    let frames = by_context(sent);
    let contexts = |kind| frames.iter().filter(move |f| f.1.1[0] == kind).map(|f| f.0);
    assert!(contexts(DATA).count() > 1 && contexts(DATA).all(|context| context == SUB));
    assert_eq!(contexts(EAGER).collect::<Vec<_>>(), [60, 70, 60, 70]);
}

#[test]
fn freed_channels_use_no_wire_ids() {
    let fixture = fixture();
    for context in 1000..80_000 {
        let sub = join(&fixture, context);
        fixture.engine.free(&sub);
        fixture.play([frame(bind(7, context, 1)), frame(reply(FIN, 7, 1, 0))]);
    }
    assert_eq!(fixture.death(), None);
    join(&fixture, SUB);
    fixture.assert_others_communicate();
}

#[test]
fn forged_contexts_do_not_exhaust_channels() {
    let fixture = fixture();
    for context in 1000..80_000 {
        fixture
            .play([frame(bind(context as u16, context, 1)), Step::Frame(1, eager(context as u16), vec![])]);
    }
    assert!(fixture.engine.join(7, [0, 2].into_iter().collect(), 0).is_ok());
    fixture.assert_others_communicate();
}

#[test]
fn queued_frames_of_a_freed_channel_fail_with_their_peer() {
    let fixture = fixture();
    let sub = join(&fixture, SUB);
    let long = pending(fixture.send_on(&sub, 1, vec![1; 50_000], Mode::Standard));
    fixture.stop_endpoints(true);
    let short = pending(fixture.send_on(&sub, 1, vec![1; 50], Mode::Standard));
    fixture.engine.free(&sub);
    let other = join(&fixture, 60);
    assert!(short.outcome().is_none());
    super::fixture::report_death(&fixture, 1);
    fixture.play([]);
    for send in [long, short] {
        assert!(matches!(send.outcome(), Some(Err(Fault::Dead { rank: 1, .. }))), "{send:?}");
    }
    drop(other);
    assert!(kinds(&fixture.sent()).iter().all(|kind| *kind == BIND || *kind == RTS));
    fixture.engine.close();
}

//! NACKs that a death has caused: the fault of the operation names the dead rank, whether the engine learns of the
//! death before or after the NACK.

use std::sync::Arc;

use mpj_devices::{Channel, Completion, Exit, Fault, Group, Mode, Started};

use super::device::Step;
use super::fixture::{Fixture, WORLD};
use super::head_encoding::*;

/// A channel of ranks 0 and 1.
const PAIR: u64 = 11;

fn died() -> Exit {
    Exit::Died("was killed".into())
}

fn dead(rank: u32) -> Fault {
    Fault::Dead { rank, cause: "was killed".into() }
}

fn abandoned(rank: u32, dead: u32) -> Fault {
    Fault::Abandoned { rank: Some(rank), dead, cause: "was killed".into() }
}

fn fixture() -> (Fixture, Arc<Channel>) {
    let fixture = Fixture::new();
    let pair = fixture.engine.join(PAIR, Group::Range { first: 0, len: 2 }, 0).unwrap();
    (fixture, pair)
}

/// Returns a refusal by rank 1 that names the rank whose death caused it.
fn refusal_after(dead: u32, context: u64, op: u64) -> Step {
    Step::Frame(1, head(NACK, 0, 0, 0, [context, u64::from(dead) + 1, op, 1]), vec![])
}

fn pending(started: Result<Started, Fault>) -> Completion {
    match started {
        Ok(Started::Pending(completion)) => completion,
        other => panic!("expected a pending send: {other:?}"),
    }
}

fn last_op(fixture: &Fixture) -> u64 {
    fixture.sent().iter().filter(|sent| sent.1[0] != BIND).map(|sent| word(&sent.1, 28)).next_back().unwrap()
}

#[test]
fn refused_send_waits_for_the_death_that_the_refusal_names() {
    for mode in [Mode::Standard, Mode::Synchronous] {
        for (in_pair, fault) in [(false, dead(2)), (true, abandoned(1, 2))] {
            let (fixture, pair) = fixture();
            let (channel, context) = if in_pair { (&pair, PAIR) } else { (&fixture.world, WORLD) };
            let send = pending(fixture.send_on(channel, 1, vec![1; 50_000], mode));
            let op = last_op(&fixture);
            fixture.play([refusal_after(2, context, op), refusal_after(2, context, op)]);
            assert_eq!(send.outcome(), None);
            fixture.roster.report(2, died());
            fixture.play([]);
            assert_eq!(send.outcome(), Some(&Err(fault)));
            fixture.engine.close();
        }
    }
}

#[test]
fn refused_send_names_a_death_that_is_known_already() {
    let (fixture, pair) = fixture();
    let sends = [&pair, &pair].map(|pair| {
        let send = pending(fixture.send_on(pair, 1, vec![1; 50_000], Mode::Standard));
        (send, last_op(&fixture))
    });
    fixture.roster.report(3, died());
    fixture.play([]);
    let [(named, of_named), (unnamed, of_unnamed)] = sends;
    fixture.play([refusal_after(3, PAIR, of_named), Step::Frame(1, refusal(PAIR, of_unnamed), vec![])]);
    assert_eq!(named.outcome(), Some(&Err(abandoned(1, 3))));
    assert_eq!(unnamed.outcome(), Some(&Err(abandoned(1, 3))));
    fixture.engine.close();
}

#[test]
fn refusal_that_names_an_impossible_rank_fails_the_send_at_once() {
    for rank in [0, 4, u32::MAX - 1] {
        let (fixture, pair) = fixture();
        let send = pending(fixture.send_on(&pair, 1, vec![1; 50_000], Mode::Standard));
        let op = last_op(&fixture);
        fixture.play([refusal_after(rank, PAIR, op)]);
        assert_eq!(send.outcome(), Some(&Err(Fault::Refused { rank: 1 })), "{rank}");
        fixture.engine.close();
    }
}

#[test]
fn receive_of_a_cancelled_body_waits_for_the_death_that_the_nack_names() {
    let (fixture, _) = fixture();
    fixture.play([Step::Frame(1, bind(0, WORLD, 1), vec![])]);
    let posted = fixture.post_bytes(1, 30_000);
    fixture.play([Step::Frame(1, rts(0, 5, 30_000), vec![])]);
    let (5, mine) = fixture.take_ops(1, CTS)[0] else { panic!("expected a CTS for operation 5") };
    fixture.play([Step::Frame(1, head(NACK, 0, 0, 0, [WORLD, 3, mine, 0]), vec![])]);
    assert_eq!(posted.completion().unwrap().outcome(), None);
    fixture.roster.report(2, died());
    fixture.play([]);
    assert_eq!(posted.finish().unwrap().0, Err(dead(2)));
}

#[test]
fn rank_that_leaves_after_a_death_names_it_in_its_refusals() {
    let (fixture, pair) = fixture();
    fixture.play([Step::Frame(1, bind(7, PAIR, 1), vec![]), Step::Frame(1, rts(7, 5, 30_000), vec![])]);
    fixture.roster.report(2, died());
    fixture.play([]);
    fixture.sent();
    fixture.engine.free(&pair);
    let nacks: Vec<_> =
        fixture.sent().into_iter().filter(|sent| sent.1[0] == NACK).map(|sent| sent.1).collect();
    assert_eq!(nacks, [head(NACK, 0, 0, 0, [PAIR, 3, 5, 1])]);
}

#[test]
fn exit_of_a_peer_names_the_death_of_a_rank_outside_of_the_channel() {
    for exit in [Exit::Closing, Exit::Left] {
        let (fixture, pair) = fixture();
        let send = pending(fixture.send_on(&pair, 1, vec![1; 50_000], Mode::Standard));
        fixture.roster.report(2, died());
        fixture.play([]);
        assert_eq!(send.outcome(), None);
        fixture.roster.report(1, exit);
        fixture.play([]);
        assert_eq!(send.outcome(), Some(&Err(abandoned(1, 2))));
        fixture.engine.close();
    }
}

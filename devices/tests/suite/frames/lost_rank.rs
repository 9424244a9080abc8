//! Receives on a rank that its peers have lost, or whose calls must fail for another reason. No peer sends it a body.

use mpj_devices::{Exit, Fault};

use super::device::Step;
use super::fixture::{Fixture, WORLD};
use super::head_encoding::*;

/// Rank 1 has announced a message to this rank, and does not send the body because it has lost this rank.
fn receive_after(fail: impl Fn(&Fixture)) -> Result<usize, Fault> {
    let fixture = Fixture::new();
    fixture.play([Step::Frame(1, bind(0, WORLD, 1), vec![]), Step::Frame(1, rts(0, 5, 30_000), vec![])]);
    fail(&fixture);
    fixture.play([]);
    let posted = fixture.post_bytes(1, 30_000);
    fixture.play([]);
    let (outcome, _) = posted.finish().expect("the receive must not wait for the body");
    outcome.map(|envelope| envelope.bytes)
}

#[test]
fn lost_rank_does_not_wait_for_the_body_of_an_unexpected_message() {
    let lost = |fixture: &Fixture| fixture.roster.report(0, Exit::Died("it was lost".into()));
    assert_eq!(receive_after(lost), Err(Fault::Dead { rank: 0, cause: "it was lost".into() }));
}

#[test]
fn failed_rank_does_not_wait_for_the_body_of_an_unexpected_message() {
    let failed = |fixture: &Fixture| fixture.engine.fail_all("timed out");
    assert_eq!(receive_after(failed), Err(Fault::Dead { rank: 0, cause: "timed out".into() }));
}

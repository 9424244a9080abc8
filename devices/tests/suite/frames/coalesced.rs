//! Messages that a device coalesces, and the events that flush them.

use std::sync::atomic::Ordering;

use mpj_devices::{Coalesce, Mode, Sent, Started};

use super::device::Step;
use super::fixture::{Fixture, WORLD};
use super::head_encoding::{EAGER, FIN, bind, eager_sync};

/// Returns a fixture whose endpoints coalesce frames, and which has sent messages to ranks 1 and 2.
fn coalescing_fixture() -> Fixture {
    let fixture = Fixture::new();
    for rank in [1, 2] {
        assert!(fixture.send(rank, vec![0], Mode::Standard).is_ok());
    }
    fixture.play([]);
    fixture.sent();
    fixture.wire.coalesces.store(true, Ordering::Relaxed);
    fixture
}

fn bodies(fixture: &Fixture, to: u32) -> Vec<u8> {
    fixture.sent().into_iter().filter(|sent| sent.0 == to).flat_map(|sent| sent.2).collect()
}

fn coalesce_three(fixture: &Fixture) {
    for byte in 1..=3 {
        assert!(matches!(fixture.send_from(1, &[byte], Coalesce::Allowed), Sent::Coalesced));
    }
    assert_eq!(fixture.sent(), []);
}

#[test]
fn uncoalesced_send_flushes_coalesced_frames() {
    let fixture = coalescing_fixture();
    assert!(matches!(fixture.send_from(1, &[0], Coalesce::No), Sent::Posted));
    assert_eq!(bodies(&fixture, 1), [0]);
    coalesce_three(&fixture);
    assert!(matches!(fixture.send_from(1, &[4], Coalesce::No), Sent::Posted));
    assert_eq!(bodies(&fixture, 1), [1, 2, 3, 4]);
}

#[test]
fn next_progress_call_flushes_coalesced_frames() {
    let fixture = coalescing_fixture();
    coalesce_three(&fixture);
    fixture.engine.progress();
    assert_eq!(bodies(&fixture, 1), [1, 2, 3]);
}

#[test]
fn wait_on_a_completed_send_flushes_coalesced_frames() {
    let fixture = coalescing_fixture();
    coalesce_three(&fixture);
    let sent = fixture.send(1, vec![4], Mode::Standard).unwrap();
    assert!(matches!(sent, Started::Done(_)));
    assert_eq!(fixture.sent(), []);
    fixture.engine.wait(sent).unwrap();
    assert_eq!(bodies(&fixture, 1), [1, 2, 3, 4]);
    coalesce_three(&fixture);
    fixture.engine.flush_coalesced();
    assert_eq!(bodies(&fixture, 1), [1, 2, 3]);
    fixture.engine.flush_coalesced();
    assert_eq!(fixture.sent(), []);
}

#[test]
fn started_synchronous_message_can_be_coalesced() {
    let fixture = coalescing_fixture();
    let sent = fixture.send(1, vec![7], Mode::Synchronous).unwrap();
    assert!(matches!(sent, Started::Pending(_)));
    assert_eq!(fixture.sent(), []);
    fixture.engine.progress();
    assert_eq!(bodies(&fixture, 1), [7]);
}

#[test]
fn replies_are_not_coalesced() {
    let fixture = coalescing_fixture();
    fixture.play([Step::Frame(1, bind(40, WORLD, 1), vec![]), Step::Frame(1, eager_sync(40, 5), vec![9; 8])]);
    coalesce_three(&fixture);
    let posted = fixture.post_bytes(1, 8);
    let sent = fixture.sent();
    assert_eq!(sent.iter().map(|sent| sent.1[0]).collect::<Vec<_>>(), [EAGER, EAGER, EAGER, FIN]);
    assert_eq!(posted.finish().map(|(_, memory)| memory), Some(vec![9; 8]));
}

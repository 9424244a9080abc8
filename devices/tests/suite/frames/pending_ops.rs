//! An engine with pending sends and receives, and a peer that will violate the protocol.

use mpj_devices::{Fault, Mode, Started};

use super::device::{Gets, Step};
use super::fixture::{Fixture, Posted, WORLD};
use super::head_encoding::*;

pub(crate) fn frame(head: Vec<u8>, body: usize) -> Step {
    Step::Frame(1, head, vec![7; body])
}

/// A fixture with pending operations with rank 1: a synchronous and a rendezvous send, a posted receive, and a receive
/// that waits for the data of a rendezvous message.
pub(crate) struct PendingOps {
    pub(crate) fixture: Fixture,
    pub(crate) receive: Posted,
    pub(crate) rendezvous: Posted,
    /// The engine's operation numbers of the two sends and of the receive that waits for its data.
    pub(crate) sync: u64,
    pub(crate) send: u64,
    pub(crate) recv: u64,
    pub(crate) sends: Vec<Started>,
}

pub(crate) fn scene() -> PendingOps {
    scene_with(Gets::None)
}

pub(crate) fn scene_with(gets: Gets) -> PendingOps {
    let fixture = Fixture::with(gets);
    fixture.play([frame(bind(0, WORLD, 1), 0)]);
    let sends = vec![
        fixture.send(1, vec![1; 100], Mode::Synchronous).unwrap(),
        fixture.send(1, vec![2; 20_000], Mode::Standard).unwrap(),
    ];
    let sent = fixture.sent();
    let number = |kind| sent.iter().find(|s| s.1[0] == kind).map(|s| word(&s.1, 28)).unwrap();
    let (sync, send) = (number(EAGER_SYNC), number(RTS));
    let rendezvous = fixture.post_bytes(1, 1000);
    fixture.play([frame(rts(0, 77, 900), 0)]);
    let [(77, recv)] = fixture.take_ops(1, CTS)[..] else { panic!("a CTS for the announced message") };
    let receive = fixture.post_bytes(1, 50);
    PendingOps { fixture, receive, rendezvous, sync, send, recv, sends }
}

impl PendingOps {
    pub(crate) fn assert_offender_is_dead(self, what: &str) {
        assert_eq!(self.fixture.death(), Some(1), "{what}: the offender is reported");
        for posted in [self.receive, self.rendezvous] {
            let (outcome, _) = posted.finish().unwrap_or_else(|| panic!("{what}: a receive hangs"));
            assert!(matches!(outcome, Err(Fault::Dead { rank: 1, .. })), "{what}: {outcome:?}");
        }
        for send in self.sends {
            let Started::Pending(completion) = send else { panic!("{what}: a send that cannot have ended") };
            let outcome = completion.outcome().unwrap_or_else(|| panic!("{what}: a send hangs"));
            assert!(matches!(outcome, Err(Fault::Dead { rank: 1, .. })), "{what}: {outcome:?}");
        }
        self.fixture.assert_others_communicate();
        self.fixture.engine.close();
    }
}

//! Tests of the rendezvous.

use super::gathering::{Gathering, Step};
use super::messages::{Joining, ToServer};
use crate::boot::wire::{ProtocolVersion, VERSION};

fn join_of(size: u32, host: &str) -> ToServer {
    let (version, at) = (ProtocolVersion::own(), format!("{host}, pid 7"));
    ToServer::Join(Box::new(Joining { version, size, host: host.into(), at }))
}

#[test]
fn ranks_are_placed_by_the_identity_of_their_hosts() {
    let mut gathering = Gathering::new(6, "a".into());
    assert_eq!(gathering.missing(Step::Joined), "ranks 1-5");
    for (rank, host) in [(5, "b"), (2, "b"), (3, "c"), (1, "a")] {
        gathering.take(rank, join_of(6, host)).unwrap();
    }
    assert_eq!((gathering.missing(Step::Joined), gathering.have_all(Step::Joined)), ("rank 4".into(), false));
    // A process that exits before all have come can be replaced.
    gathering.closed(2).unwrap();
    assert_eq!(gathering.missing(Step::Joined), "ranks 2, 4");
    gathering.take(2, join_of(6, "a")).unwrap();
    gathering.take(4, join_of(6, "c")).unwrap();
    assert!(gathering.have_all(Step::Joined));
    assert_eq!(gathering.place(), [(0, 3), (1, 2), (2, 1)]);
    for rank in 1..6 {
        assert!(!gathering.have_all(Step::Ready));
        gathering.take(rank, ToServer::Ready).unwrap();
    }
    assert!(gathering.have_all(Step::Ready));
    let why = gathering.closed(3).unwrap_err();
    assert_eq!(why, "the process of rank 3 (c, pid 7) has exited while the job started");
}

#[test]
fn ranks_that_do_not_form_a_job_are_named() {
    let other_version = Joining {
        version: ProtocolVersion { version: VERSION + 1, mpj_version: "9.9".into() },
        size: 3,
        host: "b".into(),
        at: "b, pid 7".into(),
    };
    for (rank, message, why) in [
        (1, join_of(4, "b"), "rank 1 (b, pid 7) was started as one of 4 ranks, but rank 0 as one of 3"),
        (3, join_of(3, "b"), "a process (b, pid 7) has rank 3 of 3 ranks"),
        (0, join_of(3, "b"), "a process (b, pid 7) has rank 0 of 3 ranks"),
        (
            1,
            ToServer::Join(Box::new(other_version)),
            "rank 1 (b, pid 7) is built with mpj 9.9 (control protocol",
        ),
        (1, ToServer::Ready, "rank 1 violated the protocol of the rendezvous"),
        (1, ToServer::Joined, "rank 1 violated the protocol of the rendezvous"),
        (1, ToServer::Failed("no memory".into()), "rank 1 cannot join the job: no memory"),
    ] {
        let error = Gathering::new(3, "a".into()).take(rank, message).unwrap_err();
        assert!(error.starts_with(why), "{error}");
    }
    let mut gathering = Gathering::new(3, "a".into());
    gathering.take(1, join_of(3, "b")).unwrap();
    assert_eq!(gathering.take(1, join_of(3, "b")).unwrap_err(), "rank 1 has joined twice");
    let mut gathering = Gathering::new(100, "a".into());
    for rank in (2..100).step_by(2) {
        gathering.take(rank, join_of(100, "b")).unwrap();
    }
    let missing = gathering.missing(Step::Joined);
    assert!(missing.starts_with("ranks 1, 3, 5,") && missing.ends_with("31, …"), "{missing}");
}

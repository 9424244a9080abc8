//! The memory of a segment: each rank allocates its own part, only ranks of the host can open it, and fragments are not
//! reused while a peer may read them.
#![cfg(all(target_os = "linux", not(mpj_portable)))]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use mpj_devices::config::{Config, SHM_FRAGMENTS};
use mpj_devices::device::{Body, Landing, OpToken};
use mpj_devices::{
    Address, Doorbell, Driver, HostId, Hosts, OpenError, Opened, PeerId, Segment, ShmDriver, Sink, Site,
};

const FRAGMENTS: u64 = 64;
const FRAGMENT: u64 = 64 << 10;

fn duplicate(segment: &Segment) -> OwnedFd {
    // SAFETY: the duplicate is attached, or only its metadata is read.
    #[expect(unsafe_code, reason = "see above")]
    let fd = unsafe { segment.descriptor() };
    fd.try_clone_to_owned().unwrap()
}

fn allocated(segment: &Segment) -> u64 {
    File::from(duplicate(segment)).metadata().unwrap().blocks() * 512
}

/// Opens the device of a rank on `segment`, in a job of two hosts with two and five ranks.
fn open(segment: &Segment, rank: u32) -> Result<Opened, OpenError> {
    let hosts = Hosts::from_runs([(HostId(0), 2), (HostId(1), 5)]).unwrap();
    let ranks = hosts.ranks_of(hosts.host_of(rank).unwrap());
    // SAFETY: only a duplicate of the segment's descriptor is attached.
    #[expect(unsafe_code, reason = "see above")]
    let view = unsafe { Segment::attach(duplicate(segment), 5) }.unwrap();
    let site = Site::new(rank, hosts.size(), Arc::new(Doorbell::new().unwrap()));
    ShmDriver::new(view, ranks).open(&site, &Config::default())
}

#[test]
fn each_rank_reserves_its_own_part() {
    let segment = Segment::create(5, &Config::default()).unwrap();
    let own = FRAGMENTS * FRAGMENT;
    let mut before = allocated(&segment);
    assert!(before < own / 8, "{before} bytes before any rank has opened the device");
    let opened: Vec<_> = (2..7)
        .map(|rank| {
            let opened = open(&segment, rank).unwrap();
            let now = allocated(&segment);
            assert!((own..own + own / 4).contains(&(now - before)), "rank {rank}: {before} then {now}");
            before = now;
            opened
        })
        .collect();
    let whole = Segment::needed(5, &Config::default()) as u64;
    assert!((whole..=whole + 2 * 4096).contains(&before), "{before} of {whole}");
    drop(opened);
}

#[test]
fn rank_of_another_host_is_refused() {
    let segment = Segment::create(5, &Config::default()).unwrap();
    let why = open(&segment, 0).unwrap_err().why;
    assert_eq!(
        why,
        "the segment was made for 5 ranks, which do not match the ranks on the host of world rank 0"
    );
}

#[test]
fn card_of_another_segment_does_not_match() {
    let segment = Segment::create(5, &Config::default()).unwrap();
    let (two, six) = (open(&segment, 2).unwrap(), open(&segment, 6).unwrap());
    assert!(two.device.affinity(&six.device.address()).is_some());
    assert!(six.device.affinity(&two.device.address()).is_some());
    let other = Segment::create(5, &Config::default()).unwrap();
    assert_eq!(two.device.affinity(&open(&other, 6).unwrap().device.address()), None);
    assert_eq!(two.device.affinity(&Address(Vec::new())), None);
}

#[derive(Debug, Default)]
struct Bodies(Vec<Vec<u8>>);

// SAFETY: no body is accepted: `begin` panics.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Sink for Bodies {
    fn frame(&mut self, _: PeerId, _: &[u8], body: &[u8]) {
        self.0.push(body.to_vec());
    }

    fn begin(&mut self, _: PeerId, _: &[u8], _: usize) -> Landing {
        panic!("the frames are whole")
    }

    fn piece(&mut self, _: PeerId, _: &[u8]) {}

    fn landed(&mut self, _: PeerId) {}

    fn peer_lost(&mut self, _: PeerId, _: &str) {}

    fn completed(&mut self, _: OpToken, _: Result<(), String>) {}

    fn quiesced(&mut self, _: OpToken) {}
}

#[test]
fn frames_to_a_rank_that_is_falsely_reported_dead_stay_as_they_were_sent() {
    let mut config = Config::default();
    config.set_text(&SHM_FRAGMENTS, "2").unwrap();
    let segment = Arc::new(Segment::create(3, &config).unwrap());
    let ranks = Hosts::single_host(3).ranks_of(HostId(0));
    let [sender, accused, other] = [0, 1, 2].map(|rank| {
        let site = Site::new(rank, 3, Arc::new(Doorbell::new().unwrap()));
        ShmDriver::new(Arc::clone(&segment), ranks.clone()).open(&site, &config).unwrap()
    });
    let connect = |to: &Opened, rank| sender.device.connect(PeerId(rank), &to.device.address()).unwrap();
    let (mut to_accused, mut to_other) = (connect(&accused, 1), connect(&other, 2));
    // The first endpoint uses the fragments that it can get. The second one must not reuse them.
    for _ in 0..2 {
        to_accused.post(&[1; 8], Body::Bytes(&[1; 1000])).unwrap();
    }
    to_accused.peer_gone();
    for _ in 0..2 {
        let _ = to_other.post(&[2; 8], Body::Bytes(&[2; 1000]));
    }
    let (mut inlet, mut bodies) = (accused.inlet, Bodies::default());
    while inlet.progress(&mut bodies) > 0 {}
    assert!(!bodies.0.is_empty());
    assert!(bodies.0.iter().all(|body| *body == [1; 1000]), "the fragments were written again");
    drop(other);
}

//! Ranks that share memory: their connections, their rings and the exchange of their cards.
#![cfg(all(target_os = "linux", not(mpj_portable)))]

use std::sync::{Arc, mpsc};

use mpj_devices::config::{self, Config};
use mpj_devices::device::{Body, Landing, OpToken};
use mpj_devices::{
    Address, Doorbell, Driver, HostId, Hosts, Inlet, Opened, PeerId, PostError, Segment, ShmDriver, Sink,
    Site,
};

/// The segment of a host. Each rank attaches it separately, as processes do.
struct Host {
    memory: Segment,
    config: Config,
    ranks: u32,
}

impl Host {
    fn new(ranks: u32, config: Config) -> Self {
        Host { memory: Segment::create(ranks, &config).unwrap(), config, ranks }
    }

    fn attach(&self) -> Arc<Segment> {
        // SAFETY: only a duplicate of the descriptor is used, and it is only attached.
        #[expect(unsafe_code, reason = "see above")]
        let fd = unsafe { self.memory.descriptor() }.try_clone_to_owned();
        // SAFETY: the descriptor is a duplicate of a segment's descriptor.
        #[expect(unsafe_code, reason = "see above")]
        let view = unsafe { Segment::attach(fd.unwrap(), self.ranks) };
        view.unwrap()
    }

    fn open(&self, rank: u32) -> (Arc<Segment>, Opened) {
        let segment = self.attach();
        let site = Site::new(rank, self.ranks, Arc::new(Doorbell::new().unwrap()));
        let opened = ShmDriver::new(Arc::clone(&segment), Hosts::single_host(self.ranks).ranks_of(HostId(0)))
            .open(&site, &self.config)
            .unwrap();
        (segment, opened)
    }
}

#[derive(Default)]
struct Arrived {
    frames: Vec<(u32, Vec<u8>)>,
    lost: Vec<u32>,
}

// SAFETY: bodies are accepted only in pieces.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Sink for Arrived {
    fn frame(&mut self, from: PeerId, head: &[u8], _body: &[u8]) {
        self.frames.push((from.0, head.to_vec()));
    }

    fn begin(&mut self, _from: PeerId, _head: &[u8], _len: usize) -> Landing {
        Landing::Pieces
    }

    fn piece(&mut self, _from: PeerId, _bytes: &[u8]) {}

    fn landed(&mut self, _from: PeerId) {}

    fn peer_lost(&mut self, from: PeerId, _why: &str) {
        self.lost.push(from.0);
    }

    fn completed(&mut self, _op: OpToken, _outcome: Result<(), String>) {}

    fn quiesced(&mut self, _op: OpToken) {}
}

fn receive(inlet: &mut dyn Inlet) -> Vec<(u32, Vec<u8>)> {
    let mut arrived = Arrived::default();
    while inlet.progress(&mut arrived) > 0 {}
    assert_eq!(arrived.lost, [0; 0]);
    arrived.frames
}

const NO_ADDRESS: Address = Address(Vec::new());

/// With many rings, the inlet finds those with frames by their ready bits.
#[test]
fn inlet_receives_from_many_peers() {
    const RANKS: u32 = 130;
    let host = Host::new(RANKS, Config::default());
    let (_segment, mut one) = host.open(0);
    let mut endpoints: Vec<_> = (1..RANKS)
        .map(|rank| {
            let (_, Opened { device, inlet }) = host.open(rank);
            let endpoint = device.connect(PeerId(0), &NO_ADDRESS).unwrap();
            (rank, endpoint, device, inlet)
        })
        .collect();
    for round in 0..20u8 {
        for (rank, endpoint, ..) in
            endpoints.iter_mut().filter(|(rank, ..)| *rank % (u32::from(round) + 1) == 0)
        {
            let head = [round; 8];
            endpoint.post(&head, Body::Empty).unwrap();
            if rank.is_multiple_of(7) {
                assert_eq!(receive(&mut *one.inlet).last(), Some(&(*rank, head.to_vec())));
            }
        }
        receive(&mut *one.inlet);
        for (rank, endpoint, ..) in endpoints.iter_mut().rev().take(3) {
            endpoint.post(&[round; 8], Body::Empty).unwrap();
            assert_eq!(receive(&mut *one.inlet), [(*rank, vec![round; 8])]);
        }
        assert_eq!(receive(&mut *one.inlet), []);
    }
}

/// A short ring often rejects a frame. The frames still arrive in order.
#[test]
fn short_ring_keeps_order() {
    let host = Host::new(200, Config::default());
    let (_segment, mut one) = host.open(0);
    let others: Vec<_> = (1..200).map(|rank| host.open(rank)).collect();
    let (_, Opened { device, .. }) = &others[100];
    // Connect to all other peers first, so that little memory is left for the ring to rank 0.
    for peer in (1..200).filter(|peer| *peer != 101) {
        device.connect(PeerId(peer), &NO_ADDRESS).unwrap();
    }
    let mut endpoint = device.connect(PeerId(0), &NO_ADDRESS).unwrap();
    let (mut sent, mut received) = (0u64, Vec::new());
    while received.len() < 1000 {
        match endpoint.post(&sent.to_le_bytes(), Body::Empty) {
            Ok(()) => sent += 1,
            Err(PostError::Again) => received.extend(receive(&mut *one.inlet)),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!((0u64..).zip(&received).all(|(next, (from, head))| *from == 101 && *head == next.to_le_bytes()));
}

#[test]
fn every_pair_has_a_ring_with_the_smallest_setting() {
    let mut config = Config::default();
    config.set(&config::SHM_RING_KIB, 1).unwrap();
    let host = Host::new(20, config);
    let (_segment, Opened { device, .. }) = host.open(0);
    let (_, mut last) = host.open(19);
    let mut endpoints: Vec<_> =
        (1..20).map(|peer| device.connect(PeerId(peer), &NO_ADDRESS).unwrap()).collect();
    endpoints[18].post(&[7; 8], Body::Empty).unwrap();
    assert_eq!(receive(&mut *last.inlet), [(0, vec![7; 8])]);
}

#[test]
fn rank_connects_once_to_an_existing_peer() {
    let host = Host::new(2, Config::default());
    let (_segment, Opened { device, .. }) = host.open(0);
    let _link = device.connect(PeerId(1), &NO_ADDRESS).unwrap();
    for peer in [1, 2] {
        device.connect(PeerId(peer), &NO_ADDRESS).map(|_| panic!("connected to {peer}")).unwrap_err();
    }
}

type Reply = mpsc::Receiver<Option<Vec<u8>>>;

fn request(segment: &Arc<Segment>, requester: u32, of: u32) -> Result<Reply, ()> {
    let (send, reply) = mpsc::channel();
    let then = Box::new(move |card| send.send(card).unwrap());
    segment.request_card(requester, of, then).map(|()| reply).map_err(drop)
}

#[test]
fn requested_card_arrives_when_it_is_published() {
    let host = Host::new(100, Config::default());
    let (segment, mut requester) = host.open(70);
    // This mapping of the segment belongs to rank 70, and rank 100 does not exist.
    assert!(request(&segment, 71, 99).is_err() && request(&segment, 70, 100).is_err());
    let replies = [99, 99, 3, 5].map(|of| request(&segment, 70, of).unwrap());
    let (elsewhere, _opened) = host.open(99);
    elsewhere.put_card(99, b"of 99");
    host.attach().put_card(3, &[3; 600]);
    assert!(replies.iter().all(|reply| reply.try_recv().is_err()));
    assert_eq!(receive(&mut *requester.inlet), []);
    let [first, again, long, never] = replies;
    assert_eq!(first.try_recv(), Ok(Some(b"of 99".to_vec())));
    assert_eq!(again.try_recv(), Ok(Some(b"of 99".to_vec())));
    assert_eq!(long.try_recv(), Ok(None), "it is too long for the segment");
    assert!(never.try_recv().is_err());
    // A published card is returned at once. A request for a card that is too long is refused.
    assert_eq!(request(&segment, 70, 99).unwrap().try_recv(), Ok(Some(b"of 99".to_vec())));
    assert!(request(&segment, 70, 3).is_err());
}

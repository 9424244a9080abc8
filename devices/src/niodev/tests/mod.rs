//! Tests with the ranks in one thread, and tests of the handshake without sockets.

mod addresses;
mod coalesced;
mod peers;
mod proofs;
mod strangers;
mod unfinished;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::handshake::{Handshake, HandshakeAction, Identity, NIODEV, Verdict};
use super::inlet::NioInlet;
use super::{NioDevice, half_open, open};
use crate::config::{Config, Parameter};
use crate::device::{Body, Device, Endpoint, Inlet, Landing, OpToken, PeerId, PostError, Sink};
use crate::doorbell::Doorbell;
use crate::site::{JobKey, Site};

/// A time limit that no correct run of a test here reaches.
const LIVENESS: Duration = Duration::from_secs(20);

fn key(secret: u8) -> Arc<JobKey> {
    Arc::new(JobKey { job: 77, secret: [secret; 32] })
}

#[derive(Debug, Default)]
struct RecordingSink {
    frames: Vec<(u32, Vec<u8>, Vec<u8>)>,
    lost: Vec<(u32, String)>,
    pieces: bool,
    partial: Option<(u32, Vec<u8>, Vec<u8>)>,
}

// SAFETY: `partial` owns the memory of a body until it has landed: each rank receives one long body at a time.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Sink for RecordingSink {
    fn frame(&mut self, from: PeerId, head: &[u8], body: &[u8]) {
        self.frames.push((from.0, head.to_vec(), body.to_vec()));
    }

    fn begin(&mut self, from: PeerId, head: &[u8], len: usize) -> Landing {
        let room = if self.pieces { 0 } else { len };
        let (_, _, body) = self.partial.insert((from.0, head.to_vec(), vec![0; room]));
        if self.pieces { Landing::Pieces } else { Landing::Into(body.as_mut_ptr()) }
    }

    fn piece(&mut self, from: PeerId, bytes: &[u8]) {
        let partial = self.partial.as_mut().unwrap();
        assert_eq!(partial.0, from.0);
        partial.2.extend_from_slice(bytes);
    }

    fn landed(&mut self, from: PeerId) {
        let partial = self.partial.take().unwrap();
        assert_eq!(partial.0, from.0);
        self.frames.push(partial);
        self.pieces = !self.pieces;
    }

    fn peer_lost(&mut self, from: PeerId, why: &str) {
        self.lost.push((from.0, why.to_owned()));
    }

    fn completed(&mut self, op: OpToken, _: Result<(), String>) {
        panic!("no operation was started: {op:?}");
    }

    fn quiesced(&mut self, op: OpToken) {
        panic!("no memory was to be quiesced: {op:?}");
    }
}

struct Rank {
    device: NioDevice,
    inlet: NioInlet,
    got: RecordingSink,
}

impl Rank {
    fn new(rank: u32, size: u32) -> Self {
        Self::with(rank, size, &[]).unwrap()
    }

    /// Opens a rank with parameters.
    fn with(rank: u32, size: u32, parameters: &[(&dyn Parameter, &str)]) -> Result<Self, String> {
        let site = Site::new(rank, size, Arc::new(Doorbell::new().unwrap()));
        let mut config = Config::default();
        for (parameter, value) in parameters {
            config.set_text(*parameter, value).map_err(|e| e.to_string())?;
        }
        let (device, inlet) = open(key(1), &site, &config)?;
        Ok(Rank { device, inlet, got: RecordingSink::default() })
    }

    fn poll(&mut self) {
        self.inlet.progress(&mut self.got);
    }

    fn endpoint(&self, to: &Rank) -> Box<dyn Endpoint> {
        self.device.connect(PeerId(to.device.shared.id.rank), &to.device.address()).unwrap()
    }

    fn rejected(&self) -> u64 {
        self.device.shared.rejected.load(Ordering::Relaxed)
    }

    fn address(&self) -> SocketAddr {
        self.device.at[0]
    }
}

fn until(ranks: &mut [&mut Rank], mut done: impl FnMut(&mut [&mut Rank]) -> bool) {
    let limit = Instant::now() + LIVENESS;
    while !done(ranks) {
        assert!(
            Instant::now() < limit,
            "stuck; lost: {:?}",
            ranks.iter().map(|r| &r.got.lost).collect::<Vec<_>>()
        );
        ranks.iter_mut().for_each(|rank| rank.poll());
    }
}

/// Posts a frame; polls while the endpoint returns `Again`.
fn send(endpoint: &mut dyn Endpoint, ranks: &mut [&mut Rank], head: &[u8], body: &[u8]) {
    until(ranks, |_| match endpoint.post(head, Body::Bytes(body)) {
        Ok(()) => true,
        Err(PostError::Again) => {
            endpoint.flush().unwrap();
            false
        }
        Err(error) => panic!("{error:?}"),
    });
}

/// Connects to `to` as rank `rank`, without a device; returns `None` if the connection was rejected.
fn intrude(to: &mut Rank, rank: u32, secret: u8) -> Option<TcpStream> {
    let id = Identity { key: key(secret), rank, size: 8, purpose: NIODEV };
    let acceptor = to.device.shared.id.rank;
    let (mut handshake, hello) = Handshake::connect(Arc::new(id), acceptor, half_open::nonce().unwrap());
    let mut stream = TcpStream::connect(to.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream.write_all(&hello).unwrap();
    let limit = Instant::now() + LIVENESS;
    loop {
        assert!(Instant::now() < limit, "stuck in the handshake");
        to.poll();
        let count = match stream.read(handshake.room()) {
            Ok(0) => return None,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return None,
        };
        match handshake.received(count) {
            Ok(HandshakeAction::ReadMore) => (),
            Ok(HandshakeAction::Send(bytes)) => stream.write_all(&bytes).unwrap(),
            Ok(HandshakeAction::Decided(Verdict::Accept)) => return Some(stream),
            _ => return None,
        }
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + seed * 7) ^ (i >> 8)) as u8).collect()
}

//! A device whose peers are the test: it hands the engine any frame and keeps what the engine sends.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mpj_devices::config::Config;
use mpj_devices::device::{Body, Caps, Landing, RemoteKey};
use mpj_devices::{
    Address, Affinity, Device, Driver, Inlet, Link, OpenError, Opened, PeerId, PostError, Sink, Site,
};

/// What the engine's peers do, step by step.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Frame(u32, Vec<u8>, Vec<u8>),
    Begin(u32, Vec<u8>, usize),
    Bytes(u32, Vec<u8>),
    Landed(u32),
    Lost(u32),
}

/// A frame the engine has sent: to whom, head, body.
pub(crate) type Sent = (u32, Vec<u8>, Vec<u8>);

/// Between the test and the engine.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) steps: Mutex<VecDeque<Step>>,
    pub(crate) sent: Mutex<Vec<Sent>>,
    pub(crate) get: bool,
    /// Whether the links have no room.
    pub(crate) full: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(crate) struct FakeDriver(pub(crate) Arc<Wire>);

pub(crate) const EAGER: usize = 8 << 10;
pub(crate) const FRAGMENT: usize = 16 << 10;

impl Driver for FakeDriver {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn open(&self, _site: &Site, _config: &Config) -> Result<Opened, OpenError> {
        let caps = Caps { eager: EAGER, fragment: FRAGMENT, get: self.0.get };
        let inlet = FakeInlet { wire: Arc::clone(&self.0), landing: HashMap::new() };
        Ok(Opened {
            device: Box::new(FakeDevice { wire: Arc::clone(&self.0), caps }),
            inlet: Box::new(inlet),
        })
    }
}

#[derive(Debug)]
struct FakeDevice {
    wire: Arc<Wire>,
    caps: Caps,
}

// SAFETY: `get` never succeeds; nothing is offered.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Device for FakeDevice {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address(Vec::new())
    }

    fn affinity(&self, _peer: &Address) -> Option<Affinity> {
        Some(Affinity(1))
    }

    fn connect(&self, peer: PeerId, _at: &Address) -> Result<Box<dyn Link>, OpenError> {
        Ok(Box::new(FakeLink { wire: Arc::clone(&self.wire), peer: peer.0 }))
    }

    #[expect(unsafe_code, reason = "the trait says so")]
    unsafe fn get(&self, _: PeerId, _: RemoteKey, to: *mut u8, len: usize) -> Result<(), PostError> {
        // The copy fails half-way.
        // SAFETY: the caller's contract.
        unsafe { std::ptr::write_bytes(to, 0xdb, len / 2) };
        Err(PostError::Broken("no such offer".into()))
    }
}

#[derive(Debug)]
struct FakeLink {
    wire: Arc<Wire>,
    peer: u32,
}

impl Link for FakeLink {
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        if self.wire.full.load(Ordering::Relaxed) {
            return Err(PostError::Again);
        }
        let len = body.len();
        let body = match body {
            Body::Empty => Vec::new(),
            Body::Bytes(bytes) => bytes.to_vec(),
            Body::Chain(pieces) => pieces.flatten().copied().collect(),
            Body::Fill(fill) => {
                let mut room = vec![std::mem::MaybeUninit::new(0u8); len];
                fill.write(&mut room);
                // SAFETY: every byte was made as one, and filled.
                #[expect(unsafe_code, reason = "see above")]
                room.iter().map(|byte| unsafe { byte.assume_init() }).collect()
            }
        };
        lock(&self.wire.sent).push((self.peer, head.to_vec(), body));
        Ok(())
    }
}

/// Where a body goes: the rest of the memory it was given, or in pieces.
#[derive(Debug)]
enum Way {
    Into(*mut u8, usize),
    Pieces,
}

#[derive(Debug)]
struct FakeInlet {
    wire: Arc<Wire>,
    landing: HashMap<u32, Way>,
}

// SAFETY: the pointers are good until `landed` or `lost`, on any thread, as `Landing` says.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Send for FakeInlet {}

// SAFETY: `landing` keeps what is left of each body; only that is written, and none has landed while any is.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Inlet for FakeInlet {
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        let steps: Vec<Step> = lock(&self.wire.steps).drain(..).collect();
        for step in &steps {
            match step {
                Step::Frame(from, head, body) => sink.frame(PeerId(*from), head, body),
                Step::Begin(from, head, len) => {
                    let way = match sink.begin(PeerId(*from), head, *len) {
                        Landing::Into(to) => Way::Into(to, *len),
                        Landing::Pieces => Way::Pieces,
                    };
                    let under = self.landing.insert(*from, way);
                    assert!(under.is_none(), "one body a peer at a time");
                }
                Step::Bytes(from, bytes) => match self.landing.get_mut(from) {
                    Some(Way::Into(to, left)) => {
                        let len = bytes.len().min(*left);
                        // SAFETY: `begin` gave room for as many bytes as are left.
                        #[expect(unsafe_code, reason = "see above")]
                        unsafe {
                            std::ptr::copy_nonoverlapping(bytes.as_ptr(), *to, len);
                        }
                        *to = to.wrapping_add(len);
                        *left -= len;
                    }
                    _ => sink.piece(PeerId(*from), bytes),
                },
                Step::Landed(from) => {
                    let way = self.landing.remove(from);
                    assert!(!matches!(way, Some(Way::Into(_, 1..))), "all of the body is there");
                    sink.landed(PeerId(*from));
                }
                Step::Lost(from) => {
                    self.landing.remove(from);
                    sink.lost(PeerId(*from), "the cable was cut");
                }
            }
        }
        steps.len()
    }
}

//! A device whose peers are played by the test. It delivers any frame to the engine and records the frames that the
//! engine sends.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mpj_devices::config::Config;
use mpj_devices::device::{
    Body, Caps, Landing, MemoryDesc, MemoryPart, OpStatus, OpToken, QuiesceStatus, Registration, RemoteKey,
    SizeRange,
};
use mpj_devices::{
    Address, Affinity, Device, Driver, Endpoint, Engine, Inlet, OpenError, Opened, PeerId, PostError, Sink,
    Site,
};
use mpj_pool::{Access, Region, RegionRegistration, RegisterError};

/// An event that the device reports to the engine.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Frame(u32, Vec<u8>, Vec<u8>),
    Begin(u32, Vec<u8>, usize),
    Bytes(u32, Vec<u8>),
    Landed(u32),
    Lost(u32),
    /// The device op with this token ends, with success or failure. A get writes its bytes first, or half of them if it
    /// fails.
    Completed(u64, bool),
    /// The memory under this token is quiesced.
    Quiesced(u64),
}

/// A frame that the engine has sent: receiver, head, body.
pub(crate) type Sent = (u32, Vec<u8>, Vec<u8>);

/// How the endpoints execute gets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Gets {
    /// Gets are not supported.
    #[default]
    None,
    /// Each get writes half of its bytes and fails, as if the memory was revoked.
    Fail,
    /// Gets of at most [`PIECE`] bytes complete later. Rendezvous bodies of at least [`ZCOPY_MIN`] bytes are sent
    /// zero-copy. The memory is registered.
    Start,
    /// Gets of at most [`PIECE`] bytes are executed at once.
    Now,
}

#[derive(Clone, Debug)]
pub(crate) struct StartedOp {
    pub(crate) token: u64,
    pub(crate) key: Vec<u8>,
    /// The position of the first byte in the body.
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// The address to which a get writes; `None` for a send.
    to: Option<usize>,
}

/// The state that the test and the device share.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) steps: Mutex<VecDeque<Step>>,
    /// The number of polls of the inlet. A poll is counted before it locks `steps`.
    pub(crate) polls: AtomicUsize,
    pub(crate) sent: Mutex<Vec<Sent>>,
    pub(crate) gets: Gets,
    /// Whether endpoints are full: they return `Again` for frames and gets.
    pub(crate) full: AtomicBool,
    /// Whether endpoints reject frames as unsupported.
    pub(crate) rejects_frames: AtomicBool,
    /// Whether endpoints reject zero-copy sends as unsupported.
    pub(crate) rejects_zcopy: AtomicBool,
    /// The engine whose `fail_all` the next `register` calls.
    pub(crate) fails_all: Mutex<Weak<Engine>>,
    /// Whether endpoints coalesce messages.
    pub(crate) coalesces: AtomicBool,
    /// The number of registered pool regions.
    pub(crate) regions: AtomicUsize,
    /// The number of gets that were executed at once.
    pub(crate) pieces: AtomicUsize,
    /// The pending device ops.
    pub(crate) ops: Mutex<Vec<StartedOp>>,
    /// The tokens of memory that is being quiesced.
    pub(crate) quiescing: Mutex<Vec<u64>>,
    /// The dropped endpoints, inlets, devices and registrations, in the order of their drops.
    pub(crate) dropped: Mutex<Vec<&'static str>>,
    /// The number of frames that were posted to a peer after `peer_gone`.
    pub(crate) posted_after_exit: AtomicUsize,
}

#[derive(Debug)]
struct DropRecord(&'static str, Arc<Wire>);

impl Drop for DropRecord {
    fn drop(&mut self) {
        lock(&self.1.dropped).push(self.0);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(crate) struct FakeDriver(pub(crate) Arc<Wire>);

pub(crate) const EAGER_LIMIT: usize = 8 << 10;
pub(crate) const FRAGMENT: usize = 16 << 10;
pub(crate) const PIECE: usize = 12 << 10;
pub(crate) const ZCOPY_MIN: usize = 1 << 10;
/// The key that the device packs for memory outside of pool regions.
pub(crate) const KEY: [u8; 20] = [9; 20];

// SAFETY: `open` returns the device and the inlet that are defined here.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for FakeDriver {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn open(&self, _site: &Site, _config: &Config) -> Result<Opened, OpenError> {
        let frames = Caps::frames(EAGER_LIMIT, FRAGMENT);
        let caps = match self.0.gets {
            Gets::None => frames,
            Gets::Fail => Caps { get: Some(SizeRange::ANY), ..frames },
            Gets::Start => Caps {
                get: Some(SizeRange { max: PIECE, ..SizeRange::ANY }),
                zcopy: Some(SizeRange { min: ZCOPY_MIN, max: FRAGMENT }),
                register_min: Some(1),
                ..frames
            },
            Gets::Now => Caps { get: Some(SizeRange { max: PIECE, ..SizeRange::ANY }), ..frames },
        };
        let record = |what| DropRecord(what, Arc::clone(&self.0));
        let inlet =
            FakeInlet { wire: Arc::clone(&self.0), incoming: HashMap::new(), _record: record("inlet") };
        Ok(Opened {
            device: Box::new(FakeDevice { wire: Arc::clone(&self.0), caps, _record: record("device") }),
            inlet: Box::new(inlet),
        })
    }
}

#[derive(Debug)]
struct FakeDevice {
    wire: Arc<Wire>,
    caps: Caps,
    _record: DropRecord,
}

// SAFETY: a device op no longer accesses its memory once the test has completed it. Only device ops access registered
// memory.
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

    fn connect(&self, peer: PeerId, _at: &Address) -> Result<Box<dyn Endpoint>, OpenError> {
        let record = DropRecord("endpoint", Arc::clone(&self.wire));
        let (wire, peer) = (Arc::clone(&self.wire), peer.0);
        Ok(Box::new(FakeEndpoint { wire, peer, coalesced: Vec::new(), is_peer_gone: false, _record: record }))
    }

    #[expect(unsafe_code, reason = "the trait says so")]
    unsafe fn register(
        &self,
        memory: &MemoryDesc,
        region: Option<&Region>,
        _: Access,
    ) -> Result<Registration, RegisterError> {
        if let Some(engine) = std::mem::take(&mut *lock(&self.wire.fails_all)).upgrade() {
            engine.fail_all("the test ends it");
        }
        let record = DropRecord("registration", Arc::clone(&self.wire));
        let Some(region) = region else { return Ok(Registration::new(record, memory.bytes())) };
        // The address of the wire identifies this device.
        let device = Arc::as_ptr(&self.wire).addr() as u64;
        let mut registered = 0;
        let known = region.registrations.get_or_register(device, || {
            self.wire.regions.fetch_add(1, Ordering::Relaxed);
            registered = region.len;
            Ok(Arc::new(InRegion(Arc::clone(&self.wire))))
        })?;
        let offset = memory.base().addr() - region.base.addr().get();
        Ok(Registration::new((offset, known, record), registered))
    }

    fn pack_key(&self, memory: &Registration, _: usize, _: usize) -> Option<RemoteKey> {
        match memory.record::<(usize, Arc<dyn RegionRegistration>, DropRecord)>() {
            Some((offset, ..)) => RemoteKey::new(&offset.to_le_bytes()),
            None => RemoteKey::new(&KEY),
        }
    }

    fn quiesce(&self, _: PeerId, _: &Registration, OpToken(op): OpToken) -> QuiesceStatus {
        lock(&self.wire.quiescing).push(op);
        QuiesceStatus::InProgress
    }
}

#[derive(Debug)]
struct InRegion(Arc<Wire>);

// SAFETY: it accesses no memory.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl RegionRegistration for InRegion {
    fn deregister(&self) -> Result<(), RegisterError> {
        self.0.regions.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

#[derive(Debug)]
struct FakeEndpoint {
    wire: Arc<Wire>,
    peer: u32,
    coalesced: Vec<Sent>,
    is_peer_gone: bool,
    _record: DropRecord,
}

impl Endpoint for FakeEndpoint {
    fn post_more(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        let sent_before = lock(&self.wire.sent).len();
        let coalesced = std::mem::take(&mut self.coalesced);
        let posted = self.post(head, body);
        self.coalesced = coalesced;
        if self.wire.coalesces.load(Ordering::Relaxed) {
            self.coalesced.extend(lock(&self.wire.sent).drain(sent_before..));
        }
        posted
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        lock(&self.wire.sent).append(&mut self.coalesced);
        Ok(false)
    }

    fn has_unflushed(&self) -> bool {
        !self.coalesced.is_empty()
    }

    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        if self.wire.full.load(Ordering::Relaxed) {
            return Err(PostError::Again);
        }
        if self.wire.rejects_frames.load(Ordering::Relaxed) {
            return Err(PostError::Unsupported);
        }
        self.wire.posted_after_exit.fetch_add(usize::from(self.is_peer_gone), Ordering::Relaxed);
        let len = body.len();
        let body = match body {
            Body::Empty => Vec::new(),
            Body::Bytes(bytes) => bytes.to_vec(),
            Body::Chain(pieces) => pieces.flatten().copied().collect(),
            Body::Packed(fill) => {
                let mut room = vec![std::mem::MaybeUninit::new(0u8); len];
                fill.write(&mut room);
                // SAFETY: every byte was initialised above; `fill` only overwrites bytes.
                #[expect(unsafe_code, reason = "see above")]
                room.iter().map(|byte| unsafe { byte.assume_init() }).collect()
            }
        };
        let mut sent = lock(&self.wire.sent);
        sent.append(&mut self.coalesced);
        sent.push((self.peer, head.to_vec(), body));
        Ok(())
    }

    fn peer_gone(&mut self) {
        self.is_peer_gone = true;
    }

    #[expect(unsafe_code, reason = "the trait says so")]
    unsafe fn get(
        &mut self,
        key: &RemoteKey,
        at: u64,
        to: MemoryPart<'_>,
        op: OpToken,
    ) -> Result<OpStatus, PostError> {
        if self.wire.full.load(Ordering::Relaxed) {
            return Err(PostError::Again);
        }
        let run = to.contiguous().expect("this device supports only contiguous memory");
        if self.wire.gets == Gets::Fail {
            // SAFETY: the caller's contract.
            unsafe { std::ptr::write_bytes(run, 0xdb, to.len / 2) };
            return Err(PostError::Revoked);
        }
        if self.wire.gets == Gets::Now {
            let bytes: Vec<u8> = (at as usize..at as usize + to.len).map(fetched).collect();
            // SAFETY: the caller's contract.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), run, to.len) };
            self.wire.pieces.fetch_add(1, Ordering::Relaxed);
            return Ok(OpStatus::Done);
        }
        assert!(to.registration.is_some(), "this device needs registered memory");
        let (key, at, to, len) =
            (key.as_bytes().to_vec(), at as usize, Some(run.expose_provenance()), to.len);
        lock(&self.wire.ops).push(StartedOp { token: op.0, key, at, len, to });
        Ok(OpStatus::InProgress)
    }

    #[expect(unsafe_code, reason = "the trait says so")]
    unsafe fn post_zcopy(
        &mut self,
        head: &[u8],
        body: &[MemoryPart<'_>],
        op: OpToken,
    ) -> Result<OpStatus, PostError> {
        if self.wire.rejects_zcopy.load(Ordering::Relaxed) {
            return Err(PostError::Unsupported);
        }
        let [part] = body else { panic!("one part") };
        let run = part.contiguous().expect("this device supports only contiguous memory");
        // SAFETY: the caller's contract.
        let bytes = unsafe { std::slice::from_raw_parts(run, part.len) };
        self.post(head, Body::Bytes(bytes))?;
        let (at, len) = (part.at, part.len);
        lock(&self.wire.ops).push(StartedOp { token: op.0, key: Vec::new(), at, len, to: None });
        Ok(OpStatus::InProgress)
    }
}

/// The destination of the rest of a body.
#[derive(Debug)]
enum Destination {
    Into(*mut u8, usize),
    Pieces,
}

/// Returns the byte that a get reads at a position of the body.
pub(crate) fn fetched(at: usize) -> u8 {
    (at % 251) as u8
}

#[derive(Debug)]
struct FakeInlet {
    wire: Arc<Wire>,
    incoming: HashMap<u32, Destination>,
    _record: DropRecord,
}

// SAFETY: the pointers are valid until `landed` or `peer_lost`, on any thread, as `Landing` says.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Send for FakeInlet {}

// SAFETY: `incoming` holds the unwritten part of each body's memory. The inlet writes only there, and reports a body as
// landed only when this part is empty. A completed op leaves `ops`, so a second completion writes nothing.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Inlet for FakeInlet {
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        self.wire.polls.fetch_add(1, Ordering::SeqCst);
        let steps: Vec<Step> = lock(&self.wire.steps).drain(..).collect();
        for step in &steps {
            match step {
                Step::Frame(from, head, body) => sink.frame(PeerId(*from), head, body),
                Step::Begin(from, head, len) => {
                    let destination = match sink.begin(PeerId(*from), head, *len) {
                        Landing::Into(to) => Destination::Into(to, *len),
                        Landing::Pieces => Destination::Pieces,
                    };
                    let previous = self.incoming.insert(*from, destination);
                    assert!(previous.is_none(), "one body at a time from each peer");
                }
                Step::Bytes(from, bytes) => match self.incoming.get_mut(from) {
                    Some(Destination::Into(to, left)) => {
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
                    let destination = self.incoming.remove(from);
                    assert!(
                        !matches!(destination, Some(Destination::Into(_, 1..))),
                        "all of the body is there"
                    );
                    sink.landed(PeerId(*from));
                }
                Step::Completed(token, succeeds) => {
                    let mut ops = lock(&self.wire.ops);
                    let at = ops.iter().position(|it| it.token == *token);
                    let it = at.map(|at| ops.remove(at));
                    drop(ops);
                    if let Some(StartedOp { to: Some(to), at, len, .. }) = it {
                        let len = if *succeeds { len } else { len / 2 };
                        let bytes: Vec<u8> = (at..at + len).map(fetched).collect();
                        let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
                        // SAFETY: the get has not ended, so it may write these bytes.
                        #[expect(unsafe_code, reason = "see above")]
                        unsafe {
                            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
                        }
                    }
                    let outcome = if *succeeds { Ok(()) } else { Err("the cable was cut".into()) };
                    sink.completed(OpToken(*token), outcome);
                }
                Step::Quiesced(token) => sink.quiesced(OpToken(*token)),
                Step::Lost(from) => {
                    self.incoming.remove(from);
                    sink.peer_lost(PeerId(*from), "the cable was cut");
                }
            }
        }
        steps.len()
    }

    fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        if self.incoming.remove(&peer.0).is_some() {
            sink.peer_lost(peer, "it died in the middle of a message");
        }
    }
}

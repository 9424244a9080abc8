//! A test device in an asynchronous mode. Operations that the inner device executes at once are started, and complete
//! late, in any order, even after the death of the peer.
//!
//! A seed determines whether the device supports layouts or only contiguous memory, after how many polls of the inlet
//! an operation is executed, and which of the due operations goes first. Until then no other code may touch the memory.
//! The body of a zero-copy send must be unchanged when the operation completes, and so must the marker bytes that a
//! started get writes to its destination. An engine that releases memory too early fails these checks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_pool::{Access, Region, RegisterError};

use super::owned::random;
use crate::config::Config;
use crate::device::{
    Address, Affinity, Body, Caps, Device, Driver, Endpoint, Inlet, MemoryDesc, MemoryPart, OpStatus,
    OpToken, OpenError, Opened, PeerId, PostError, QuiesceStatus, Registration, RemoteKey, Sink, SizeRange,
};
use crate::doorbell::Doorbell;
use crate::site::Site;

/// The maximum number of bytes of one get.
const PIECE: usize = 24_000;

/// The size from which bodies are transferred by get: the messages of a flood are shorter, and those that the cases
/// call long are longer.
const FROM: usize = 8200;

/// The size from which memory outside of pools is registered for a get: the tested sizes are on both sides of it.
const OWN: usize = 100_000;

/// The maximum number of polls that an operation waits.
const LOOKS: u64 = 40;

/// The marker byte in memory that a get will write.
const MARK: u8 = 0xc5;

/// A driver whose device completes operations late.
#[derive(Debug)]
pub struct LateDriver {
    name: &'static str,
    inner: Arc<dyn Driver>,
    seed: u64,
}

impl LateDriver {
    /// Wraps `inner` in a driver that is named `name`.
    pub fn new(name: &'static str, inner: Arc<dyn Driver>, seed: u64) -> Self {
        LateDriver { name, inner, seed }
    }
}

// SAFETY: the inlet wraps that of the device, and is made with it.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for LateDriver {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        let Opened { device, inlet } = self.inner.open(site, config)?;
        let caps = device.caps().clone();
        let get = caps.get.map(|reach| SizeRange { min: reach.min.max(FROM), max: PIECE });
        let lend = Some(SizeRange { max: caps.max_send_size, ..SizeRange::ANY });
        let layouts = caps.noncontiguous && self.seed.is_multiple_of(2);
        let caps = Caps {
            get,
            zcopy: lend,
            noncontiguous: layouts,
            register_from: Some(OWN),
            exports: false,
            ..caps
        };
        let pending = Pending {
            list: Mutex::default(),
            state: AtomicU64::new(self.seed * 1000 + u64::from(site.rank) + 1),
            bell: Arc::clone(&site.bell),
            inner: Arc::from(device),
        };
        let pending = Arc::new(pending);
        let inlet = LateInlet { inner: inlet, pending: Arc::clone(&pending) };
        Ok(Opened { device: Box::new(LateDevice { name: self.name, caps, pending }), inlet: Box::new(inlet) })
    }
}

/// The started operations of one rank that are not complete.
#[derive(Debug)]
struct Pending {
    list: Mutex<Vec<Late>>,
    state: AtomicU64,
    bell: Arc<Doorbell>,
    inner: Arc<dyn Device>,
}

#[derive(Debug)]
struct Late {
    op: OpToken,
    looks: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Get { link: Shared, key: RemoteKey, at: u64, to: Owned },
    Lent { body: Owned, bytes: Vec<u8> },
    Quiet { peer: PeerId, memory: Registration },
}

/// An endpoint that the inlet uses, too.
type Shared = Arc<Mutex<Box<dyn Endpoint>>>;

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A [`MemoryPart`] without a lifetime: it is used only until its operation completes.
#[derive(Debug)]
struct Owned {
    memory: MemoryDesc,
    at: usize,
    len: usize,
    /// A copy that keeps the memory registered until the operation completes.
    _registration: Registration,
}

impl Owned {
    fn new(part: &MemoryPart<'_>) -> Self {
        let registration = part.registration.expect("the device wants its own end of a move registered");
        Owned { memory: part.memory.clone(), at: part.at, len: part.len, _registration: registration.clone() }
    }

    fn part(&self) -> MemoryPart<'_> {
        self.memory.part(self.at, self.len, None)
    }

    /// Fills the memory with the marker byte, which shows that it belongs to the device.
    fn mark(&self) {
        let marks = vec![MARK; self.len];
        let (base, count) = (self.memory.base(), self.memory.count());
        // SAFETY: the get has begun: the memory is its own.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            self.memory.datatype().unpack(base, count, self.at, &marks);
        }
    }

    /// Returns the packed bytes.
    fn read(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        if let Some(chain) = self.memory.chain() {
            for piece in chain.cut(self.at, self.len) {
                // SAFETY: as below.
                #[expect(unsafe_code, reason = "see above")]
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base, piece.len) });
            }
            return bytes;
        }
        let (base, count) = (self.memory.base(), self.memory.count());
        let room = &mut bytes.spare_capacity_mut()[..self.len];
        // SAFETY: the operation is not complete: its memory is readable.
        #[expect(unsafe_code, reason = "see above")]
        let packed = unsafe { self.memory.datatype().pack(base, count, self.at, room) };
        assert_eq!(packed, self.len, "a part lies in its memory");
        // SAFETY: `pack` has written them.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            bytes.set_len(packed);
        }
        bytes
    }
}

impl Pending {
    fn random(&self) -> u64 {
        let next = random(self.state.load(Ordering::Relaxed));
        self.state.store(next, Ordering::Relaxed);
        next
    }

    fn start(&self, op: OpToken, what: What) {
        let late = Late { op, looks: self.random() % LOOKS, what };
        lock(&self.list).push(late);
        self.bell.ring();
    }

    /// Removes and returns one of the due operations, at random.
    fn take_due(&self) -> Option<Late> {
        let mut list = lock(&self.list);
        let due: Vec<usize> = (0..list.len()).filter(|at| list[*at].looks == 0).collect();
        let at = due.get(self.random() as usize % due.len().max(1))?;
        Some(list.swap_remove(*at))
    }

    /// Counts one poll, and several if the rank is idle: a rank that only waits for an operation would yield between
    /// two polls, which is slow if other threads want the core. Returns whether operations are pending.
    fn look(&self, is_idle: bool) -> bool {
        let looks = if is_idle { LOOKS / 4 } else { 1 };
        let mut list = lock(&self.list);
        list.iter_mut().for_each(|late| late.looks = late.looks.saturating_sub(looks));
        !list.is_empty()
    }
}

#[derive(Debug)]
struct LateDevice {
    name: &'static str,
    caps: Caps,
    pending: Arc<Pending>,
}

// SAFETY: the inner device executes an operation when its token is reported, and not later; memory is quiesced when it
// says so.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Device for LateDevice {
    fn name(&self) -> &'static str {
        self.name
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        self.pending.inner.address()
    }

    fn affinity(&self, peer: &Address) -> Option<Affinity> {
        self.pending.inner.affinity(peer)
    }

    fn connect(&self, peer: PeerId, at: &Address) -> Result<Box<dyn Endpoint>, OpenError> {
        let inner = Arc::new(Mutex::new(self.pending.inner.connect(peer, at)?));
        Ok(Box::new(LateLink { inner, pending: Arc::clone(&self.pending) }))
    }

    #[expect(unsafe_code, reason = "the trait's contract is passed on")]
    unsafe fn register(
        &self,
        memory: &MemoryDesc,
        region: Option<&Region>,
        access: Access,
    ) -> Result<Registration, RegisterError> {
        // SAFETY: the caller's promise.
        unsafe { self.pending.inner.register(memory, region, access) }
    }

    fn pack_key(&self, memory: &Registration, at: usize, len: usize) -> Option<RemoteKey> {
        self.pending.inner.pack_key(memory, at, len)
    }

    fn quiesce(&self, peer: PeerId, memory: &Registration, op: OpToken) -> QuiesceStatus {
        self.pending.start(op, What::Quiet { peer, memory: memory.clone() });
        QuiesceStatus::InProgress
    }
}

#[derive(Debug)]
struct LateLink {
    inner: Shared,
    pending: Arc<Pending>,
}

impl Endpoint for LateLink {
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        lock(&self.inner).post(head, body)
    }

    fn post_more(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        lock(&self.inner).post_more(head, body)
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        lock(&self.inner).flush()
    }

    fn has_unflushed(&self) -> bool {
        lock(&self.inner).has_unflushed()
    }

    fn peer_gone(&mut self) {
        lock(&self.inner).peer_gone();
    }

    fn is_drained(&mut self) -> bool {
        lock(&self.inner).is_drained()
    }

    #[expect(unsafe_code, reason = "the trait's contract")]
    unsafe fn post_zcopy(
        &mut self,
        head: &[u8],
        body: &[MemoryPart<'_>],
        op: OpToken,
    ) -> Result<OpStatus, PostError> {
        let [part] = body else { return Err(PostError::Unsupported) };
        if self.pending.random().is_multiple_of(16) {
            self.pending.bell.ring();
            return Err(PostError::Again);
        }
        let body = Owned::new(part);
        let bytes = body.read();
        lock(&self.inner).post(head, Body::Bytes(&bytes))?;
        self.pending.start(op, What::Lent { body, bytes });
        Ok(OpStatus::InProgress)
    }

    #[expect(unsafe_code, reason = "the trait's contract")]
    unsafe fn get(
        &mut self,
        key: &RemoteKey,
        at: u64,
        to: MemoryPart<'_>,
        op: OpToken,
    ) -> Result<OpStatus, PostError> {
        match self.pending.random() % 16 {
            0 => {
                // Space becomes available by itself, at the next poll.
                self.pending.bell.ring();
                Err(PostError::Again)
            }
            // SAFETY: the caller's promise.
            1 => unsafe { lock(&self.inner).get(key, at, to, op) },
            _ => {
                let (link, key, to) = (Arc::clone(&self.inner), *key, Owned::new(&to));
                to.mark();
                self.pending.start(op, What::Get { link, key, at, to });
                Ok(OpStatus::InProgress)
            }
        }
    }
}

#[derive(Debug)]
struct LateInlet {
    inner: Box<dyn Inlet>,
    pending: Arc<Pending>,
}

// SAFETY: bodies are those of the inner inlet; an operation is reported once, after it was executed.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Inlet for LateInlet {
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        let mut moved = self.inner.progress(sink);
        while let Some(Late { op, what, .. }) = self.pending.take_due() {
            moved += 1;
            match what {
                What::Get { link, key, at, to } => {
                    let is_ours = to.read().iter().all(|byte| *byte == MARK);
                    assert!(is_ours, "memory was used before the device had given it back");
                    // SAFETY: the operation is not complete: the memory is its own.
                    #[expect(unsafe_code, reason = "see above")]
                    let result = unsafe { lock(&link).get(&key, at, to.part(), op) };
                    drop(to);
                    sink.completed(op, result.map(|_| ()).map_err(|why| format!("{why:?}")));
                }
                What::Lent { body, bytes } => {
                    assert!(body.read() == bytes, "a lent body was written before it was given back");
                    drop(body);
                    sink.completed(op, Ok(()));
                }
                What::Quiet { peer, memory } => {
                    let quiet = self.pending.inner.quiesce(peer, &memory, op);
                    drop(memory);
                    if quiet == QuiesceStatus::Done {
                        sink.quiesced(op);
                    }
                }
            }
        }
        if self.pending.look(moved == 0) {
            self.pending.bell.ring();
        }
        moved
    }

    fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        self.inner.abort_body(peer, sink);
    }
}

//! A device that makes another device asynchronous: most of its gets, and all its zero-copy sends, complete late and in
//! any order, even after the death of the peer.
//!
//! A seed determines whether the device supports noncontiguous memory, which attempts return `Again`, after how
//! many polls of the inlet an operation completes, and which of the due operations is next. The memory of a pending
//! operation must not change: neither the body of a zero-copy send, nor the marker bytes that a started get has written
//! to its destination. An engine that reuses memory too early fails these checks.

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
const GET_MAX: usize = 24_000;

/// The smallest size of bodies that are transferred by get. The messages of the floods in `pressure` are shorter.
const GET_MIN: usize = 8200;

/// The size in bytes from which memory outside of pools is registered.
const REGISTER_MIN: usize = 100_000;

/// Each operation waits for fewer counted polls of the inlet than this.
const MAX_DELAY: u64 = 40;

/// The marker byte in memory that a get will write.
const MARK: u8 = 0xc5;

/// A driver whose device completes operations late.
#[derive(Debug)]
pub struct AsyncDriver {
    name: &'static str,
    inner: Arc<dyn Driver>,
    seed: u64,
}

impl AsyncDriver {
    /// Wraps `inner`, whose device must execute each get at once, in a driver that is named `name`.
    pub fn new(name: &'static str, inner: Arc<dyn Driver>, seed: u64) -> Self {
        AsyncDriver { name, inner, seed }
    }
}

// SAFETY: the inlet wraps the inlet of the inner device, and is made with the device.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for AsyncDriver {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        let Opened { device, inlet } = self.inner.open(site, config)?;
        let caps = device.caps().clone();
        let get =
            caps.get.map(|range| SizeRange { min: GET_MIN.min(range.max), max: GET_MAX.min(range.max) });
        let zcopy = Some(SizeRange { max: caps.max_send_size, ..SizeRange::ANY });
        let layouts = caps.noncontiguous && self.seed.is_multiple_of(2);
        let caps = Caps {
            get,
            zcopy,
            noncontiguous: layouts,
            register_min: Some(REGISTER_MIN),
            export_min: None,
            ..caps
        };
        let pending = Pending {
            list: Mutex::default(),
            random_state: AtomicU64::new(self.seed * 1000 + u64::from(site.rank) + 1),
            bell: Arc::clone(&site.bell),
            inner: Arc::from(device),
        };
        let pending = Arc::new(pending);
        let inlet = AsyncInlet { inner: inlet, pending: Arc::clone(&pending) };
        Ok(Opened {
            device: Box::new(AsyncDevice { name: self.name, caps, pending }),
            inlet: Box::new(inlet),
        })
    }
}

#[derive(Debug)]
struct Pending {
    list: Mutex<Vec<PendingOp>>,
    random_state: AtomicU64,
    bell: Arc<Doorbell>,
    inner: Arc<dyn Device>,
}

#[derive(Debug)]
struct PendingOp {
    op: OpToken,
    delay: u64,
    what: OpKind,
}

#[derive(Debug)]
enum OpKind {
    Get { endpoint: SharedEndpoint, key: RemoteKey, at: u64, to: OwnedPart },
    ZeroCopy { body: OwnedPart, bytes: Vec<u8> },
    Quiesce { peer: PeerId, memory: Registration },
}

/// An endpoint that the inlet also uses.
type SharedEndpoint = Arc<Mutex<Box<dyn Endpoint>>>;

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A [`MemoryPart`] without a lifetime. It must be used only until its operation completes.
#[derive(Debug)]
struct OwnedPart {
    memory: MemoryDesc,
    at: usize,
    len: usize,
    /// A copy that keeps the memory registered until the operation completes.
    _registration: Registration,
}

impl OwnedPart {
    fn new(part: &MemoryPart<'_>) -> Self {
        let registration = part.registration.expect("the local memory of a get or a send is registered");
        OwnedPart {
            memory: part.memory.clone(),
            at: part.at,
            len: part.len,
            _registration: registration.clone(),
        }
    }

    fn part(&self) -> MemoryPart<'_> {
        self.memory.part(self.at, self.len, None)
    }

    /// Fills the memory with the marker byte, which shows that it belongs to the device.
    fn mark(&self) {
        let marks = vec![MARK; self.len];
        let (base, count) = (self.memory.base(), self.memory.count());
        // SAFETY: the get is in progress, so the memory belongs to the device.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            self.memory.datatype().unpack(base, count, self.at, &marks);
        }
    }

    /// Returns the packed bytes.
    fn read(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        if let Some(chain) = self.memory.chain() {
            for piece in chain.range(self.at, self.len) {
                // SAFETY: the operation is not complete: its memory is readable.
                #[expect(unsafe_code, reason = "see above")]
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base, piece.len) });
            }
            return bytes;
        }
        let (base, count) = (self.memory.base(), self.memory.count());
        let room = &mut bytes.spare_capacity_mut()[..self.len];
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "see above")]
        let packed = unsafe { self.memory.datatype().pack(base, count, self.at, room) };
        assert_eq!(packed, self.len, "the part is within its memory");
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
        let next = random(self.random_state.load(Ordering::Relaxed));
        self.random_state.store(next, Ordering::Relaxed);
        next
    }

    fn start(&self, op: OpToken, what: OpKind) {
        let op = PendingOp { op, delay: self.random() % MAX_DELAY, what };
        lock(&self.list).push(op);
        self.bell.ring();
    }

    /// Removes and returns one of the due operations, at random.
    fn take_due(&self) -> Option<PendingOp> {
        let mut list = lock(&self.list);
        let due: Vec<usize> = (0..list.len()).filter(|at| list[*at].delay == 0).collect();
        let at = due.get(self.random() as usize % due.len().max(1))?;
        Some(list.swap_remove(*at))
    }

    /// Counts one poll, or several if the inlet moved nothing, because an idle rank yields its core between polls.
    /// Returns whether operations are pending.
    fn count_poll(&self, is_idle: bool) -> bool {
        let delay = if is_idle { MAX_DELAY / 4 } else { 1 };
        let mut list = lock(&self.list);
        list.iter_mut().for_each(|op| op.delay = op.delay.saturating_sub(delay));
        !list.is_empty()
    }
}

#[derive(Debug)]
struct AsyncDevice {
    name: &'static str,
    caps: Caps,
    pending: Arc<Pending>,
}

// SAFETY: the inner device has executed an operation when its token is reported. Memory is reported as quiesced only
// after the inner device reports that.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Device for AsyncDevice {
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
        Ok(Box::new(AsyncEndpoint { inner, pending: Arc::clone(&self.pending) }))
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
        self.pending.start(op, OpKind::Quiesce { peer, memory: memory.clone() });
        QuiesceStatus::InProgress
    }
}

#[derive(Debug)]
struct AsyncEndpoint {
    inner: SharedEndpoint,
    pending: Arc<Pending>,
}

impl Endpoint for AsyncEndpoint {
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
        let body = OwnedPart::new(part);
        let bytes = body.read();
        lock(&self.inner).post(head, Body::Bytes(&bytes))?;
        self.pending.start(op, OpKind::ZeroCopy { body, bytes });
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
                self.pending.bell.ring();
                Err(PostError::Again)
            }
            // SAFETY: the caller's promise.
            1 => unsafe { lock(&self.inner).get(key, at, to, op) },
            _ => {
                let (endpoint, key, to) = (Arc::clone(&self.inner), *key, OwnedPart::new(&to));
                to.mark();
                self.pending.start(op, OpKind::Get { endpoint, key, at, to });
                Ok(OpStatus::InProgress)
            }
        }
    }
}

#[derive(Debug)]
struct AsyncInlet {
    inner: Box<dyn Inlet>,
    pending: Arc<Pending>,
}

// SAFETY: bodies are those of the inner inlet; an operation is reported once, after it was executed.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Inlet for AsyncInlet {
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        let mut moved = self.inner.progress(sink);
        while let Some(PendingOp { op, what, .. }) = self.pending.take_due() {
            moved += 1;
            match what {
                OpKind::Get { endpoint, key, at, to } => {
                    let is_ours = to.read().iter().all(|byte| *byte == MARK);
                    assert!(is_ours, "the memory of a get was written before its completion");
                    // SAFETY: the operation is not complete, so the memory belongs to the device.
                    #[expect(unsafe_code, reason = "see above")]
                    let result = unsafe { lock(&endpoint).get(&key, at, to.part(), op) };
                    drop(to);
                    sink.completed(op, result.map(|_| ()).map_err(|why| format!("{why:?}")));
                }
                OpKind::ZeroCopy { body, bytes } => {
                    assert!(
                        body.read() == bytes,
                        "the body of a zero-copy send was written before its completion"
                    );
                    drop(body);
                    sink.completed(op, Ok(()));
                }
                OpKind::Quiesce { peer, memory } => {
                    let quiesced = self.pending.inner.quiesce(peer, &memory, op);
                    drop(memory);
                    if quiesced == QuiesceStatus::Done {
                        sink.quiesced(op);
                    }
                }
            }
        }
        if self.pending.count_poll(moved == 0) {
            self.pending.bell.ring();
        }
        moved
    }

    fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        self.inner.abort_body(peer, sink);
    }
}

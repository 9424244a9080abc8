//! Memory that a device copies by itself: its description, its registration, its key for a peer, and the states of an
//! operation.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use mpj_datatypes::{Datatype, Primitive};

use crate::buf::{Buf, Chain};

/// The longest [`RemoteKey`] in bytes.
pub const KEY_MAX: usize = 128;

/// Names registered or exported memory to the peer that may access it. Only the device interprets the bytes.
#[derive(Clone, Copy)]
pub struct RemoteKey {
    len: u8,
    bytes: [u8; KEY_MAX],
}

impl RemoteKey {
    /// Makes a key of 1 to [`KEY_MAX`] bytes; returns `None` for any other length.
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; KEY_MAX];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        let len = u8::try_from(from.len()).ok().filter(|len| *len > 0)?;
        Some(RemoteKey { len, bytes })
    }

    /// Returns the bytes of the key, as the device has packed them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteKey(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// The engine's identifier of an operation. The device passes it to [`Sink::completed`](super::Sink::completed) or
/// [`Sink::quiesced`](super::Sink::quiesced).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OpToken(pub u64);

/// The state of an operation when the call that posts it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpStatus {
    /// All bytes have moved: no completion follows.
    Done,
    /// The device executes it. Exactly one [`Sink::completed`](super::Sink::completed) follows, even if the peer dies.
    InProgress,
}

/// Whether a peer can still access memory for which it has a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuiesceStatus {
    /// The peer cannot access the memory any more.
    Done,
    /// The peer might access it. Exactly one [`Sink::quiesced`](super::Sink::quiesced) follows when it no longer can.
    InProgress,
}

/// The memory of one operation: `count` items of a datatype, or the pieces of a [`Chain`]. It is only a description and
/// does not keep the memory alive.
#[derive(Clone, Debug)]
pub struct MemoryDesc {
    base: *mut u8,
    count: usize,
    datatype: Datatype,
    bytes: usize,
    chain: Option<Chain>,
}

// SAFETY: it is only a description; each use of the pointer is unsafe and states its own requirements.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Send for MemoryDesc {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Sync for MemoryDesc {}

impl MemoryDesc {
    /// Describes `count` items at `base`; returns `None` if their packed length overflows.
    pub fn new(base: *mut u8, count: usize, datatype: Datatype) -> Option<Self> {
        let bytes = datatype.packed_size(count).ok()?;
        Some(MemoryDesc { base, count, datatype, bytes, chain: None })
    }

    /// Shortens the description to a message of `bytes` bytes if the memory is contiguous; otherwise returns it
    /// unchanged.
    pub(crate) fn truncated_to(self, bytes: usize) -> Self {
        if bytes >= self.bytes || self.contiguous().is_none() {
            return self;
        }
        MemoryDesc { count: bytes, datatype: Primitive::Byte.into(), bytes, ..self }
    }

    pub(crate) fn of(buf: &Buf) -> Option<Self> {
        let memory = MemoryDesc::new(buf.base(), buf.count(), buf.datatype().clone())?;
        Some(MemoryDesc { chain: buf.pieces().cloned(), ..memory })
    }

    /// Returns the pieces that hold the packed bytes, if the memory is a chain. Base, count and datatype have no
    /// meaning then.
    pub fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    /// Returns the address to which the offsets of the datatype are relative.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the number of items.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the type of an item.
    pub fn datatype(&self) -> &Datatype {
        &self.datatype
    }

    /// Returns the packed length of the items in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of the first byte if the memory is one contiguous run of [`bytes`](Self::bytes) bytes.
    pub fn contiguous(&self) -> Option<*mut u8> {
        (self.datatype.is_contiguous() && self.chain.is_none()).then_some(self.base)
    }

    /// Describes the packed bytes `at..at + len`, for an operation of a device.
    pub fn part<'a>(
        &'a self,
        at: usize,
        len: usize,
        registration: Option<&'a Registration>,
    ) -> MemoryPart<'a> {
        debug_assert!(at.checked_add(len).is_some_and(|end| end <= self.bytes), "a part lies in its memory");
        MemoryPart { memory: self, at, len, registration }
    }
}

/// A range of the packed bytes of a [`MemoryDesc`]: the local side of an operation.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPart<'a> {
    /// The memory.
    pub memory: &'a MemoryDesc,
    /// The packed position of the first byte.
    pub at: usize,
    /// The number of bytes.
    pub len: usize,
    /// The registration of the memory, if the device needs its local side registered; see
    /// [`Caps::register_min`](super::Caps::register_min).
    pub registration: Option<&'a Registration>,
}

impl MemoryPart<'_> {
    /// Returns the address of the first byte if the bytes are contiguous.
    pub fn contiguous(&self) -> Option<*mut u8> {
        Some(self.memory.contiguous()?.wrapping_add(self.at))
    }
}

/// The device's record of registered memory. The operation stores it.
///
/// Dropping the last copy ends the registration, unless the device has cached it. If a peer has a key, the owner drops
/// it only after the peer has reported that it no longer uses the key, or after [`quiesce`](super::Device::quiesce) has
/// ended. Otherwise, the owner drops it after the operation has completed.
#[derive(Clone)]
pub struct Registration {
    record: Arc<dyn Any + Send + Sync>,
    bytes: usize,
}

impl Registration {
    /// Wraps the device's own record. `bytes` is the number of bytes that were newly registered: 0 if the memory was
    /// registered before.
    pub fn new(record: impl Any + Send + Sync, bytes: usize) -> Self {
        Registration { record: Arc::new(record), bytes }
    }

    /// Returns the number of bytes that were newly registered.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the device's record, if it is one of this type.
    pub fn record<R: Any>(&self) -> Option<&R> {
        self.record.downcast_ref()
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registration")
    }
}

/// Read access to bytes that a peer has exported. Dropping it ends the access.
pub struct View {
    base: NonNull<u8>,
    len: usize,
    _taken: Box<dyn Any + Send + Sync>,
}

impl View {
    /// Makes a view of `len` bytes. The view drops `taken` when it is dropped.
    ///
    /// # Safety
    /// Until `taken` is dropped, the bytes are initialised and not written to.
    #[expect(unsafe_code, reason = "the caller promises that the bytes are readable")]
    pub unsafe fn new(base: NonNull<u8>, len: usize, taken: impl Any + Send + Sync) -> Self {
        View { base, len, _taken: Box::new(taken) }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: by the contract of `new`, the bytes are readable while `_taken` exists.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            std::slice::from_raw_parts(self.base.as_ptr(), self.len)
        }
    }
}

// SAFETY: it only reads the bytes, and the value that keeps them, `_taken`, is `Send`.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Send for View {}
// SAFETY: as above, `Sync`.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Sync for View {}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} B)", self.len)
    }
}

/// The bodies for which an operation that moves memory is worthwhile, and the limit of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeRange {
    /// The smallest body in bytes for which it is worthwhile.
    pub min: usize,
    /// The maximum number of bytes of one operation; longer bodies are split. 0 means that no body is moved.
    pub max: usize,
}

impl SizeRange {
    /// All sizes except 0.
    pub const ANY: SizeRange = SizeRange { min: 1, max: usize::MAX };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_has_1_to_128_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in [1, 8, 127, 128] {
            assert_eq!(RemoteKey::new(&bytes[..len]).unwrap().as_bytes(), &bytes[..len]);
        }
        for len in [0, 129, 256] {
            assert!(RemoteKey::new(&bytes[..len]).is_none(), "{len} bytes");
        }
        assert_eq!(format!("{:?}", RemoteKey::new(&[1, 0xab]).unwrap()), "RemoteKey(01ab)");
    }
}

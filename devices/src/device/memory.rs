//! Memory that a device moves by itself: how it is described, registered and named to a peer, and how a move ends.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use mpj_datatypes::{Datatype, Primitive};

use crate::buf::{Buf, Chain};

/// The longest [`RemoteKey`] in bytes.
pub const KEY_MAX: usize = 128;

/// Names registered memory to the peer that may get from it or put into it: bytes that only the device looks into.
///
/// Verbs need an address and an rkey, other interfaces up to 128 bytes.
#[derive(Clone, Copy)]
pub struct RemoteKey {
    len: u8,
    bytes: [u8; KEY_MAX],
}

impl RemoteKey {
    /// Makes a key of 1 to [`KEY_MAX`] bytes; `None` of none, or of more.
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; KEY_MAX];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        let len = u8::try_from(from.len()).ok().filter(|len| *len > 0)?;
        Some(RemoteKey { len, bytes })
    }

    /// Returns its bytes, as the device has packed them.
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

/// What the engine calls a move by; it comes back in [`Sink::completed`](super::Sink::completed) or
/// [`Sink::quiesced`](super::Sink::quiesced). As wide as the number that a work request has in verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OpToken(pub u64);

/// How far a move is when the call that posts it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpStatus {
    /// All bytes have moved: there is nothing to wait for.
    Done,
    /// The device has it in hand. Exactly one [`Sink::completed`](super::Sink::completed) follows, also if the peer dies.
    InProgress,
}

/// Whether a peer can still reach memory that it was given a key for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuiesceStatus {
    /// It cannot, from now on.
    Done,
    /// It may. Exactly one [`Sink::quiesced`](super::Sink::quiesced) follows when it cannot any more.
    InProgress,
}

/// The memory of one operation: `count` items of a datatype, or the pieces of a [`Chain`]. A description, which keeps
/// nothing alive.
#[derive(Clone, Debug)]
pub struct MemoryDesc {
    base: *mut u8,
    count: usize,
    datatype: Datatype,
    bytes: usize,
    chain: Option<Chain>,
}

// SAFETY: it is a description; what is done with the pointer is unsafe, and says what it needs.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Send for MemoryDesc {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Sync for MemoryDesc {}

impl MemoryDesc {
    /// Describes `count` items at `base`; `None` if their packed length overflows.
    pub fn new(base: *mut u8, count: usize, datatype: Datatype) -> Option<Self> {
        let bytes = datatype.packed_size(count).ok()?;
        Some(MemoryDesc { base, count, datatype, bytes, chain: None })
    }

    /// Describes what a message of so many bytes takes of it, where that is a part that can be told: of one run.
    pub(crate) fn truncated_to(self, bytes: usize) -> Self {
        if bytes >= self.bytes || self.run().is_none() {
            return self;
        }
        MemoryDesc { count: bytes, datatype: Primitive::Byte.into(), bytes, ..self }
    }

    /// Describes the items of a buffer.
    pub(crate) fn of(buf: &Buf) -> Option<Self> {
        let memory = MemoryDesc::new(buf.base(), buf.count(), buf.datatype().clone())?;
        Some(MemoryDesc { chain: buf.pieces().cloned(), ..memory })
    }

    /// Returns the pieces that the packed bytes lie in, if they are given so: base, count and datatype say nothing of where
    /// they are then.
    pub fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    /// Returns the address that the datatype counts from.
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

    /// Returns where the items begin if they are one run of [`bytes`](Self::bytes) bytes.
    pub fn run(&self) -> Option<*mut u8> {
        (self.datatype.is_contiguous() && self.chain.is_none()).then_some(self.base)
    }

    /// Returns the packed bytes `at..at + len` of it, as they are named to a device.
    pub fn part<'a>(
        &'a self,
        at: usize,
        len: usize,
        registration: Option<&'a Registration>,
    ) -> MemoryPart<'a> {
        debug_assert!(at.checked_add(len).is_some_and(|end| end <= self.bytes), "a part lies in its memory");
        MemoryPart { memory: self, at, len, registration, bidirectional: false }
    }
}

/// A range of the packed bytes of a [`MemoryDesc`]: one end of a move.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPart<'a> {
    /// The memory.
    pub memory: &'a MemoryDesc,
    /// The packed position of the first byte.
    pub at: usize,
    /// How many.
    pub len: usize,
    /// What the device has made of the memory, where it wants its own end registered; see
    /// [`Caps::register_from`](super::Caps::register_from).
    pub registration: Option<&'a Registration>,
    /// Whether the peer has bodies of this rank's to move itself: it has no time to share in moving this one.
    pub bidirectional: bool,
}

impl MemoryPart<'_> {
    /// Returns where the bytes begin if they are one run.
    pub fn run(&self) -> Option<*mut u8> {
        Some(self.memory.run()?.wrapping_add(self.at))
    }
}

/// What registered memory is to the device that was asked; the operation's record keeps it.
///
/// Dropping the last copy gives it back to the device, which may keep it in a cache: whoever drops it knows that no peer
/// uses a key of it any more, or has asked the device to [make sure](super::Device::quiesce).
#[derive(Clone)]
pub struct Registration {
    record: Arc<dyn Any + Send + Sync>,
    bytes: usize,
}

impl Registration {
    /// Makes a registration of the device's own record, for which `bytes` bytes were registered: none if the device knew the
    /// memory already.
    pub fn new(record: impl Any + Send + Sync, bytes: usize) -> Self {
        Registration { record: Arc::new(record), bytes }
    }

    /// Returns how many bytes were registered for it.
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

/// Bytes that a peer has lent, while this rank looks at them; dropping it gives them back.
pub struct View {
    base: NonNull<u8>,
    len: usize,
    _taken: Box<dyn Any + Send + Sync>,
}

impl View {
    /// Makes a view of `len` bytes, which ends when `taken` is dropped.
    ///
    /// # Safety
    /// Until then the bytes are initialised, and nobody writes them.
    #[expect(unsafe_code, reason = "the bytes are read on the device's word")]
    pub unsafe fn new(base: NonNull<u8>, len: usize, taken: impl Any + Send + Sync) -> Self {
        View { base, len, _taken: Box::new(taken) }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the promise of `new`.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            std::slice::from_raw_parts(self.base.as_ptr(), self.len)
        }
    }
}

// SAFETY: it is bytes that are only read, and the value of which they are kept, which is `Send`.
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

/// The sizes for which a way to move memory is there, and pays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// From so many bytes on it is worth it.
    pub min: usize,
    /// The most bytes of one move; longer bodies go in several.
    pub max: usize,
}

impl Reach {
    /// From the first byte on, however many.
    pub const ANY: Reach = Reach { min: 1, max: usize::MAX };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_from_1_to_128_bytes() {
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

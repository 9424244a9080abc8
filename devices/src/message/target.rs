//! Memory to receive into.

use std::fmt;
use std::sync::{Arc, OnceLock};

use mpj_datatypes::{InvalidValueError, Primitive};
use mpj_pool::{DefaultBlock, Pool, RawBuffer, Region};

use super::{BounceBuffer, Envelope, KeepAlive};
use crate::buf::{Buf, BufError};
use crate::copy;
use crate::data_path::DataPath;
use crate::device::MemoryDesc;
use crate::fault::Fault;
use crate::prefetch;

const CACHE_LINE: usize = 64;
/// The maximum number of bytes to prefetch for an expected message. The hardware prefetches the bytes after them.
const PREFETCH_BYTES: usize = 4096;

/// Memory to receive into.
///
/// # Invariants
/// 1. Until the target is dropped, the engine and its devices may write the bytes that the items of `buf` name, and
///    nobody else accesses them. `buf` is not a chain.
/// 2. All packed bytes after the first `landed` are unchanged since they were last known to be valid values.
/// 3. The items are `bytes` bytes when packed.
/// 4. Until the target is dropped, the region that `buf` names exists, if it names one.
/// 5. `block`, if present, has room for the accepted message, which is written there. Then `landed` counts
///    bytes of the block, and the items do not change before the message is complete.
pub struct Target {
    buf: Buf,
    bytes: usize,
    landed: usize,
    path: Option<DataPath>,
    block: Option<Box<BounceBuffer>>,
    keep: Option<KeepAlive>,
}

// SAFETY: invariant 1 gives exclusive use, on any thread.
unsafe impl Send for Target {}
// SAFETY: every method that writes takes `&mut self`; the others only read the description.
unsafe impl Sync for Target {}

/// The place for the block of a message of unknown length: see [`Target::of_any_length`].
#[derive(Debug, Default)]
pub struct BlockSlot(OnceLock<DefaultBlock>);

impl BlockSlot {
    /// Returns the block, if a message that is not empty has matched. If its receive failed, the contents of the block
    /// are unspecified.
    pub fn into_block(self) -> Option<DefaultBlock> {
        self.0.into_inner()
    }
}

impl Target {
    /// Creates a target from memory to receive into.
    ///
    /// # Errors
    /// As [`Buf::bytes`]; [`BufError::Chain`].
    ///
    /// # Safety
    /// Invariants 1 and 4 of [`Target`].
    #[inline]
    pub unsafe fn new(buf: Buf, keep: Option<KeepAlive>) -> Result<Self, BufError> {
        let bytes = buf.bytes()?;
        if buf.pieces().is_some() {
            return Err(BufError::Chain);
        }
        Ok(Target::of(buf, bytes, None, keep))
    }

    /// Creates a target for a message of any length. The message is received into a new block of the global pool, and
    /// `slot` then contains this block; for an empty message, `slot` stays empty.
    pub fn of_any_length(slot: Arc<BlockSlot>) -> Self {
        // Invariants 1, 3 and 4: the items exist only after `alloc_block`.
        Target::of(Buf::new(std::ptr::null_mut(), 0, Primitive::Packed), 0, None, Some(slot))
    }

    /// Allocates the block for a message if this is a target for any length.
    #[cold]
    fn alloc_block(&mut self, message: &Envelope) -> Result<(), Fault> {
        let &Envelope { source, tag, immediate, bytes, .. } = message;
        let slot = self.keep.as_ref().and_then(|keep| keep.downcast_ref::<BlockSlot>());
        let Some(BlockSlot(slot)) = slot.filter(|slot| slot.0.get().is_none()) else {
            return Err(Fault::Truncated { source, tag, immediate, sent: bytes, room: self.bytes });
        };
        let block = mpj_pool::global().alloc(bytes).map_err(|_| Fault::NoMemory { bytes })?;
        let buf = Buf::in_block(&block, 0, bytes, Primitive::Packed);
        if slot.set(block).is_err() {
            // Another target has the same slot, and has filled it meanwhile.
            return Err(Fault::Truncated { source, tag, immediate, sent: bytes, room: self.bytes });
        }
        // Invariants 1 and 4: `keep` owns the block, which nobody accesses before this target is dropped.
        (self.buf, self.bytes) = (buf, bytes);
        Ok(())
    }

    /// The caller guarantees the invariants.
    fn of(buf: Buf, bytes: usize, path: Option<DataPath>, keep: Option<KeepAlive>) -> Self {
        Target { buf, bytes, landed: 0, path, block: None, keep }
    }

    /// Writes a target of `bytes` bytes to `place`, field by field. A move of a whole target would load several fields
    /// at once that were just stored one by one, and the processor delays such a load.
    ///
    /// # Safety
    /// `place` is valid for writes, and the invariants of [`Target`] hold.
    #[inline(always)]
    pub(crate) unsafe fn write_at(
        place: *mut Target,
        buf: Buf,
        bytes: usize,
        path: Option<DataPath>,
        keep: Option<KeepAlive>,
    ) {
        macro_rules! put {
            ($($field:ident: $value:expr),*) => {$(
                // SAFETY: the caller's promise.
                let field = unsafe { &raw mut (*place).$field };
                // SAFETY: as above.
                unsafe { field.write($value) };
            )*};
        }
        put!(buf: buf, bytes: bytes, landed: 0, path: path, block: None, keep: keep);
    }

    /// Sets the data path of messages to this target; `None` leaves the choice to the engine.
    #[inline]
    pub fn with_path(mut self, path: Option<DataPath>) -> Self {
        self.path = path;
        self
    }

    pub(crate) fn path(&self) -> Option<DataPath> {
        self.path
    }

    #[inline]
    pub(crate) fn or_path(&mut self, path: DataPath) {
        self.path = self.path.or(Some(path));
    }

    /// Returns the length of the memory in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks length and type of a message before any of it is written. For `Buffered`, then allocates a bounce buffer.
    #[inline]
    pub(crate) fn accepts(&mut self, message: &Envelope) -> Result<(), Fault> {
        let own = self.primitive().map_or(0, |p| p as u8);
        let same_primitive = message.code == own && own != 0;
        if !(same_primitive && message.bytes <= self.bytes && self.is_whole(message.bytes)) {
            self.check_slow(message)?;
        }
        if self.path == Some(DataPath::Buffered) {
            self.add_bounce(message.bytes);
        }
        Ok(())
    }

    /// Allocates a bounce buffer for a message, which may be much shorter than the target. If the allocation fails, the
    /// message is received without one.
    #[cold]
    fn add_bounce(&mut self, bytes: usize) {
        if self.block.is_none() && bytes > 0 {
            match BounceBuffer::alloc(bytes) {
                Some(block) => self.use_bounce(block),
                None => self.path = None,
            }
        }
    }

    /// Sets the bounce buffer for an accepted message of which nothing has arrived. The message fits into the buffer.
    pub(crate) fn use_bounce(&mut self, block: BounceBuffer) {
        self.block = Some(Box::new(block));
    }

    /// Returns how many bytes may be written: the length of the target, limited by the size of the bounce buffer.
    #[inline]
    fn capacity(&self) -> usize {
        self.block.as_ref().map_or(self.bytes, |block| block.capacity().min(self.bytes))
    }

    #[inline]
    fn primitive(&self) -> Option<Primitive> {
        self.buf.datatype().single_primitive()
    }

    #[inline]
    fn is_whole(&self, bytes: usize) -> bool {
        self.primitive().is_some_and(|p| bytes & (p.size() - 1) == 0)
    }

    #[cold]
    fn check_slow(&mut self, message: &Envelope) -> Result<(), Fault> {
        if message.bytes > self.bytes {
            self.alloc_block(message)?;
        }
        if message.fits(self.buf.datatype(), self.buf.count()) {
            return Ok(());
        }
        Err(message.mismatch(self.buf.datatype(), self.bytes))
    }

    /// Returns the address for a body of `len` bytes at `position`, if the body may be written as one run.
    #[inline]
    pub(crate) fn contiguous_mut(&mut self, position: usize, len: usize) -> Option<*mut u8> {
        let end = position.checked_add(len).filter(|end| *end <= self.capacity())?;
        if let Some(block) = &self.block {
            let run = block.as_ptr().as_ptr().wrapping_add(position);
            self.landed = self.landed.max(end);
            return Some(run);
        }
        if !self.buf.datatype().is_contiguous() {
            return None;
        }
        // The caller might write any part of the run.
        self.landed = self.landed.max(end);
        Some(self.buf.base().wrapping_add(position))
    }

    /// Describes the memory to a device, which writes the packed bytes `position..position + len`; `None` if the range
    /// exceeds the memory.
    pub(crate) fn for_device(&mut self, position: usize, len: usize) -> Option<MemoryDesc> {
        let end = position.checked_add(len).filter(|end| *end <= self.capacity())?;
        self.landed = self.landed.max(end);
        self.memory()
    }

    pub(crate) fn memory(&self) -> Option<MemoryDesc> {
        match &self.block {
            Some(block) => MemoryDesc::new(block.as_ptr().as_ptr(), self.capacity(), Primitive::Byte.into()),
            None => MemoryDesc::of(&self.buf),
        }
    }

    /// Returns whether a body is written as one run.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.block.is_some() || self.buf.datatype().is_contiguous()
    }

    pub(crate) fn region(&self) -> Option<&Region> {
        if let Some(block) = &self.block {
            return block.region();
        }
        // SAFETY: invariant 4.
        unsafe { self.buf.region() }
    }

    /// Prefetches the first cache lines of plain memory, because stores that miss the cache delay later stores.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        if self.buf.is_plain() {
            for at in (0..self.bytes.min(PREFETCH_BYTES)).step_by(CACHE_LINE) {
                prefetch::prefetch_write(self.buf.base().wrapping_add(at));
            }
        }
    }

    /// Writes packed bytes at `position`; bytes beyond the end are dropped. Returns the number of bytes written.
    #[inline]
    pub(crate) fn write(&mut self, position: usize, from: &[u8]) -> usize {
        let len = from.len().min(self.capacity().saturating_sub(position));
        if len == 0 {
            return 0;
        }
        if let Some(block) = &mut self.block {
            copy::fill(&mut block.as_uninit_mut()[position..position + len], &from[..len]);
            self.landed = self.landed.max(position + len);
            return len;
        }
        self.landed = self.landed.max(position + len);
        if self.buf.datatype().is_contiguous() {
            // SAFETY: invariant 1, and `position + len` was cut to the length of the items.
            let to = unsafe { self.buf.base().add(position) };
            // SAFETY: invariant 1 for `to`; `from` is a slice. Only the source of a message to this rank itself could
            // overlap with `to`, and `copy` allows that.
            unsafe { copy::copy(from.as_ptr(), to, len) };
            return len;
        }
        // SAFETY: invariant 1.
        unsafe { self.buf.datatype().unpack(self.buf.base(), self.buf.count(), position, &from[..len]) }
    }

    /// Unpacks the bounce buffer, if there is one, and then validates the items before the user may access them.
    #[inline]
    pub(crate) fn finish(&mut self, message: &Envelope) -> Result<(), Fault> {
        if self.block.is_some() {
            self.unpack(message.bytes);
        }
        let valid = if self.buf.datatype().needs_validation() { self.check(message.bytes) } else { Ok(()) };
        // Invariant 2: the message was checked just now, or every bit pattern is a valid value.
        self.landed = 0;
        let &Envelope { source, tag, immediate, .. } = message;
        valid.map_err(|_| Fault::InvalidValue { source, tag, immediate })
    }

    #[cold]
    fn unpack(&mut self, bytes: usize) {
        let Some(block) = self.block.take() else { return };
        let len = bytes.min(std::mem::take(&mut self.landed));
        // SAFETY: all of the message was written to the block: `finish` is called only for complete messages.
        let packed = unsafe { block.as_uninit()[..len].assume_init_ref() };
        self.write(0, packed);
    }

    #[inline]
    pub(crate) fn is_trivial_drop(&self) -> bool {
        self.landed == 0 && self.buf.is_plain() && self.keep.is_none() && self.block.is_none()
    }

    /// Drops the target. The common case, in which nothing has to be freed, is checked inline.
    #[inline]
    pub(crate) fn drop_fast(self) {
        if self.is_trivial_drop() {
            std::mem::forget(self);
        }
    }

    #[inline]
    pub(super) fn validate_copied(mut self) -> Result<(), InvalidValueError> {
        let valid = if self.buf.datatype().needs_validation() { self.check(self.landed) } else { Ok(()) };
        // Invariant 2.
        self.landed = 0;
        valid
    }

    #[cold]
    fn check(&mut self, bytes: usize) -> Result<(), InvalidValueError> {
        // SAFETY: invariant 1, and what has landed is initialised.
        unsafe { self.buf.datatype().validate(self.buf.base(), self.buf.count(), bytes) }
    }

    /// Overwrites the received part of a failed message with zeros, which are valid values of every primitive. The
    /// received bytes might be invalid values, and the earlier contents are lost.
    #[cold]
    fn scrub(&mut self) {
        if !self.buf.datatype().needs_validation() {
            return;
        }
        let (datatype, count) = (self.buf.datatype(), self.buf.count());
        // If the last byte is in the middle of a primitive, the whole primitive is overwritten.
        let is_end = |end: &usize| datatype.element_count_in(count, *end).is_some();
        let end = (self.landed..self.bytes).find(is_end).unwrap_or(self.bytes);
        const ZEROS: [u8; 4096] = [0; 4096];
        for position in (0..end).step_by(ZEROS.len()) {
            let len = ZEROS.len().min(end - position);
            // SAFETY: invariant 1.
            unsafe { datatype.unpack(self.buf.base(), count, position, &ZEROS[..len]) };
        }
    }
}

impl Drop for Target {
    /// Releases the memory. Received parts of a failed message are overwritten if they might be invalid values.
    #[inline]
    fn drop(&mut self) {
        // Bytes that arrived in a bounce buffer have not touched the items.
        if self.landed != 0 && self.block.is_none() {
            self.scrub();
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({} B)", self.bytes)
    }
}

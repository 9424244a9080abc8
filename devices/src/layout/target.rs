//! Memory to receive into.

use std::fmt;

use mpj_datatypes::{InvalidValueError, Primitive};
use mpj_pool::{RawBuffer, Region};

use super::{BounceBuffer, Envelope, KeepAlive};
use crate::buf::{Buf, BufError};
use crate::copy;
use crate::device::MemoryDesc;
use crate::fault::Fault;
use crate::hint;
use crate::path::DataPath;

/// Bytes of a cache line, and how many bytes are asked for where a message is awaited: what comes behind is found by the hardware.
const LINE: usize = 64;
const ASKED: usize = 4096;

/// Memory to receive into.
///
/// # Invariants
/// 1. Until it is dropped, the bytes that the items of `buf`, which is no chain, name may be written by the engine, and
///    nobody else reads or writes them.
/// 2. Only the first `landed` packed bytes may have been written since they were last known to be values.
/// 3. The items are `bytes` bytes when packed.
/// 4. Until it is dropped, the region that `buf` names is there, if it names one.
/// 5. `block`, if there is one, has room for the message that was accepted. It lands there, and `landed` is about it: the
///    items stay as they are until the message has come whole.
pub struct Target {
    buf: Buf,
    bytes: usize,
    landed: usize,
    path: Option<DataPath>,
    block: Option<Box<BounceBuffer>>,
    keep: Option<KeepAlive>,
}

// SAFETY: invariant 1 gives exclusive use, on whichever thread.
unsafe impl Send for Target {}
// SAFETY: every method that writes takes `&mut self`; the others only read the description.
unsafe impl Sync for Target {}

impl Target {
    /// Takes room to receive into.
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

    /// Takes room of so many bytes, by the invariants.
    fn of(buf: Buf, bytes: usize, path: Option<DataPath>, keep: Option<KeepAlive>) -> Self {
        Target { buf, bytes, landed: 0, path, block: None, keep }
    }

    /// Takes room of so many bytes, by the invariants, and writes that down at `place`: field by field, as a load of several
    /// that were just stored one by one would wait for them.
    ///
    /// # Safety
    /// A target may be written there.
    #[inline(always)]
    pub(crate) unsafe fn put(
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

    /// Says by which way messages should come to it, if not by that of all others.
    #[inline]
    pub fn by(mut self, path: Option<DataPath>) -> Self {
        self.path = path;
        self
    }

    /// Returns by which way messages should come, if it was chosen.
    pub(crate) fn path(&self) -> Option<DataPath> {
        self.path
    }

    /// Has messages come by this way, unless one was chosen before.
    #[inline]
    pub(crate) fn or_path(&mut self, path: DataPath) {
        self.path = self.path.or(Some(path));
    }

    /// Returns the bytes there is room for.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks length and type of a message before one byte of it lands, and takes the block that it lands in first, if it
    /// goes through one.
    #[inline]
    pub(crate) fn accepts(&mut self, message: &Envelope) -> Result<(), Fault> {
        let mine = self.primitive().map_or(0, |p| p as u8);
        let alike = message.code == mine && mine != 0;
        if !(alike && message.bytes <= self.bytes && self.whole(message.bytes)) {
            self.check_slow(message)?;
        }
        if self.path == Some(DataPath::Buffered) {
            self.add_bounce(message.bytes);
        }
        Ok(())
    }

    /// Takes a block for a message, which may be much shorter than the room. Where there is no memory for it the message
    /// goes without.
    #[cold]
    fn add_bounce(&mut self, bytes: usize) {
        if self.block.is_none() && bytes > 0 {
            match BounceBuffer::alloc(bytes) {
                Some(block) => self.use_bounce(block),
                None => self.path = None,
            }
        }
    }

    /// Has a message that was accepted, and of which nothing has landed, come to a block that has room for it.
    pub(crate) fn use_bounce(&mut self, block: BounceBuffer) {
        self.block = Some(Box::new(block));
    }

    /// Returns the bytes that may land: as many as there is room for, and no more than a block holds.
    #[inline]
    fn capacity(&self) -> usize {
        self.block.as_ref().map_or(self.bytes, |block| block.capacity().min(self.bytes))
    }

    /// The primitive all of it is made of.
    #[inline]
    fn primitive(&self) -> Option<Primitive> {
        self.buf.datatype().single_primitive()
    }

    /// Whether `bytes` is a whole number of this target's primitives.
    #[inline]
    fn whole(&self, bytes: usize) -> bool {
        self.primitive().is_some_and(|p| bytes & (p.size() - 1) == 0)
    }

    #[cold]
    fn check_slow(&self, message: &Envelope) -> Result<(), Fault> {
        if message.bytes > self.bytes {
            let (source, tag) = (message.source, message.tag);
            return Err(Fault::Truncated { source, tag, sent: message.bytes, room: self.bytes });
        }
        if message.fits(self.buf.datatype(), self.buf.count()) {
            return Ok(());
        }
        Err(message.mismatch(self.buf.datatype(), self.bytes))
    }

    /// Returns where a body of `len` bytes at `position` may be written as one run, if it may.
    #[inline]
    pub(crate) fn run(&mut self, position: usize, len: usize) -> Option<*mut u8> {
        let end = position.checked_add(len).filter(|end| *end <= self.capacity())?;
        if let Some(block) = &self.block {
            let run = block.as_ptr().as_ptr().wrapping_add(position);
            self.landed = self.landed.max(end);
            return Some(run);
        }
        if !self.buf.datatype().is_contiguous() {
            return None;
        }
        // Who is given the run may write any part of it.
        self.landed = self.landed.max(end);
        Some(self.buf.base().wrapping_add(position))
    }

    /// Describes the memory to a device, which writes the packed bytes `position..position + len`; `None` if there are not
    /// as many.
    pub(crate) fn for_device(&mut self, position: usize, len: usize) -> Option<MemoryDesc> {
        let end = position.checked_add(len).filter(|end| *end <= self.capacity())?;
        self.landed = self.landed.max(end);
        self.memory()
    }

    /// Describes the memory to a device, which does not write to it yet.
    pub(crate) fn memory(&self) -> Option<MemoryDesc> {
        match &self.block {
            Some(block) => MemoryDesc::new(block.as_ptr().as_ptr(), self.capacity(), Primitive::Byte.into()),
            None => MemoryDesc::of(&self.buf),
        }
    }

    /// Returns the region of a pool that the memory lies in, if it is known.
    pub(crate) fn region(&self) -> Option<&Region> {
        if let Some(block) = &self.block {
            return block.region();
        }
        // SAFETY: invariant 4.
        unsafe { self.buf.region() }
    }

    /// Asks for the first lines, which a message will be written to: where they are far away, what is sent after it would
    /// wait for them.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        if self.buf.is_plain() {
            for at in (0..self.bytes.min(ASKED)).step_by(LINE) {
                hint::prefetch_write(self.buf.base().wrapping_add(at));
            }
        }
    }

    /// Lands packed bytes at `position`; bytes beyond the end are dropped. Returns how many landed.
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
            // SAFETY: invariant 1 for `to`. `from` is a message body: a ring cell, a fragment, a pool block, or the
            // source of a self-send, which a sound program does not overlap with a receive; `copy` allows even that.
            unsafe { copy::copy(from.as_ptr(), to, len) };
            return len;
        }
        // SAFETY: invariant 1.
        unsafe { self.buf.datatype().unpack(self.buf.base(), self.buf.count(), position, &from[..len]) }
    }

    /// Checks what must be checked before the user may look at what has landed of a message.
    #[inline]
    pub(crate) fn finish(&mut self, message: &Envelope) -> Result<(), Fault> {
        if self.block.is_some() {
            self.unpack(message.bytes);
        }
        let valid = if self.buf.datatype().needs_validation() { self.check(message.bytes) } else { Ok(()) };
        // Invariant 2: all of it was checked just now, or any bits are values.
        self.landed = 0;
        valid.map_err(|_| Fault::InvalidValue { source: message.source, tag: message.tag })
    }

    /// Moves a message that has come whole out of the block it came to.
    #[cold]
    fn unpack(&mut self, bytes: usize) {
        let Some(block) = self.block.take() else { return };
        let len = bytes.min(std::mem::take(&mut self.landed));
        // SAFETY: all of the message was written to the block: it has landed, and `finish` is called of whole ones alone.
        let packed = unsafe { block.as_uninit()[..len].assume_init_ref() };
        self.write(0, packed);
    }

    /// Whether nothing happens when it is dropped.
    #[inline]
    pub(crate) fn is_trivial_drop(&self) -> bool {
        self.landed == 0 && self.buf.is_plain() && self.keep.is_none() && self.block.is_none()
    }

    /// Gives it back: what happens is what would if it were dropped, looked at first.
    #[inline]
    pub(crate) fn release(self) {
        if self.is_trivial_drop() {
            std::mem::forget(self);
        }
    }

    /// Gives memory back into which items of this program were copied, and checks them.
    #[inline]
    pub(super) fn mark_valid(mut self) -> Result<(), InvalidValueError> {
        let valid = if self.buf.datatype().needs_validation() { self.check(self.landed) } else { Ok(()) };
        // Invariant 2.
        self.landed = 0;
        valid
    }

    /// Checks the first `bytes` packed bytes, which have landed in the items, and replaces invalid values.
    #[cold]
    fn check(&mut self, bytes: usize) -> Result<(), InvalidValueError> {
        // SAFETY: invariant 1, and what has landed is initialised.
        unsafe { self.buf.datatype().validate(self.buf.base(), self.buf.count(), bytes) }
    }

    /// Overwrites what has landed of a message that will not come to its end with zeros, which are values of every
    /// primitive: what has landed may be none, and what was there before is gone.
    #[cold]
    fn scrub(&mut self) {
        if !self.buf.datatype().needs_validation() {
            return;
        }
        let (datatype, count) = (self.buf.datatype(), self.buf.count());
        // The primitive in whose middle the last byte landed is scrubbed as a whole.
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
    /// Gives the memory back: no part of a message that has failed is left in it that could be no value of its type.
    #[inline]
    fn drop(&mut self) {
        // What has landed in a block has not touched the items.
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

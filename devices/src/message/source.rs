//! Memory to send from.

use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use mpj_datatypes::{InvalidValueError, Primitive, Signature};
use mpj_pool::{RawBuffer, Region};

use super::{BounceBuffer, Envelope, KeepAlive, MessageTag, Pieces, Target};
use crate::buf::{Buf, BufError};
use crate::copy;
use crate::data_path::DataPath;
use crate::device::{Body, MemoryDesc, PackSource, PackedBody};

/// Memory to send from.
///
/// # Invariants
/// 1. Until the source is dropped, the bytes that the items of `buf` name are initialised and not written to. If `keep`
///    is present, this holds as long as a copy of `keep` exists.
/// 2. The items are `bytes` bytes when packed.
/// 3. Until the source is dropped, the region that `buf` names exists, if it names one.
pub struct Source {
    buf: Buf,
    bytes: usize,
    path: Option<DataPath>,
    is_lendable: bool,
    keep: Option<KeepAlive>,
}

// SAFETY: invariant 1 holds on every thread; reading shared bytes needs no more.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    /// Creates a source from the items to send.
    ///
    /// # Errors
    /// As [`Buf::bytes`].
    ///
    /// # Safety
    /// Invariants 1 and 3 of [`Source`].
    #[inline(always)]
    pub unsafe fn new(buf: Buf, keep: Option<KeepAlive>) -> Result<Self, BufError> {
        match buf.plain_bytes() {
            Some(bytes) => Ok(Source { buf, bytes, path: None, is_lendable: true, keep }),
            None => Self::of_any(buf, keep),
        }
    }

    fn of_any(buf: Buf, keep: Option<KeepAlive>) -> Result<Self, BufError> {
        let bytes = buf.bytes()?;
        Ok(Source { buf, bytes, path: None, is_lendable: true, keep })
    }

    /// Sets the path that the message should take; `None` leaves the choice to the engine.
    #[inline]
    pub fn with_path(self, path: Option<DataPath>) -> Self {
        Source { path, ..self }
    }

    /// Forbids that a receiver reads the message in place, so that no copy of `keep` exists after the completion.
    #[inline]
    pub fn not_lent(self) -> Self {
        Source { is_lendable: false, ..self }
    }

    /// Returns whether a receiver may read the message in place. The device then has a copy of `keep`.
    #[inline]
    pub(crate) fn is_lendable(&self) -> bool {
        self.is_lendable && self.keep.is_some()
    }

    #[inline]
    pub(crate) fn path(&self) -> Option<DataPath> {
        self.path
    }

    /// Packs the message into a bounce buffer, and drops the old source.
    pub(crate) fn pack_into_bounce(self, mut block: BounceBuffer) -> Source {
        let len = self.pack(0, &mut block.as_uninit_mut()[..self.bytes]);
        debug_assert_eq!(len, self.bytes, "all of it is packed");
        let buf = Buf::in_block(&*block, 0, len, Primitive::Byte);
        // Invariants 1 and 3: the block was written up to `len`, and `keep` owns the block.
        Source { buf, bytes: len, keep: Some(Arc::new(block)), ..self }
    }

    #[inline]
    pub(crate) fn keep_alive(&self) -> Option<&KeepAlive> {
        self.keep.as_ref()
    }

    /// Returns the length of the message in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Source {
        let empty = Source { buf: Buf::empty(), bytes: 0, keep: None, path: self.path, is_lendable: false };
        std::mem::replace(self, empty)
    }

    #[inline]
    pub(crate) fn code(&self) -> Option<u8> {
        self.buf.datatype().single_primitive().map(|primitive| primitive as u8)
    }

    #[inline]
    pub(crate) fn envelope(&self, source: u32, tag: MessageTag) -> Envelope {
        let datatype = self.buf.datatype();
        let (code, signature) = match datatype.single_primitive() {
            Some(primitive) => (primitive as u8, Signature::EMPTY),
            None => (0, datatype.signature().repeat(self.buf.count() as u64)),
        };
        let MessageTag { tag, immediate } = tag;
        Envelope { source, tag, immediate, code, signature, bytes: self.bytes }
    }

    #[inline]
    pub(crate) fn contiguous(&self) -> Option<&[u8]> {
        if self.bytes == 0 {
            return Some(&[]);
        }
        let is_run = self.buf.datatype().is_contiguous() && self.buf.pieces().is_none();
        // SAFETY: invariants 1 and 2; contiguous items are `bytes` bytes from the base.
        is_run.then(|| unsafe { std::slice::from_raw_parts(self.buf.base(), self.bytes) })
    }

    #[inline]
    pub(crate) fn whole(&self) -> Body<'_> {
        match self.contiguous() {
            Some(bytes) => Body::Bytes(bytes),
            None => self.body(0, self.bytes),
        }
    }

    /// Drops the source. The common case, in which nothing has to be freed, is checked inline.
    #[inline]
    pub(crate) fn drop_fast(self) {
        if self.buf.is_plain() && self.keep.is_none() {
            std::mem::forget(self);
        }
    }

    pub(crate) fn body(&self, position: usize, len: usize) -> Body<'_> {
        match (self.contiguous(), self.buf.pieces()) {
            (Some(bytes), _) => Body::Bytes(&bytes[position..position + len]),
            (None, Some(chain)) => Body::Chain(Pieces { range: chain.range(position, len) }),
            (None, None) => {
                Body::Packed(PackedBody::new(self, position, len).in_short_blocks(self.has_short_blocks()))
            }
        }
    }

    /// Returns whether the message consists of blocks of 32 to 511 bytes whose length is not a multiple of 64.
    fn has_short_blocks(&self) -> bool {
        self.buf.datatype().block_len().is_some_and(|len| (32..512).contains(&len) && !len.is_multiple_of(64))
    }

    #[inline]
    pub(crate) fn region(&self) -> Option<&Region> {
        // SAFETY: invariant 3.
        unsafe { self.buf.region() }
    }

    /// Packs the message, from byte `position` on, into `out` as far as it fits. Returns the number of bytes written.
    pub(crate) fn pack(&self, position: usize, out: &mut [MaybeUninit<u8>]) -> usize {
        if let Some(bytes) = self.contiguous() {
            let rest = bytes.get(position..).unwrap_or(&[]);
            let len = rest.len().min(out.len());
            copy::fill(&mut out[..len], &rest[..len]);
            return len;
        }
        if let Some(chain) = self.buf.pieces() {
            let pieces = Pieces { range: chain.range(position, out.len()) };
            let len = pieces.len();
            pieces.write(&mut out[..len]);
            return len;
        }
        // SAFETY: invariant 1.
        unsafe { self.buf.datatype().pack(self.buf.base(), self.buf.count(), position, out) }
    }
}

// SAFETY: `Source::pack` returns the number of bytes written; `pack` asserts that this is the length of the room.
unsafe impl PackSource for Source {
    fn pack(&self, position: usize, room: &mut [MaybeUninit<u8>]) {
        let len = Source::pack(self, position, room);
        assert!(len == room.len(), "the room does not extend beyond the message");
    }
}

impl Source {
    pub(crate) fn memory(&self) -> Option<MemoryDesc> {
        MemoryDesc::of(&self.buf)
    }

    /// Copies the items into other memory, as a message would.
    ///
    /// # Errors
    /// The first invalid `bool` or `char` that was copied. All invalid values are replaced, as in a received message.
    #[inline]
    pub fn copy_items(&self, mut target: Target) -> Result<(), InvalidValueError> {
        self.copy_to(&mut target);
        target.validate_copied()
    }

    /// Copies the message into a target, as far as it fits. If the source is not contiguous, the bytes go through a
    /// small buffer on the stack.
    pub(crate) fn copy_to(&self, target: &mut Target) {
        if let Some(bytes) = self.contiguous() {
            target.write(0, bytes);
            return;
        }
        let mut piece = [MaybeUninit::<u8>::uninit(); 4096];
        let mut position = 0;
        while position < self.bytes {
            let len = self.pack(position, &mut piece);
            if len == 0 {
                return;
            }
            // SAFETY: `pack` has written the first `len` bytes.
            let bytes = unsafe { piece[..len].assume_init_ref() };
            target.write(position, bytes);
            position += len;
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} B)", self.bytes)
    }
}

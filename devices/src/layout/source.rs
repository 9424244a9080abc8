//! Memory to send from.

use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use mpj_datatypes::{InvalidValueError, Primitive, Signature};
use mpj_pool::{RawBuffer, Region};

use super::{BounceBuffer, Envelope, KeepAlive, Pieces, Target};
use crate::buf::{Buf, BufError};
use crate::copy;
use crate::device::{Body, MemoryDesc, Packed, PackedBody};
use crate::path::DataPath;

/// Memory to send from.
///
/// # Invariants
/// 1. Until it is dropped, and if there is a `keep` as long as there is a copy of that, the bytes that the items of `buf` name
///    are initialised, and nobody writes them.
/// 2. They are `bytes` bytes when packed.
/// 3. Until it is dropped, the region that `buf` names is there, if it names one.
pub struct Source {
    buf: Buf,
    bytes: usize,
    path: Option<DataPath>,
    keep: Option<KeepAlive>,
}

// SAFETY: invariant 1 holds on every thread; reading shared bytes needs no more.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    /// Takes items to send.
    ///
    /// # Errors
    /// As [`Buf::bytes`].
    ///
    /// # Safety
    /// Invariants 1 and 3 of [`Source`].
    #[inline(always)]
    pub unsafe fn new(buf: Buf, keep: Option<KeepAlive>) -> Result<Self, BufError> {
        match buf.plain_bytes() {
            Some(bytes) => Ok(Source { buf, bytes, path: None, keep }),
            None => Self::of_any(buf, keep),
        }
    }

    fn of_any(buf: Buf, keep: Option<KeepAlive>) -> Result<Self, BufError> {
        let bytes = buf.bytes()?;
        Ok(Source { buf, bytes, path: None, keep })
    }

    /// Says by which way the message should go, if not by that of all others.
    #[inline]
    pub fn with_path(self, path: Option<DataPath>) -> Self {
        Source { path, ..self }
    }

    /// Returns by which way it should go, if it says so.
    #[inline]
    pub(crate) fn path(&self) -> Option<DataPath> {
        self.path
    }

    /// Packs the message into a block, and lets go of the memory.
    pub(crate) fn pack_into_bounce(self, mut block: BounceBuffer) -> Source {
        let len = self.pack(0, &mut block.as_uninit_mut()[..self.bytes]);
        debug_assert_eq!(len, self.bytes, "all of it is packed");
        let buf = Buf::in_block(&*block, 0, len, Primitive::Byte);
        // Invariants: the block was written up to `len`, and lives as long as the source does.
        Source { buf, bytes: len, path: self.path, keep: Some(Arc::new(block)) }
    }

    /// Returns what keeps the memory, if the operation owns it.
    pub(crate) fn keep_alive(&self) -> Option<&KeepAlive> {
        self.keep.as_ref()
    }

    /// Returns the length of the message in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes it out, and leaves a message without bytes.
    #[inline]
    pub(crate) fn take(&mut self) -> Source {
        std::mem::replace(self, Source { buf: Buf::empty(), bytes: 0, path: self.path, keep: None })
    }

    /// Returns the code of the primitive it is made of, unless it is mixed.
    #[inline]
    pub(crate) fn code(&self) -> Option<u8> {
        self.buf.datatype().single_primitive().map(|primitive| primitive as u8)
    }

    #[inline]
    pub(crate) fn envelope(&self, source: u32, tag: i32) -> Envelope {
        let datatype = self.buf.datatype();
        let (code, signature) = match datatype.single_primitive() {
            Some(primitive) => (primitive as u8, Signature::EMPTY),
            None => (0, datatype.signature().repeat(self.buf.count() as u64)),
        };
        Envelope { source, tag, code, signature, bytes: self.bytes }
    }

    /// Returns the message as one slice if it lies that way.
    #[inline]
    pub(crate) fn contiguous(&self) -> Option<&[u8]> {
        if self.bytes == 0 {
            return Some(&[]);
        }
        let is_run = self.buf.datatype().is_contiguous() && self.buf.pieces().is_none();
        // SAFETY: invariants 1 and 2; contiguous items are `bytes` bytes from the base.
        is_run.then(|| unsafe { std::slice::from_raw_parts(self.buf.base(), self.bytes) })
    }

    /// Returns all of it, as a device takes it.
    #[inline]
    pub(crate) fn whole(&self) -> Body<'_> {
        match self.contiguous() {
            Some(bytes) => Body::Bytes(bytes),
            None => self.body(0, self.bytes),
        }
    }

    /// Lets go of the memory; a plain buffer of primitives, as most are, holds nothing that must be dropped.
    #[inline]
    pub(crate) fn drop_fast(self) {
        if self.buf.is_plain() && self.keep.is_none() {
            std::mem::forget(self);
        }
    }

    /// Returns `len` bytes from `position` on, as a device takes them.
    pub(crate) fn body(&self, position: usize, len: usize) -> Body<'_> {
        match (self.contiguous(), self.buf.pieces()) {
            (Some(bytes), _) => Body::Bytes(&bytes[position..position + len]),
            (None, Some(chain)) => Body::Chain(Pieces { cut: chain.cut(position, len) }),
            (None, None) => {
                Body::Fill(PackedBody::new(self, position, len).in_short_blocks(self.is_ragged()))
            }
        }
    }

    /// Whether it lies in short blocks of which the packed form has no whole cache lines.
    fn is_ragged(&self) -> bool {
        self.buf.datatype().block_len().is_some_and(|len| (32..512).contains(&len) && !len.is_multiple_of(64))
    }

    /// Returns the region of a pool that it lies in, if it is known.
    pub(crate) fn region(&self) -> Option<&Region> {
        // SAFETY: invariant 3.
        unsafe { self.buf.region() }
    }

    /// Writes the packed bytes from `position` on to `out`, as many as fit; returns how many.
    pub(crate) fn pack(&self, position: usize, out: &mut [MaybeUninit<u8>]) -> usize {
        if let Some(bytes) = self.contiguous() {
            let rest = bytes.get(position..).unwrap_or(&[]);
            let len = rest.len().min(out.len());
            copy::fill(&mut out[..len], &rest[..len]);
            return len;
        }
        if let Some(chain) = self.buf.pieces() {
            let pieces = Pieces { cut: chain.cut(position, out.len()) };
            let len = pieces.len();
            pieces.write(&mut out[..len]);
            return len;
        }
        // SAFETY: invariant 1.
        unsafe { self.buf.datatype().pack(self.buf.base(), self.buf.count(), position, out) }
    }
}

// SAFETY: that all of the room was written is checked.
unsafe impl Packed for Source {
    fn pack(&self, position: usize, room: &mut [MaybeUninit<u8>]) {
        let len = Source::pack(self, position, room);
        assert!(len == room.len(), "a body ends with its message");
    }
}

impl Source {
    /// Describes the memory to a device.
    pub(crate) fn memory(&self) -> Option<MemoryDesc> {
        MemoryDesc::of(&self.buf)
    }

    /// Copies items into other memory, as a message would: the memory promises initialised bytes, and not that they are
    /// values of the target's type.
    ///
    /// # Errors
    /// The first `bool` or `char` of the target that is invalid. All invalid ones are replaced, as after a message.
    #[inline]
    pub fn copy_items(&self, mut target: Target) -> Result<(), InvalidValueError> {
        self.copy_to(&mut target);
        target.mark_valid()
    }

    /// Copies the message into a target, as far as there is room, through a small piece of stack where neither lies in
    /// one run.
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

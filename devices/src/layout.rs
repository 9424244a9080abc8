//! The user's memory as an operation sees it: where, how many, of what type.
//!
//! The engine drops a [`Source`] or [`Target`] when no device can touch the memory any more, and only then completes
//! the operation. Whoever makes one promises that the memory is good until that drop; so whoever waits for the
//! completion may free it. A target that is dropped half-way leaves nothing in it that is no value of its type.

use std::any::Any;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use mpj_datatypes::{Primitive, Signature};
use mpj_pool::Region;

use crate::buf::{Buf, BufError, Cut};
use crate::device::{Body, Fill, Memory, Packed};
use crate::fault::{Content, Fault};

/// Keeps an owned buffer alive for as long as an operation needs it.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// What travels with a message: who, tag, type, length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The sender's rank in the communicator.
    pub source: u32,
    /// The tag.
    pub tag: i32,
    /// The code of the primitive it is made of, or 0 if it is mixed.
    pub code: u8,
    /// Its signature if it is mixed.
    pub signature: Signature,
    /// Its length in bytes.
    pub bytes: usize,
}

impl Envelope {
    fn content(&self) -> Content {
        match Primitive::from_code(self.code) {
            Some(primitive) => Content::Of(primitive, self.bytes / primitive.size()),
            None => Content::Mixed(self.bytes),
        }
    }

    fn full_signature(&self) -> Option<Signature> {
        match Primitive::from_code(self.code) {
            Some(p) if self.bytes.is_multiple_of(p.size()) => {
                Some(Signature::of(p).repeat((self.bytes / p.size()) as u64))
            }
            Some(_) => None,
            None => (self.code == 0).then_some(self.signature),
        }
    }
}

/// Memory to send from.
///
/// # Invariants
/// 1. Until it is dropped, the bytes that the items of `buf` name are initialised, and nobody writes them.
/// 2. They are `bytes` bytes when packed.
/// 3. Until it is dropped, the region that `buf` names is there, if it names one.
pub struct Source {
    buf: Buf,
    bytes: usize,
    _keep: Option<Keep>,
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
    #[inline]
    pub unsafe fn new(buf: Buf, keep: Option<Keep>) -> Result<Self, BufError> {
        let bytes = buf.bytes()?;
        Ok(Source { buf, bytes, _keep: keep })
    }

    /// Returns the length of the message in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn envelope(&self, source: u32, tag: i32) -> Envelope {
        let datatype = self.buf.datatype();
        let (code, signature) = match datatype.homogeneous() {
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
    pub(crate) fn release(self) {
        if self.buf.is_plain() && self._keep.is_none() {
            std::mem::forget(self);
        }
    }

    /// Returns `len` bytes from `position` on, as a device takes them.
    pub(crate) fn body(&self, position: usize, len: usize) -> Body<'_> {
        match (self.contiguous(), self.buf.pieces()) {
            (Some(bytes), _) => Body::Bytes(&bytes[position..position + len]),
            (None, Some(chain)) => Body::Chain(Pieces { cut: chain.cut(position, len) }),
            (None, None) => Body::Fill(Fill::new(self, position, len)),
        }
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
            out[..len].write_copy_of_slice(&rest[..len]);
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

/// A part of a [chain](crate::Chain), piece by piece, none of them empty.
///
/// # Invariants
/// 1. The segments of `cut` are initialised, and nobody writes them, for `'a`.
#[derive(Clone)]
pub struct Pieces<'a> {
    cut: Cut<'a>,
}

impl Pieces<'_> {
    /// Returns the bytes of all pieces.
    #[inline]
    pub fn len(&self) -> usize {
        self.cut.len()
    }

    /// Returns whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the pieces one after the other to `room`, which is as long as they are; its bytes are initialised then.
    ///
    /// # Panics
    /// If it is not.
    #[inline(never)]
    pub fn write(self, room: &mut [MaybeUninit<u8>]) {
        assert!(room.len() == self.len(), "the room is as long as the pieces");
        let mut at = 0;
        for piece in self {
            room[at..at + piece.len()].write_copy_of_slice(piece);
            at += piece.len();
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let segment = self.cut.next()?;
        // SAFETY: invariant 1.
        Some(unsafe { std::slice::from_raw_parts(segment.base, segment.len) })
    }
}

impl fmt::Debug for Pieces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pieces({} B)", self.len())
    }
}

impl Source {
    /// Describes the memory to a device.
    pub(crate) fn memory(&self) -> Option<Memory> {
        Memory::of(&self.buf)
    }

    /// Copies items into memory of the same type, where they are values as they are here. That a type is the same is
    /// believed of primitives alone: of others, what turns out to be no value becomes zero.
    pub fn copy_items(&self, mut target: Target) {
        self.copy_to(&mut target);
        let primitive = |buf: &Buf| buf.datatype().homogeneous();
        if primitive(&self.buf).is_none() || primitive(&self.buf) != primitive(&target.buf) {
            target.check_landed();
        }
        // Invariant 2 of `Target`.
        target.landed = 0;
    }

    /// Copies the message into a target, as far as there is room, through a small piece of stack where neither lies in
    /// one run.
    pub(crate) fn copy_to(&self, target: &mut Target) {
        if let Some(bytes) = self.contiguous() {
            target.land(0, bytes);
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
            target.land(position, bytes);
            position += len;
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} B)", self.bytes)
    }
}

/// Memory to receive into.
///
/// # Invariants
/// 1. Until it is dropped, the bytes that the items of `buf`, which is no chain, name may be written by the engine, and
///    nobody else reads or writes them.
/// 2. Only the first `landed` packed bytes may have been written since they were last known to be values.
/// 3. The items are `bytes` bytes when packed.
/// 4. Until it is dropped, the region that `buf` names is there, if it names one.
pub struct Target {
    buf: Buf,
    bytes: usize,
    landed: usize,
    _keep: Option<Keep>,
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
    pub unsafe fn new(buf: Buf, keep: Option<Keep>) -> Result<Self, BufError> {
        let bytes = buf.bytes()?;
        if buf.pieces().is_some() {
            return Err(BufError::Chain);
        }
        Ok(Target { buf, bytes, landed: 0, _keep: keep })
    }

    /// Returns the bytes there is room for.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks length and type of a message before one byte of it lands.
    #[inline]
    pub(crate) fn accepts(&self, message: &Envelope) -> Result<(), Fault> {
        let mine = self.primitive().map_or(0, |p| p as u8);
        let alike = message.code == mine && mine != 0;
        if alike && message.bytes <= self.bytes && self.whole(message.bytes) {
            return Ok(());
        }
        self.judge(message)
    }

    /// The primitive all of it is made of.
    #[inline]
    fn primitive(&self) -> Option<Primitive> {
        self.buf.datatype().homogeneous()
    }

    /// Whether `bytes` is a whole number of this target's primitives.
    #[inline]
    fn whole(&self, bytes: usize) -> bool {
        self.primitive().is_some_and(|p| bytes & (p.size() - 1) == 0)
    }

    #[cold]
    fn judge(&self, message: &Envelope) -> Result<(), Fault> {
        let (source, tag) = (message.source, message.tag);
        let packed = Primitive::Packed as u8;
        let same = || {
            let Some(sent) = message.full_signature() else { return false };
            // What so many bytes are here: a count from outside is compared, not used.
            let (datatype, count) = (self.buf.datatype(), self.buf.count());
            let leaves = datatype.leaves_in(count, message.bytes);
            let expected = leaves.and_then(|leaves| datatype.signature_prefix(count, leaves));
            expected == Some(sent)
        };
        let wild = message.code == packed || self.primitive() == Some(Primitive::Packed);
        if message.bytes > self.bytes {
            return Err(Fault::Truncated { source, tag, sent: message.bytes, room: self.bytes });
        }
        if message.bytes == 0 || wild || same() {
            return Ok(());
        }
        Err(Fault::TypeMismatch {
            source,
            tag,
            sent: message.content(),
            expected: Content::of(self.buf.datatype(), self.bytes),
        })
    }

    /// Returns where a body of `len` bytes at `position` may be written as one run, if it may.
    #[inline]
    pub(crate) fn run(&mut self, position: usize, len: usize) -> Option<*mut u8> {
        let end = position.checked_add(len)?;
        if !self.buf.datatype().is_contiguous() || end > self.bytes {
            return None;
        }
        // Who is given the run may write any part of it.
        self.landed = self.landed.max(end);
        Some(self.buf.base().wrapping_add(position))
    }

    /// Describes the memory to a device, which writes the packed bytes `position..position + len`; `None` if there are not
    /// as many.
    pub(crate) fn lend(&mut self, position: usize, len: usize) -> Option<Memory> {
        let end = position.checked_add(len).filter(|end| *end <= self.bytes)?;
        self.landed = self.landed.max(end);
        self.memory()
    }

    /// Describes the memory to a device, which does not write to it yet.
    pub(crate) fn memory(&self) -> Option<Memory> {
        Memory::of(&self.buf)
    }

    /// Returns the region of a pool that it lies in, if it is known.
    pub(crate) fn region(&self) -> Option<&Region> {
        // SAFETY: invariant 4.
        unsafe { self.buf.region() }
    }

    /// Lands packed bytes at `position`; bytes beyond the end are dropped. Returns how many landed.
    #[inline]
    pub(crate) fn land(&mut self, position: usize, from: &[u8]) -> usize {
        let len = from.len().min(self.bytes.saturating_sub(position));
        if len == 0 {
            return 0;
        }
        self.landed = self.landed.max(position + len);
        if self.buf.datatype().is_contiguous() {
            // SAFETY: invariant 1, and `position + len` was cut to the length of the items.
            let to = unsafe { self.buf.base().add(position) };
            // SAFETY: invariant 1 for `to`. `from` is a message body: a ring cell, a fragment, a pool block, or the
            // source of a self-send, which a sound program does not overlap with a receive; `copy` allows even that.
            unsafe { std::ptr::copy(from.as_ptr(), to, len) };
            return len;
        }
        // SAFETY: invariant 1.
        unsafe { self.buf.datatype().unpack(self.buf.base(), self.buf.count(), position, &from[..len]) }
    }

    /// Checks what must be checked before the user may look at the first `bytes` bytes.
    #[inline]
    pub(crate) fn finish(mut self, message: &Envelope) -> Result<(), Fault> {
        let valid = if self.buf.datatype().needs_check() { self.validate(message) } else { Ok(()) };
        // Invariant 2: all of it was checked just now, or any bits are values.
        self.landed = 0;
        if self.buf.is_plain() && self._keep.is_none() {
            // Nothing in it must be dropped.
            std::mem::forget(self);
        }
        valid
    }

    #[cold]
    fn validate(&mut self, message: &Envelope) -> Result<(), Fault> {
        // SAFETY: invariant 1.
        let valid = unsafe { self.buf.datatype().validate(self.buf.base(), self.buf.count(), message.bytes) };
        valid.map_err(|_| Fault::InvalidValue { source: message.source, tag: message.tag })
    }

    /// Replaces what has landed and is no value.
    #[cold]
    fn check_landed(&mut self) {
        let (datatype, count) = (self.buf.datatype(), self.buf.count());
        if datatype.needs_check() {
            // SAFETY: invariant 1, and what has landed is initialised.
            let _ = unsafe { datatype.validate(self.buf.base(), count, self.landed) };
        }
    }

    /// Overwrites what has landed of a message that will not come to its end with zeros, which are values of every
    /// primitive: what has landed may be none, and what was there before is gone.
    #[cold]
    fn scrub(&mut self) {
        if !self.buf.datatype().needs_check() {
            return;
        }
        let (datatype, count) = (self.buf.datatype(), self.buf.count());
        // The primitive in whose middle the last byte landed is scrubbed as a whole.
        let is_end = |end: &usize| datatype.leaves_in(count, *end).is_some();
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
        if self.landed != 0 {
            self.scrub();
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({} B)", self.bytes)
    }
}

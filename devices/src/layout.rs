//! The user's memory as an operation sees it: where, how many, of what type.
//!
//! The engine drops a [`Source`] or [`Target`] when no device can touch the memory any more, and only then completes
//! the operation. Whoever makes one promises that the memory is good until that drop; so whoever waits for the
//! completion may free it. A target that is dropped half-way leaves nothing in it that is no value of its type.

use std::any::Any;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use mpj_datatypes::{Datatype, Primitive, Signature};

use crate::fault::{Content, Fault};

/// Keeps an owned buffer alive for as long as an operation needs it.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// What the memory is made of.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Primitives without gaps.
    Flat(Primitive),
    /// Items of a derived type.
    Typed(Datatype),
}

impl Shape {
    /// Returns the shape of items of `datatype`, flat where it can be.
    pub fn of(datatype: &Datatype) -> Self {
        match datatype.homogeneous() {
            Some(primitive) if datatype.is_contiguous() && datatype.size() == primitive.size() => {
                Shape::Flat(primitive)
            }
            _ => Shape::Typed(datatype.clone()),
        }
    }

    /// Returns the packed length of `count` items in bytes; `None` if it overflows.
    #[inline]
    pub fn bytes(&self, count: usize) -> Option<usize> {
        match self {
            Shape::Flat(primitive) => count.checked_mul(primitive.size()),
            Shape::Typed(datatype) => datatype.packed_size(count).ok(),
        }
    }

    /// Returns the distance from one item to the next in bytes.
    pub fn extent(&self) -> i64 {
        match self {
            Shape::Flat(primitive) => primitive.size() as i64,
            Shape::Typed(datatype) => datatype.extent(),
        }
    }

    /// Returns the datatype of an item.
    pub fn datatype(&self) -> Datatype {
        match self {
            Shape::Flat(primitive) => Datatype::primitive(*primitive),
            Shape::Typed(datatype) => datatype.clone(),
        }
    }

    /// Whether there are bytes that are no value of it.
    #[inline]
    fn needs_check(&self) -> bool {
        match self {
            Shape::Flat(primitive) => primitive.needs_check(),
            Shape::Typed(datatype) => datatype.needs_check(),
        }
    }

    #[inline]
    fn is_contiguous(&self) -> bool {
        match self {
            Shape::Flat(_) => true,
            Shape::Typed(datatype) => datatype.is_contiguous(),
        }
    }

    /// The primitive all of it is made of.
    #[inline]
    fn primitive(&self) -> Option<Primitive> {
        match self {
            Shape::Flat(primitive) => Some(*primitive),
            Shape::Typed(datatype) => datatype.homogeneous(),
        }
    }

    fn content(&self, bytes: usize) -> Content {
        match self.primitive() {
            Some(primitive) => Content::Of(primitive, bytes / primitive.size()),
            None => Content::Mixed(bytes),
        }
    }
}

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
/// 1. Until it is dropped, the bytes that `count` items of `shape` at `base` name are initialised, and nobody writes
///    them.
pub struct Source {
    base: *const u8,
    count: usize,
    bytes: usize,
    shape: Shape,
    _keep: Option<Keep>,
}

// SAFETY: invariant 1 holds on every thread; reading shared bytes needs no more.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    /// Describes `count` items at `base`; `None` if their size overflows.
    ///
    /// # Safety
    /// Invariant 1 of [`Source`].
    #[inline]
    pub unsafe fn new(base: *const u8, count: usize, shape: Shape, keep: Option<Keep>) -> Option<Self> {
        let bytes = shape.bytes(count)?;
        Some(Source { base, count, bytes, shape, _keep: keep })
    }

    /// Returns the length of the message in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn code(&self) -> u8 {
        self.shape.primitive().map_or(0, |p| p as u8)
    }

    pub(crate) fn signature(&self) -> Signature {
        match &self.shape {
            Shape::Typed(datatype) => datatype.signature().repeat(self.count as u64),
            Shape::Flat(_) => Signature::EMPTY,
        }
    }

    #[inline]
    pub(crate) fn envelope(&self, source: u32, tag: i32) -> Envelope {
        let code = self.code();
        let signature = if code == 0 { self.signature() } else { Signature::EMPTY };
        Envelope { source, tag, code, signature, bytes: self.bytes }
    }

    /// Returns the message as one slice if it lies that way.
    #[inline]
    pub(crate) fn contiguous(&self) -> Option<&[u8]> {
        if self.bytes == 0 {
            return Some(&[]);
        }
        // SAFETY: invariant 1; contiguous items are `bytes` bytes from `base`.
        self.shape.is_contiguous().then(|| unsafe { std::slice::from_raw_parts(self.base, self.bytes) })
    }

    /// Writes the packed bytes from `position` on to `out`, as many as fit; returns how many.
    pub(crate) fn pack(&self, position: usize, out: &mut [MaybeUninit<u8>]) -> usize {
        if let Some(bytes) = self.contiguous() {
            let rest = bytes.get(position..).unwrap_or(&[]);
            let len = rest.len().min(out.len());
            out[..len].write_copy_of_slice(&rest[..len]);
            return len;
        }
        let Shape::Typed(datatype) = &self.shape else { return 0 };
        // SAFETY: invariant 1.
        unsafe { datatype.pack(self.base, self.count, position, out) }
    }
}

impl Source {
    /// Copies items into memory of the same type, where they are values as they are here. That a type is the same is
    /// believed of primitives alone: of others, what turns out to be no value becomes zero.
    pub fn copy_items(&self, mut target: Target) {
        self.copy_to(&mut target);
        let is_alike = self.shape.primitive().is_some() && self.shape.primitive() == target.shape.primitive();
        if !is_alike {
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
/// 1. Until it is dropped, the bytes that `count` items of `shape` at `base` name may be written by the engine, and
///    nobody else reads or writes them.
/// 2. Only the first `landed` packed bytes may have been written since they were last known to be values.
pub struct Target {
    base: *mut u8,
    count: usize,
    bytes: usize,
    shape: Shape,
    landed: usize,
    _keep: Option<Keep>,
}

// SAFETY: invariant 1 gives exclusive use, on whichever thread.
unsafe impl Send for Target {}
// SAFETY: every method that writes takes `&mut self`; the others only read the description.
unsafe impl Sync for Target {}

impl Target {
    /// Describes room for `count` items at `base`; `None` if their size overflows.
    ///
    /// # Safety
    /// Invariant 1 of [`Target`].
    #[inline]
    pub unsafe fn new(base: *mut u8, count: usize, shape: Shape, keep: Option<Keep>) -> Option<Self> {
        let bytes = shape.bytes(count)?;
        Some(Target { base, count, bytes, shape, landed: 0, _keep: keep })
    }

    /// Returns the bytes there is room for.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks length and type of a message before one byte of it lands.
    #[inline]
    pub(crate) fn accepts(&self, message: &Envelope) -> Result<(), Fault> {
        let mine = self.shape.primitive().map_or(0, |p| p as u8);
        let alike = message.code == mine && mine != 0;
        if alike && message.bytes <= self.bytes && self.whole(message.bytes) {
            return Ok(());
        }
        self.judge(message)
    }

    /// Whether `bytes` is a whole number of this target's primitives.
    #[inline]
    fn whole(&self, bytes: usize) -> bool {
        self.shape.primitive().is_some_and(|p| bytes & (p.size() - 1) == 0)
    }

    #[cold]
    fn judge(&self, message: &Envelope) -> Result<(), Fault> {
        let (source, tag) = (message.source, message.tag);
        let packed = Primitive::Packed as u8;
        let same = || {
            let Some(sent) = message.full_signature() else { return false };
            // What so many bytes are here: a count from outside is compared, not used.
            let expected = match &self.shape {
                Shape::Flat(p) if !message.bytes.is_multiple_of(p.size()) => None,
                Shape::Flat(p) => Some(Signature::of(*p).repeat((message.bytes / p.size()) as u64)),
                Shape::Typed(datatype) => datatype
                    .leaves_in(self.count, message.bytes)
                    .and_then(|leaves| datatype.signature_prefix(self.count, leaves)),
            };
            expected == Some(sent)
        };
        let wild = message.code == packed || self.shape.primitive() == Some(Primitive::Packed);
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
            expected: self.shape.content(self.bytes),
        })
    }

    /// Returns where a body of `len` bytes at `position` may be written as one run, if it may.
    #[inline]
    pub(crate) fn run(&mut self, position: usize, len: usize) -> Option<*mut u8> {
        let end = position.checked_add(len)?;
        if !self.shape.is_contiguous() || end > self.bytes {
            return None;
        }
        // Who is given the run may write any part of it.
        self.landed = self.landed.max(end);
        Some(self.base.wrapping_add(position))
    }

    /// Lands packed bytes at `position`; bytes beyond the end are dropped. Returns how many landed.
    #[inline]
    pub(crate) fn land(&mut self, position: usize, from: &[u8]) -> usize {
        let len = from.len().min(self.bytes.saturating_sub(position));
        if len == 0 {
            return 0;
        }
        self.landed = self.landed.max(position + len);
        if self.shape.is_contiguous() {
            // SAFETY: invariant 1, and `position + len` was cut to the length of the items.
            let to = unsafe { self.base.add(position) };
            // SAFETY: invariant 1 for `to`. `from` is a message body: a ring cell, a fragment, a pool block, or the
            // source of a self-send, which a sound program does not overlap with a receive; `copy` allows even that.
            unsafe { std::ptr::copy(from.as_ptr(), to, len) };
            return len;
        }
        let Shape::Typed(datatype) = &self.shape else { return 0 };
        // SAFETY: invariant 1.
        unsafe { datatype.unpack(self.base, self.count, position, &from[..len]) }
    }

    /// Checks what must be checked before the user may look at the first `bytes` bytes.
    #[inline]
    pub(crate) fn finish(mut self, message: &Envelope) -> Result<(), Fault> {
        let valid = if self.shape.needs_check() { self.validate(message) } else { Ok(()) };
        // Invariant 2: all of it was checked just now, or any bits are values.
        self.landed = 0;
        valid
    }

    #[cold]
    fn validate(&mut self, message: &Envelope) -> Result<(), Fault> {
        // SAFETY: invariant 1.
        let valid = unsafe { self.shape.datatype().validate(self.base, self.count, message.bytes) };
        valid.map_err(|_| Fault::InvalidValue { source: message.source, tag: message.tag })
    }

    /// Replaces what has landed and is no value.
    #[cold]
    fn check_landed(&mut self) {
        if self.shape.needs_check() {
            // SAFETY: invariant 1, and what has landed is initialised.
            let _ = unsafe { self.shape.datatype().validate(self.base, self.count, self.landed) };
        }
    }

    /// Overwrites what has landed of a message that will not come to its end with zeros, which are values of every
    /// primitive: what has landed may be none, and what was there before is gone.
    #[cold]
    fn scrub(&mut self) {
        if !self.shape.needs_check() {
            return;
        }
        let datatype = self.shape.datatype();
        // The primitive in whose middle the last byte landed is scrubbed as a whole.
        let is_end = |end: &usize| datatype.leaves_in(self.count, *end).is_some();
        let end = (self.landed..self.bytes).find(is_end).unwrap_or(self.bytes);
        const ZEROS: [u8; 4096] = [0; 4096];
        for position in (0..end).step_by(ZEROS.len()) {
            let len = ZEROS.len().min(end - position);
            // SAFETY: invariant 1.
            unsafe { datatype.unpack(self.base, self.count, position, &ZEROS[..len]) };
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

//! The dynamic part: records in a chain of pool blocks that grows while they are written.
//!
//! ```text
//! chunk 0                                  chunk 1 (twice as large, up to MAX_CHUNK)
//! ┌────────────┬─────┬───────────┬─┬─────┬┐ ┌──────────────────┬─┬─────┬──────┬┄
//! │ its header │ len │ value     │0│ len ││ │ …rest of a value │0│ len │ value│
//! └────────────┴─────┴───────────┴─┴─────┴┘ └──────────────────┴─┴─────┴──────┴┄
//! ```
//! Chunks laid end to end are the bytes on the wire. A value may be split between chunks; a length never is, because
//! records and chunk ends both lie at multiples of 8. A cleared buffer keeps one chunk for its next message.

use core::ptr::NonNull;
use std::borrow::Cow;
use std::sync::Arc;

use mpj_pool::{AllocError, RawBuffer};

mod source;

use self::source::ChunkBlock;
pub(crate) use self::source::ChunkPool;
use crate::block::FilledRange;
use crate::header::{RECORD_ALIGN, RECORD_HEADER, SECTION_HEADER, SectionHeader, align_up};

/// Bytes of the first chunk; a page, since most messages with objects hold few and small ones.
const FIRST_CHUNK: usize = 4096;
/// Chunks double up to this.
const MAX_CHUNK: usize = 4 << 20;
/// Largest size of one chunk: a value of 4 MiB with the headers before it. Larger values are split.
const MAX_WHOLE: usize = MAX_CHUNK + FIRST_CHUNK;
/// The largest chunk that stays with a cleared buffer, such as one for a value of 128 KiB. Below this, allocating and
/// freeing a block costs a tenth of copying its content, or more; above, a few percent.
const MAX_KEPT: usize = 160 << 10;
/// Bytes that stay unused in front of the first chunk, if its block has a page.
///
/// Blocks begin at a page; large vectors at a page, or 16 bytes after one. Without the lead the first value would lie
/// 24 bytes after a page, just above its source modulo 4096. There loads wait for unrelated stores with the same low
/// address bits: the copy takes a sixth longer.
const CHUNK_OFFSET: usize = 64;

#[derive(Debug)]
struct Chunk {
    /// Place of the first byte in the chain.
    start: usize,
    bytes: FilledRange<ChunkBlock>,
}

/// The dynamic part of a buffer: a chain, once something has been written to it.
///
/// One word, since buffers go from hand to hand by value, and most have nothing here.
#[derive(Default, Debug)]
pub(crate) struct Dynamic(Option<Box<Chain>>);

impl Dynamic {
    /// Returns the chain, for writing.
    pub(crate) fn grown(&mut self) -> &mut Chain {
        self.0.get_or_insert_default()
    }

    /// Takes chunks from `source` from now on.
    pub(crate) fn set_source(&mut self, source: Arc<dyn ChunkPool>) {
        let chain = self.grown();
        if chain.complete == 0 {
            // A kept chunk belongs to another pool.
            (chain.full, chain.tail) = (Vec::new(), None);
        }
        chain.source = Some(source);
    }

    /// Forgets all records.
    #[inline]
    pub(crate) fn cleared(mut self) -> Self {
        if let Some(chain) = &mut self.0
            && chain.written() > 0
        {
            chain.clear();
        }
        self
    }

    /// Ends writing.
    #[inline]
    pub(crate) fn finish(&mut self) {
        if let Some(chain) = &mut self.0
            && chain.written() > 0
        {
            chain.finish();
        }
    }

    /// Returns the bytes of header and whole records, 0 without records.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |chain| chain.complete)
    }

    /// Returns the bytes, chunk by chunk.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(|chain| chain.full.iter().chain(&chain.tail)).map(|chunk| chunk.bytes.bytes())
    }

    /// Returns the bytes of chunk number `index`.
    pub(crate) fn chunk(&self, index: usize) -> Option<&[u8]> {
        self.0.as_ref()?.chunk(index)
    }

    /// Returns `len` bytes from `at` on, joined if they lie in several chunks, or `None` if they end beyond the part.
    pub(crate) fn get(&self, at: usize, len: usize) -> Option<Cow<'_, [u8]>> {
        self.0.as_ref()?.get(at, len)
    }

    /// Returns `len` bytes from `at` on, or `None` if they are not all there, or not in one chunk.
    pub(crate) fn get_whole(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.0.as_ref()?.get_whole(at, len)
    }
}

/// The growing chain.
///
/// # Invariants
/// 1. Laid end to end, the chunks of `full` and `tail` are the chain: each starts where the one before ends.
/// 2. Bytes `0..complete` are a section header and whole records. Bytes after them belong to a record whose value was
///    rejected; they are removed when the next record begins or the message is committed. Before the first record there
///    is at most an empty chunk, kept from the previous message.
#[derive(Default, Debug)]
pub(crate) struct Chain {
    full: Vec<Chunk>,
    /// The chunk that is being filled: on its own, so that a push finds it at once.
    tail: Option<Chunk>,
    complete: usize,
    /// Why a push of the record being written failed. Kept here because a codec, or a value, may see it as an error of
    /// its own, or as none.
    pub(crate) failure: Option<AllocError>,
    /// Whether a sink of the record being written was left by a panic; the bytes that it pushed are not counted.
    pub(crate) poisoned: bool,
    /// The pool of the chunks; `None` is the global pool.
    source: Option<Arc<dyn ChunkPool>>,
}

impl Chain {
    /// Returns the bytes pushed, including those of a record that is not complete.
    fn written(&self) -> usize {
        self.tail.as_ref().map_or(0, |tail| tail.start + tail.bytes.len())
    }

    /// Appends one record. `fill` pushes its value, whose length is about `hint` if that is not 0. On an error the
    /// chain is unchanged.
    pub(crate) fn record<E: From<AllocError>>(
        &mut self,
        hint: usize,
        fill: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        // Also undoes a record whose `fill` panicked.
        self.rollback();
        (self.failure, self.poisoned) = (None, false);
        if self.complete == 0 {
            self.begin(hint.saturating_add(SECTION_HEADER + RECORD_HEADER))?;
        }
        let padding = self.written().wrapping_neg() % RECORD_ALIGN;
        if padding > 0 {
            self.push(&[0; RECORD_ALIGN][..padding])?;
        }
        let start = self.written();
        // The value's length is stored after it is known.
        if let Err(error) = self.push_length(hint) {
            self.rollback();
            return Err(error.into());
        }
        let value = self.written();
        let result = fill(self);
        if result.is_err() {
            self.rollback();
            return result;
        }
        self.complete = self.written();
        self.store(start, &((self.complete - value) as u64).to_ne_bytes());
        result
    }

    /// Makes room for the length of a value, and for the value too if it has `hint` bytes and one chunk of the global
    /// pool can hold it. So whether a value can be viewed does not depend on earlier messages.
    #[inline]
    fn push_length(&mut self, hint: usize) -> Result<(), AllocError> {
        let needed = hint.saturating_add(RECORD_HEADER);
        if hint > 0 && self.left() < needed && needed <= MAX_WHOLE && self.source.is_none() {
            self.grow(needed)?;
        }
        self.push(&[0; RECORD_HEADER])
    }

    /// Begins the part, of which at least `needed` bytes follow, in the kept chunk if that is large enough.
    #[inline]
    fn begin(&mut self, needed: usize) -> Result<(), AllocError> {
        // A value that is split in any case takes whole chunks after the first.
        let here = if needed <= MAX_WHOLE - CHUNK_OFFSET { needed } else { SECTION_HEADER + RECORD_HEADER };
        if self.left() < here {
            self.tail = None;
            self.grow(here + CHUNK_OFFSET)?;
        }
        // Its length is stored by `finish`.
        self.push(&SectionHeader::dynamic_bytes(0))
    }

    /// Discards all records. Chunks are returned to their pool, except the last chunk of the global pool that is not
    /// too large. Chunks of another pool are all returned, because that pool may be bounded.
    #[inline(never)]
    fn clear(&mut self) {
        self.complete = 0;
        let most = if self.source.is_none() { MAX_KEPT } else { 0 };
        while let Some(tail) = &mut self.tail {
            if tail.bytes.capacity() <= most {
                tail.start = 0;
                tail.bytes.restart(CHUNK_OFFSET);
                break;
            }
            self.tail = self.full.pop();
        }
        self.full.clear();
    }

    /// Appends bytes to the record being written.
    #[inline]
    pub(crate) fn push(&mut self, src: &[u8]) -> Result<(), AllocError> {
        if let Some(tail) = &mut self.tail
            && tail.bytes.push(src).is_ok()
        {
            return Ok(());
        }
        self.push_split(src)
    }

    /// Returns the address of the next byte in the tail, and how many bytes fit.
    pub(crate) fn window(&self) -> (NonNull<u8>, usize) {
        self.tail.as_ref().map_or((NonNull::dangling(), 0), |tail| tail.bytes.window())
    }

    /// Counts `count` more bytes as pushed.
    ///
    /// # Safety
    /// The first `count` bytes of the [`window`](Self::window) are initialised, and it has at least `count` bytes.
    pub(crate) unsafe fn assume_pushed(&mut self, count: usize) {
        if let Some(tail) = &mut self.tail {
            let end = tail.bytes.end() + count;
            // SAFETY: the caller promises it for the first bytes of the window, which are those after the end.
            unsafe { tail.bytes.assume_filled(end) };
        }
    }

    /// Appends bytes of which not all fit the tail.
    #[cold]
    fn push_split(&mut self, src: &[u8]) -> Result<(), AllocError> {
        let (mut now, mut later) = src.split_at(here(self.written(), self.left(), src.len()));
        loop {
            if let Some(tail) = &mut self.tail
                && tail.bytes.push(now).is_err()
            {
                return Ok(()); // Impossible: no more than is left.
            }
            if later.is_empty() {
                return Ok(());
            }
            self.grow(later.len())?;
            // A new chunk has room, so it is filled.
            (now, later) = later.split_at(self.left().min(later.len()));
        }
    }

    /// Returns how many bytes fit the tail.
    #[inline]
    fn left(&self) -> usize {
        self.tail.as_ref().map_or(0, |tail| tail.bytes.capacity() - tail.bytes.end())
    }

    /// Drops the rest of a rejected value, and stores the length of the whole in its header.
    fn finish(&mut self) {
        self.rollback();
        if let Some(len) = self.complete.checked_sub(SECTION_HEADER) {
            self.store(0, &SectionHeader::dynamic_bytes(len));
        }
    }

    /// Returns the bytes of chunk number `index`.
    fn chunk(&self, index: usize) -> Option<&[u8]> {
        let chunk = match index.checked_sub(self.full.len()) {
            None => self.full.get(index),
            Some(0) => self.tail.as_ref(),
            Some(_) => None,
        };
        chunk.map(|chunk| chunk.bytes.bytes())
    }

    /// Returns `len` bytes from `at` on, joined if they lie in several chunks, or `None` if they end beyond the part.
    fn get(&self, at: usize, len: usize) -> Option<Cow<'_, [u8]>> {
        if let Some(whole) = self.get_whole(at, len) {
            return Some(Cow::Borrowed(whole));
        }
        at.checked_add(len).filter(|end| *end <= self.complete)?;
        let first = self.full.partition_point(|chunk| chunk.start <= at).checked_sub(1)?;
        let mut joined = Vec::with_capacity(len);
        let mut skip = at - self.full[first].start;
        for chunk in self.full[first..].iter().chain(&self.tail) {
            let bytes = chunk.bytes.bytes().get(skip..)?;
            joined.extend_from_slice(&bytes[..bytes.len().min(len - joined.len())]);
            if joined.len() == len {
                break;
            }
            skip = 0;
        }
        Some(Cow::Owned(joined))
    }

    /// Returns `len` bytes from `at` on, or `None` if they are not all there, or not in one chunk.
    fn get_whole(&self, at: usize, len: usize) -> Option<&[u8]> {
        let end = at.checked_add(len).filter(|end| *end <= self.complete)?;
        let tail = self.tail.as_ref()?;
        let chunk = if at >= tail.start {
            tail
        } else {
            &self.full[self.full.partition_point(|chunk| chunk.start <= at).checked_sub(1)?]
        };
        chunk.bytes.bytes().get(at - chunk.start..end - chunk.start)
    }

    #[inline(never)]
    fn grow(&mut self, needed: usize) -> Result<(), AllocError> {
        let double = self.tail.as_ref().map_or(FIRST_CHUNK, |tail| tail.bytes.capacity().saturating_mul(2));
        let size = if needed <= MAX_WHOLE { double.min(MAX_CHUNK).max(needed) } else { MAX_CHUNK };
        let piece = source::alloc_chunk(self.source.as_deref(), size)?;
        let start = self.written();
        let lead = if start == 0 && piece.capacity() >= FIRST_CHUNK { CHUNK_OFFSET } else { 0 };
        if let Ok(bytes) = FilledRange::empty(piece, lead) {
            self.full.extend(self.tail.replace(Chunk { start, bytes }));
        }
        Ok(())
    }

    /// Drops the rest of a rejected value.
    #[inline]
    fn rollback(&mut self) {
        if self.written() > self.complete {
            self.shorten();
        }
    }

    #[cold]
    fn shorten(&mut self) {
        while let Some(tail) = &mut self.tail
            && tail.start + tail.bytes.len() > self.complete
        {
            if tail.start >= self.complete {
                self.tail = self.full.pop();
            } else {
                tail.bytes.truncate(self.complete - tail.start);
            }
        }
    }

    /// Overwrites bytes in one chunk: headers of 8 and 16 bytes, the latter only at the front.
    fn store(&mut self, at: usize, bytes: &[u8]) {
        let full = &mut self.full;
        let chunk = match &mut self.tail {
            Some(tail) if at >= tail.start => tail,
            _ => match full.partition_point(|chunk| chunk.start <= at).checked_sub(1) {
                Some(index) => &mut full[index],
                None => return,
            },
        };
        let from = at - chunk.start;
        if let Some(target) = chunk.bytes.bytes_mut().get_mut(from..from + bytes.len()) {
            target.copy_from_slice(bytes);
        }
    }
}

/// Returns how many of `len` bytes go to the chunk that has room for `left` bytes, after `written` bytes.
///
/// If only a small part of a long value fits, this is just enough to reach the next position of a length: the other
/// bytes then keep their alignment. A copy whose source and destination addresses differ slightly in their low bits
/// takes a fifth longer.
fn here(written: usize, left: usize, len: usize) -> usize {
    if left < len && left <= len / 16 {
        align_up(written, RECORD_ALIGN).map_or(left, |next| (next - written).min(left))
    } else {
        left.min(len)
    }
}

//! The dynamic part: records in a chain of pool blocks that grows while they are written.
//!
//! ```text
//! chunk 0                                  chunk 1 (twice as large, up to MAX_CHUNK)
//! ┌────────────┬─────┬───────────┬─┬─────┬┐ ┌──────────────────┬─┬─────┬──────┬┄
//! │ its header │ len │ value     │0│ len ││ │ …rest of a value │0│ len │ value│
//! └────────────┴─────┴───────────┴─┴─────┴┘ └──────────────────┴─┴─────┴──────┴┄
//! ```
//! The chunks in order are the bytes on the wire. A value may be split between chunks. A length never is, because
//! records and chunk ends lie at multiples of 8. A cleared buffer keeps at most one chunk for its next message.

use core::ptr::NonNull;
use std::borrow::Cow;
use std::sync::Arc;

use mpj_pool::{AllocError, RawBuffer};

mod source;

use self::source::ChunkBlock;
pub(crate) use self::source::ChunkPool;
use crate::block::FilledRange;
use crate::header::{RECORD_ALIGN, RECORD_HEADER_LEN, SECTION_HEADER_LEN, SectionHeader, align_up};

/// Minimum size requested for the first chunk: a page, because most messages with objects have few small objects.
const FIRST_CHUNK: usize = 4096;
/// Chunk sizes double up to this.
const MAX_CHUNK: usize = 4 << 20;
/// Largest chunk: room for a slice of 4 MiB and the headers before it. Slices that exceed it are split.
const MAX_WHOLE: usize = MAX_CHUNK + FIRST_CHUNK;
/// Largest chunk that a cleared buffer keeps. Allocating and freeing a smaller block takes at least a tenth of the time
/// of copying its content; for a larger block it takes a few percent.
const MAX_KEPT: usize = 160 << 10;
/// Unused bytes at the front of the first chunk, if its block has at least a page.
///
/// Blocks begin at a page; large vectors at a page or 16 bytes after it. Without the offset a vector's destination
/// would be 24 bytes into a page, slightly above its source modulo 4096. Loads would wait for unrelated stores with the
/// same low address bits (4K aliasing).
const CHUNK_OFFSET: usize = 64;

#[derive(Debug)]
struct Chunk {
    start: usize,
    bytes: FilledRange<ChunkBlock>,
}

/// The dynamic part of a buffer; `None` until it is first needed. One word, because most buffers have no chain.
#[derive(Default, Debug)]
pub(crate) struct Dynamic(Option<Box<Chain>>);

impl Dynamic {
    pub(crate) fn get_or_create(&mut self) -> &mut Chain {
        self.0.get_or_insert_default()
    }

    pub(crate) fn set_source(&mut self, source: Arc<dyn ChunkPool>) {
        let chain = self.get_or_create();
        if chain.complete == 0 {
            // The kept chunk belongs to another pool.
            (chain.full, chain.tail) = (Vec::new(), None);
        }
        chain.source = Some(source);
    }

    #[inline]
    pub(crate) fn cleared(mut self) -> Self {
        if let Some(chain) = &mut self.0
            && chain.written() > 0
        {
            chain.clear();
        }
        self
    }

    #[inline]
    pub(crate) fn finish(&mut self) {
        if let Some(chain) = &mut self.0
            && chain.written() > 0
        {
            chain.finish();
        }
    }

    /// Returns the length of the header and the complete records in bytes; 0 without records.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |chain| chain.complete)
    }

    pub(crate) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(|chain| chain.full.iter().chain(&chain.tail)).map(|chunk| chunk.bytes.bytes())
    }

    pub(crate) fn chunk(&self, index: usize) -> Option<&[u8]> {
        self.0.as_ref()?.chunk(index)
    }

    pub(crate) fn get(&self, at: usize, len: usize) -> Option<Cow<'_, [u8]>> {
        self.0.as_ref()?.get(at, len)
    }

    pub(crate) fn get_whole(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.0.as_ref()?.get_whole(at, len)
    }
}

/// # Invariants
/// 1. The chunks of `full` and `tail` in order are the chain: each starts where the one before ends.
/// 2. Bytes `0..complete` are a section header and complete records. Bytes after them belong to the current record or a
///    failed one; those are removed when the next record begins or the message is committed. Before the first record
///    there is at most an empty chunk, kept from the previous message.
#[derive(Default, Debug)]
pub(crate) struct Chain {
    full: Vec<Chunk>,
    /// The chunk that is being filled: a separate field, so that a push finds it at once.
    tail: Option<Chunk>,
    complete: usize,
    /// Why a push of the current record failed. Stored here because a codec may replace or drop the error.
    pub(crate) failure: Option<AllocError>,
    /// Whether a writer of the current record panicked. The chain did not count the bytes that the writer had pushed.
    pub(crate) poisoned: bool,
    source: Option<Arc<dyn ChunkPool>>,
}

impl Chain {
    fn written(&self) -> usize {
        self.tail.as_ref().map_or(0, |tail| tail.start + tail.bytes.len())
    }

    /// Appends a record whose value `fill` pushes. `hint` is the length of the value in bytes, or 0 if it is unknown.
    /// After an error the records are unchanged.
    pub(crate) fn record<E: From<AllocError>>(
        &mut self,
        hint: usize,
        fill: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        // Also removes a record whose `fill` panicked.
        self.rollback();
        (self.failure, self.poisoned) = (None, false);
        if self.complete == 0 {
            self.begin(hint.saturating_add(SECTION_HEADER_LEN + RECORD_HEADER_LEN))?;
        }
        let padding = self.written().wrapping_neg() % RECORD_ALIGN;
        if padding > 0 {
            self.push(&[0; RECORD_ALIGN][..padding])?;
        }
        let start = self.written();
        // The length is stored below, when it is known.
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

    /// Pushes a length field of 0. If a value of `hint` bytes fits one chunk of the global pool, makes room for the
    /// whole value, so that it can be viewed whatever precedes it.
    #[inline]
    fn push_length(&mut self, hint: usize) -> Result<(), AllocError> {
        let needed = hint.saturating_add(RECORD_HEADER_LEN);
        if hint > 0 && self.left() < needed && needed <= MAX_WHOLE && self.source.is_none() {
            self.grow(needed)?;
        }
        self.push(&[0; RECORD_HEADER_LEN])
    }

    /// Pushes the header of the dynamic part, into the kept chunk if that has enough room.
    #[inline]
    fn begin(&mut self, needed: usize) -> Result<(), AllocError> {
        // A value that is too long for one chunk is split, and fills whole chunks after the first.
        let minimum =
            if needed <= MAX_WHOLE - CHUNK_OFFSET { needed } else { SECTION_HEADER_LEN + RECORD_HEADER_LEN };
        if self.left() < minimum {
            self.tail = None;
            self.grow(minimum + CHUNK_OFFSET)?;
        }
        // `finish` stores the length.
        self.push(&SectionHeader::dynamic_bytes(0))
    }

    /// Discards all records. Keeps one chunk of at most [`MAX_KEPT`] bytes if it is from the global pool, and frees the
    /// others. Frees all chunks of another pool, because that pool might be bounded.
    #[inline(never)]
    fn clear(&mut self) {
        self.complete = 0;
        let max_kept = if self.source.is_none() { MAX_KEPT } else { 0 };
        while let Some(tail) = &mut self.tail {
            if tail.bytes.capacity() <= max_kept {
                tail.start = 0;
                tail.bytes.restart(CHUNK_OFFSET);
                break;
            }
            self.tail = self.full.pop();
        }
        self.full.clear();
    }

    #[inline]
    pub(crate) fn push(&mut self, src: &[u8]) -> Result<(), AllocError> {
        if let Some(tail) = &mut self.tail
            && tail.bytes.push(src).is_ok()
        {
            return Ok(());
        }
        self.push_split(src)
    }

    pub(crate) fn spare_raw(&self) -> (NonNull<u8>, usize) {
        self.tail.as_ref().map_or((NonNull::dangling(), 0), |tail| tail.bytes.spare_raw())
    }

    /// Counts `count` more bytes as pushed.
    ///
    /// # Safety
    /// [`spare_raw`](Self::spare_raw) has at least `count` bytes, and the first `count` are initialised.
    pub(crate) unsafe fn assume_pushed(&mut self, count: usize) {
        if let Some(tail) = &mut self.tail {
            let end = tail.bytes.end() + count;
            // SAFETY: the caller's promise; the spare bytes begin at the end of the initialised bytes of the tail.
            unsafe { tail.bytes.assume_filled(end) };
        }
    }

    #[cold]
    fn push_split(&mut self, src: &[u8]) -> Result<(), AllocError> {
        let (mut now, mut later) = src.split_at(bytes_for_tail(self.written(), self.left(), src.len()));
        loop {
            if let Some(tail) = &mut self.tail
                && tail.bytes.push(now).is_err()
            {
                return Ok(()); // Impossible: at most `left` bytes.
            }
            if later.is_empty() {
                return Ok(());
            }
            self.grow(later.len())?;
            (now, later) = later.split_at(self.left().min(later.len()));
        }
    }

    #[inline]
    fn left(&self) -> usize {
        self.tail.as_ref().map_or(0, |tail| tail.bytes.capacity() - tail.bytes.end())
    }

    fn finish(&mut self) {
        self.rollback();
        if let Some(len) = self.complete.checked_sub(SECTION_HEADER_LEN) {
            self.store(0, &SectionHeader::dynamic_bytes(len));
        }
    }

    fn chunk(&self, index: usize) -> Option<&[u8]> {
        let chunk = match index.checked_sub(self.full.len()) {
            None => self.full.get(index),
            Some(0) => self.tail.as_ref(),
            Some(_) => None,
        };
        chunk.map(|chunk| chunk.bytes.bytes())
    }

    /// Returns `len` bytes from `at` on, joined if they are in several chunks, or `None` if they end after the records.
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

    /// Returns `len` bytes from `at` on, or `None` if they are not all in one chunk.
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
        let block = source::alloc_chunk(self.source.as_deref(), size)?;
        let start = self.written();
        let offset = if start == 0 && block.capacity() >= FIRST_CHUNK { CHUNK_OFFSET } else { 0 };
        if let Ok(bytes) = FilledRange::empty(block, offset) {
            self.full.extend(self.tail.replace(Chunk { start, bytes }));
        }
        Ok(())
    }

    #[inline]
    fn rollback(&mut self) {
        if self.written() > self.complete {
            self.trim_tail();
        }
    }

    #[cold]
    fn trim_tail(&mut self) {
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

    /// Overwrites bytes of one chunk: the length of a record, or the header at the front.
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

/// Returns how many of `len` bytes to push into the tail, which ends at `written` and has `left` spare bytes.
///
/// If only a small part of a long value fits, the tail takes just enough to reach a multiple of `RECORD_ALIGN`, so that
/// the rest keeps its alignment: a copy between differently aligned addresses is slower.
fn bytes_for_tail(written: usize, left: usize, len: usize) -> usize {
    if left < len && left <= len / 16 {
        align_up(written, RECORD_ALIGN).map_or(left, |next| (next - written).min(left))
    } else {
        left.min(len)
    }
}

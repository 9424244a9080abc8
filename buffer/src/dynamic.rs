//! The dynamic part: records in a chain of pool blocks that grows while they are written.
//!
//! ```text
//! chunk 0                                  chunk 1 (twice as large, up to MAX_CHUNK)
//! ┌────────────┬─────┬───────────┬─┬─────┬┐ ┌──────────────────┬─┬─────┬──────┬┄
//! │ its header │ len │ value     │0│ len ││ │ …rest of a value │0│ len │ value│
//! └────────────┴─────┴───────────┴─┴─────┴┘ └──────────────────┴─┴─────┴──────┴┄
//! ```
//! Chunks laid end to end are the bytes on the wire. A value may be split between chunks; a length never is, because
//! records and chunk ends both lie at multiples of 8.

use std::borrow::Cow;

use mpj_pool::{AllocError, DefaultBlock, Pool, RawBuffer};

use crate::block::Filled;
use crate::header::{Head, RECORD_ALIGN, RECORD_HEADER, SECTION_HEADER, align_up};

/// Bytes of the first chunk; a page, since most messages with objects hold few and small ones.
const FIRST_CHUNK: usize = 4096;
/// No chunk is larger, so that at most this much is taken and not filled.
const MAX_CHUNK: usize = 4 << 20;

#[derive(Debug)]
struct Chunk {
    /// Place of the first byte in the chain.
    start: usize,
    bytes: Filled<DefaultBlock>,
}

impl Chunk {
    /// Returns how many bytes may still be pushed. The last few of an odd-sized block stay unused (see above).
    fn left(&self) -> usize {
        (self.bytes.capacity() / RECORD_ALIGN * RECORD_ALIGN).saturating_sub(self.bytes.end())
    }
}

/// The growing chain.
///
/// # Invariants
/// 1. Chunk k + 1 starts where chunk k ends; `written` is where the last one ends.
/// 2. Bytes `0..complete` are a section header and whole records; what lies behind is a record whose value was refused,
///    and goes when the next one begins or the message is committed.
#[derive(Default, Debug)]
pub(crate) struct Chain {
    chunks: Vec<Chunk>,
    complete: usize,
    written: usize,
}

impl Chain {
    /// Returns the bytes of header and whole records, 0 without records.
    pub(crate) fn len(&self) -> usize {
        self.complete
    }

    /// Appends one record whose value `fill` pushes. When it fails, the chain is as before.
    pub(crate) fn record<E: From<AllocError>>(
        &mut self,
        fill: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        // Also undoes a record whose `fill` panicked.
        self.undo();
        if self.written == 0 {
            // Its length is stored by `finish`.
            self.push(&Head::dynamic_bytes(0))?;
        }
        let start = align_up(self.written, RECORD_ALIGN).unwrap_or(self.written);
        self.push(&[0; RECORD_ALIGN][..start - self.written])?;
        self.push(&[0; RECORD_HEADER])?;
        let value = self.written;
        let result = fill(self);
        if result.is_err() {
            self.undo();
            return result;
        }
        self.store(start, &((self.written - value) as u64).to_ne_bytes());
        self.complete = self.written;
        result
    }

    /// Appends bytes to the record being written.
    pub(crate) fn push(&mut self, mut src: &[u8]) -> Result<(), AllocError> {
        while !src.is_empty() {
            if self.chunks.last().is_none_or(|last| last.left() == 0) {
                self.grow(src.len())?;
            }
            let Some(last) = self.chunks.last_mut() else { break };
            let (now, later) = src.split_at(src.len().min(last.left()));
            if last.bytes.push(now).is_err() {
                break; // `left` is at most what the block has.
            }
            self.written += now.len();
            src = later;
        }
        Ok(())
    }

    /// Drops what a refused value left behind, and stores the length of the whole in its header.
    pub(crate) fn finish(&mut self) {
        self.undo();
        if let Some(len) = self.complete.checked_sub(SECTION_HEADER) {
            self.store(0, &Head::dynamic_bytes(len));
        }
    }

    /// Returns the bytes of the chain, chunk by chunk.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().map(|chunk| chunk.bytes.bytes())
    }

    /// Returns `len` bytes from `at` on, joined if they lie in several chunks, or `None` if they are not all there.
    pub(crate) fn get(&self, at: usize, len: usize) -> Option<Cow<'_, [u8]>> {
        let end = at.checked_add(len).filter(|end| *end <= self.complete)?;
        let first = self.chunks.partition_point(|chunk| chunk.start <= at).checked_sub(1)?;
        let chunk = &self.chunks[first];
        if let Some(whole) = chunk.bytes.bytes().get(at - chunk.start..end - chunk.start) {
            return Some(Cow::Borrowed(whole));
        }
        let mut joined = Vec::with_capacity(len);
        let mut skip = at - chunk.start;
        for chunk in &self.chunks[first..] {
            let bytes = chunk.bytes.bytes().get(skip..)?;
            joined.extend_from_slice(&bytes[..bytes.len().min(len - joined.len())]);
            skip = 0;
        }
        Some(Cow::Owned(joined))
    }

    fn grow(&mut self, needed: usize) -> Result<(), AllocError> {
        let pool = mpj_pool::global();
        let double = self.chunks.last().map_or(FIRST_CHUNK, |last| last.bytes.capacity().saturating_mul(2));
        let size = double.max(needed).min(MAX_CHUNK).min(pool.max_block());
        let block = pool.alloc(size)?;
        debug_assert!(block.capacity() >= SECTION_HEADER);
        if let Ok(bytes) = Filled::empty(block, 0) {
            self.chunks.push(Chunk { start: self.written, bytes });
        }
        Ok(())
    }

    fn undo(&mut self) {
        while self.written > self.complete {
            let Some(last) = self.chunks.last_mut() else { break };
            if last.start >= self.complete {
                self.written = last.start;
                self.chunks.pop();
            } else {
                last.bytes.truncate(self.complete - last.start);
                self.written = self.complete;
            }
        }
    }

    /// Overwrites bytes that lie in one chunk: headers of 8 and 16 bytes, the latter only at the front.
    fn store(&mut self, at: usize, bytes: &[u8]) {
        let Some(index) = self.chunks.partition_point(|chunk| chunk.start <= at).checked_sub(1) else {
            return;
        };
        let chunk = &mut self.chunks[index];
        let from = at - chunk.start;
        if let Some(target) = chunk.bytes.bytes_mut().get_mut(from..from + bytes.len()) {
            target.copy_from_slice(bytes);
        }
    }
}

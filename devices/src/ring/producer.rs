//! The sending side of a ring.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::Malformed;
use super::memory::{CellHeader, CellKind, INLINE, Ring};
use crate::copy;
use crate::prefetch;
use crate::sync::atomic::Ordering;

/// Distance in cells from the next cell to write to the cell that is prefetched. Without the prefetch, a locked
/// instruction after a send waits until the line has come from the receiver's core.
const WRITE_AHEAD: u64 = 4;

#[derive(Debug)]
pub(crate) struct Producer {
    ring: Arc<Ring>,
    position: u64,
    consumed: u64,
}

impl Producer {
    /// Makes the sending side, of which a ring has one.
    pub(crate) fn new(ring: Arc<Ring>) -> Self {
        Producer { ring, position: 0, consumed: 0 }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.position - self.consumed >= self.ring.cells()
    }

    /// Returns whether there is a free cell. If not, the receiver wakes this rank when it frees cells, provided that
    /// this method is called again after a [heavy fence](crate::fence::heavy_fence).
    ///
    /// # Errors
    /// The receiver's count of consumed cells is impossible.
    #[inline]
    pub(crate) fn has_room(&mut self) -> Result<bool, Malformed> {
        if !self.is_full() {
            return Ok(true);
        }
        self.read_consumed()?;
        if self.is_full() {
            self.ring.request_wakeup();
        }
        Ok(!self.is_full())
    }

    #[inline]
    fn read_consumed(&mut self) -> Result<(), Malformed> {
        // SYNC ring-consumed (acquire)
        let found = self.ring.consumed().load(Ordering::Acquire);
        if !(self.consumed..=self.position).contains(&found) {
            let (least, most) = (self.consumed, self.position);
            return Err(Malformed::Count { what: "cells taken", found, least, most });
        }
        self.consumed = found;
        Ok(())
    }

    /// Sends a head and its body in one cell, so `head.len() + len ≤ INLINE`. The callers of all `send_` methods have
    /// checked that there are free cells.
    #[inline]
    pub(crate) fn send_inline(&mut self, head: &[u8], len: usize, fill: impl FnOnce(&mut [MaybeUninit<u8>])) {
        self.publish(head, CellKind::Inline, len, &[], fill);
    }

    /// Sends a head whose body of `len` bytes is in fragment `index`.
    #[inline]
    pub(crate) fn send_fragment(&mut self, head: &[u8], index: u32, len: u32) {
        self.send_numbers(head, CellKind::Fragment, [index, len]);
    }

    /// Returns whether `cells` cells are free. Does not request a wake-up.
    ///
    /// # Errors
    /// The receiver's count of consumed cells is impossible.
    pub(crate) fn has_cells(&mut self, cells: u64) -> Result<bool, Malformed> {
        if self.position + cells - self.consumed > self.ring.cells() {
            self.read_consumed()?;
        }
        Ok(self.position + cells - self.consumed <= self.ring.cells())
    }

    /// Sends a head whose body of `len` bytes is still being written to fragment `index`; `written` bytes are there.
    pub(crate) fn send_stream_head(&mut self, head: &[u8], index: u32, len: u32, written: u32) {
        self.send_numbers(head, CellKind::StreamHead, [index, len, written]);
    }

    pub(crate) fn send_stream_data(&mut self, more: u32) {
        self.send_numbers(&[], CellKind::StreamData, [more]);
    }

    pub(crate) fn send_split_head(&mut self, head: &[u8], len: u32) {
        self.send_numbers(head, CellKind::SplitHead, [len]);
    }

    /// Sends the next bytes of a body that is split over cells; returns their number.
    pub(crate) fn send_split_data(&mut self, rest: &[MaybeUninit<u8>]) -> usize {
        let piece = &rest[..rest.len().min(INLINE)];
        self.publish(&[], CellKind::SplitData, piece.len(), &[], |room| {
            room.copy_from_slice(piece);
        });
        piece.len()
    }

    #[inline]
    fn send_numbers<const N: usize>(&mut self, head: &[u8], kind: CellKind, numbers: [u32; N]) {
        let bytes = numbers.map(u32::to_ne_bytes);
        let rest = bytes.as_flattened();
        self.publish(head, kind, rest.len(), rest, |room| {
            room.write_copy_of_slice(rest);
        });
    }

    /// Checks that the sequence numbers of all cells are still those that were written. A receiver cannot detect an
    /// overwritten number that equals that of the previous round: it treats such a cell as not written yet.
    ///
    /// # Errors
    /// The first sequence number that was overwritten.
    pub(crate) fn verify(&self) -> Result<(), Malformed> {
        for position in self.position.saturating_sub(self.ring.cells())..self.position {
            let header = CellHeader::from_word(self.ring.cell(position).word.load(Ordering::Relaxed));
            let written = (position + 1) as u32;
            if header.seq != written {
                return Err(Malformed::Overwritten {
                    what: "sequence number of a cell",
                    found: header.seq.into(),
                    written: written.into(),
                });
            }
        }
        Ok(())
    }

    #[inline]
    fn publish(
        &mut self,
        head: &[u8],
        kind: CellKind,
        len: usize,
        checked: &[u8],
        fill: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) {
        assert!(head.len() + len <= INLINE && !self.is_full(), "the caller checks for room");
        let cell = self.ring.cell(self.position);
        cell.bytes.with_mut(|bytes| {
            // SAFETY: invariant 1: the position is not `cells` ahead of `consumed` (asserted), so the cell is ours.
            let (to, rest) = unsafe { &mut *bytes }.split_at_mut(head.len());
            copy::fill(to, head);
            fill(&mut rest[..len]);
        });
        self.position += 1;
        let seq = self.position as u32;
        let header = CellHeader::new(seq, kind, head, len, checked);
        // SYNC ring-seq (release)
        cell.word.store(header.word(), Ordering::Release);
        prefetch::prefetch_write(std::ptr::from_ref(self.ring.cell(self.position + WRITE_AHEAD)).cast());
    }
}

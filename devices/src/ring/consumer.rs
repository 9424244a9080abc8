//! The receiving side of a ring.

use std::sync::Arc;
use std::sync::atomic::compiler_fence;

use super::memory::{Bytes, CacheLine, CellHeader, CellKind, INLINE, Ring};
use super::{FragmentMemory, Malformed, claim};
use crate::device::Landing;
use crate::fence::LightFence;
use crate::sync::atomic::Ordering;

#[derive(Debug)]
pub(crate) struct Consumer {
    ring: Arc<Ring>,
    reading: ReadState,
}

/// Handles the frames of a ring, as a [`Sink`](crate::device::Sink) does.
pub(crate) trait FrameHandler {
    fn frame(&mut self, head: &[u8], body: &[u8]);

    fn begin(&mut self, head: &[u8], len: usize) -> Landing;

    fn piece(&mut self, bytes: &[u8]);

    fn landed(&mut self);
}

/// Most tests need only whole frames.
#[cfg(test)]
impl<F: FnMut(&[u8], &[u8])> FrameHandler for F {
    fn frame(&mut self, head: &[u8], body: &[u8]) {
        self(head, body);
    }

    fn begin(&mut self, _: &[u8], _: usize) -> Landing {
        Landing::Pieces
    }

    fn piece(&mut self, _: &[u8]) {}

    fn landed(&mut self) {}
}

#[derive(Debug)]
struct ReadState {
    fragments: Arc<FragmentMemory>,
    position: u64,
    /// The position that was last stored in `consumed`.
    published: u64,
    returned: u64,
    split: Option<SplitFrame>,
    streamed: Option<StreamedFrame>,
    /// Whether the sender waited for cells or fragments that were returned since the last call of
    /// `Consumer::sender_waits`.
    sender_waits: bool,
    light: LightFence,
}

/// A frame whose body is split over cells and not complete.
#[derive(Debug)]
struct SplitFrame {
    head: Vec<u8>,
    body: Vec<u8>,
    len: usize,
}

/// A frame whose body is still being written to a fragment, and the number of bytes that were taken.
#[derive(Debug)]
struct StreamedFrame {
    index: u32,
    len: u32,
    taken: u32,
    /// The destination of the body; `None` if the sink takes it in pieces.
    to: Option<BodyPtr>,
}

/// The address to which a body is copied, valid until the body has landed or its sender is lost; see [`Landing::Into`].
#[derive(Debug)]
struct BodyPtr(*mut u8);

// SAFETY: any thread that calls `Consumer::receive` may write through the pointer: `Landing::Into` promises the memory
// to the device, not to a thread.
unsafe impl Send for BodyPtr {}

impl Consumer {
    /// Makes the receiving side, of which a ring has one. `fragments` are those of the sender.
    pub(crate) fn new(ring: Arc<Ring>, fragments: Arc<FragmentMemory>) -> Self {
        let light = LightFence::new();
        let reading = ReadState {
            fragments,
            position: 0,
            published: 0,
            returned: 0,
            split: None,
            streamed: None,
            sender_waits: false,
            light,
        };
        Consumer { ring, reading }
    }

    /// Reads the next cell, and passes to `handler` the frame that the cell completes, or a part of a streamed body.
    /// Returns whether there was a cell.
    #[inline]
    pub(crate) fn receive(&mut self, handler: &mut impl FrameHandler) -> Result<bool, Malformed> {
        let Consumer { ring, reading } = self;
        let cell = ring.cell(reading.position);
        // SYNC ring-seq (acquire)
        let header = CellHeader::from_word(cell.word.load(Ordering::Acquire));
        if header.seq != (reading.position + 1) as u32 {
            return reading.check_empty(ring, header);
        }
        reading.read_cell(ring, cell, header, handler)?;
        reading.position += 1;
        if reading.position - reading.published >= ring.cells() / 4 {
            reading.publish_consumed(ring);
        }
        Ok(true)
    }

    /// Returns whether a streamed body has begun and not landed.
    pub(crate) fn is_in_stream(&self) -> bool {
        self.reading.streamed.is_some()
    }

    /// Checks that the words that the sender reads still have the values that this side wrote. The sender cannot always
    /// distinguish a count that was set back from one that did not grow.
    pub(crate) fn verify(&self) -> Result<(), Malformed> {
        let Consumer { ring, reading } = self;
        let words = [
            ("count of cells taken", ring.consumed(), reading.published),
            ("count of fragments returned", ring.returned(), reading.returned),
            ("flag that the receiver has closed", ring.receiver_closed(), 0),
        ];
        for (what, word, written) in words {
            let found = word.load(Ordering::Relaxed);
            if found != written {
                return Err(Malformed::Overwritten { what, found, written });
            }
        }
        Ok(())
    }

    /// Returns whether the sender waited for cells or fragments that were returned since the last call, and so must be
    /// woken.
    #[inline]
    pub(crate) fn sender_waits(&mut self) -> bool {
        std::mem::take(&mut self.reading.sender_waits)
    }
}

impl ReadState {
    /// Returns `Ok(false)` if the cell still has the sequence number of the previous round; any other is an error.
    #[inline]
    fn check_empty(&self, ring: &Ring, header: CellHeader) -> Result<bool, Malformed> {
        let next = self.position + 1;
        if header.seq == next.saturating_sub(ring.cells()) as u32 {
            return Ok(false);
        }
        Err(Malformed::Sequence { found: header.seq, next: next as u32 })
    }

    #[inline]
    fn read_cell(
        &mut self,
        ring: &Ring,
        cell: &CacheLine,
        header: CellHeader,
        handler: &mut impl FrameHandler,
    ) -> Result<(), Malformed> {
        let CellHeader { kind, head, length, .. } = header;
        let (start, end) = (usize::from(head), usize::from(head) + usize::from(length));
        if end > INLINE {
            return Err(Malformed::TooLong { head_len: head, rest_len: length });
        }
        cell.bytes.with(|bytes| {
            // SAFETY: invariant 1 of `Ring`: `seq` says that the cell is ours.
            let copy: Bytes = unsafe { bytes.read() };
            // Every decision is made from the copy; the compiler must not read the cell again.
            compiler_fence(Ordering::SeqCst);
            let words = std::ptr::from_ref(&copy).cast::<u8>();
            // SAFETY: `end` is within the copy, and the sender has written that many bytes, as `publish` does.
            let words = unsafe { std::slice::from_raw_parts(words, end) };
            let (head, rest) = words.split_at(start);
            let is_body = kind == CellKind::Inline as u8 || kind == CellKind::SplitData as u8;
            let expected = header.with_checksum(head, if is_body { &[] } else { rest }).check;
            if header.check != expected {
                return Err(Malformed::Checksum { found: header.check, expected });
            }
            let is_whole = self.split.is_none() && self.streamed.is_none();
            if kind == CellKind::Inline as u8 && is_whole {
                // SAFETY: as above, for the cell itself: a body is read only once.
                let body = unsafe {
                    std::slice::from_raw_parts(bytes.cast::<u8>().wrapping_add(start), end - start)
                };
                handler.frame(head, body);
                Ok(())
            } else if kind == CellKind::Fragment as u8 && is_whole {
                self.on_fragment_cell(ring, header, head, rest, handler)
            } else if (kind == CellKind::StreamHead as u8 && is_whole)
                || (kind == CellKind::StreamData as u8 && self.streamed.is_some())
            {
                self.on_stream_cell(ring, header, head, rest, handler)
            } else {
                self.on_split_cell(header, head, rest, handler)
            }
        })
    }

    #[inline]
    fn on_fragment_cell(
        &mut self,
        ring: &Ring,
        header: CellHeader,
        head: &[u8],
        rest: &[u8],
        handler: &mut impl FrameHandler,
    ) -> Result<(), Malformed> {
        let &[a, b, c, d, e, f, g, h] = rest else {
            return Err(Malformed::LengthsForKind {
                kind: header.kind,
                head_len: header.head,
                rest_len: header.length,
            });
        };
        let (index, len) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
        // SAFETY: the sender filled `len` bytes before it sent the cell, and we return the fragment only below.
        let body = unsafe { self.fragments.received(index, len) }?;
        handler.frame(head, body);
        // SAFETY: as above.
        unsafe { claim::claim(body.as_mut_ptr(), body.len()) };
        self.return_fragment(ring);
        Ok(())
    }

    #[inline]
    fn return_fragment(&mut self, ring: &Ring) {
        self.returned += 1;
        // SYNC fragment-return (release)
        ring.returned().store(self.returned, Ordering::Release);
        self.note_waiting_sender(ring);
    }

    /// Begins a frame whose body arrives in pieces. The first piece has `written` bytes.
    #[inline]
    fn begin_stream(
        &mut self,
        head: &[u8],
        index: u32,
        len: u32,
        written: u32,
        handler: &mut impl FrameHandler,
    ) -> Result<(), Malformed> {
        // Check that a fragment has room for the body before `handler.begin` is called.
        // SAFETY: no byte is read.
        unsafe { self.fragments.received(index, 0) }?;
        let fragment = self.fragments.fragment_size();
        if len as usize > fragment || written == 0 || written >= len {
            return Err(Malformed::BodySize { len, written: Some(written), fragment });
        }
        let to = match handler.begin(head, len as usize) {
            Landing::Into(to) => Some(BodyPtr(to)),
            Landing::Pieces => None,
        };
        self.streamed = Some(StreamedFrame { index, len, taken: 0, to });
        Ok(())
    }

    fn on_stream_cell(
        &mut self,
        ring: &Ring,
        header: CellHeader,
        head: &[u8],
        rest: &[u8],
        handler: &mut impl FrameHandler,
    ) -> Result<(), Malformed> {
        let wrong_lengths = || Malformed::LengthsForKind {
            kind: header.kind,
            head_len: header.head,
            rest_len: header.length,
        };
        let word = |bytes: &[u8; 4]| u32::from_ne_bytes(*bytes);
        let written = match (&self.streamed, rest.as_chunks()) {
            (Some(_), ([written], [])) if head.is_empty() => word(written),
            (None, ([index, len, written], [])) => {
                let (len, written) = (word(len), word(written));
                self.begin_stream(head, word(index), len, written, handler)?;
                written
            }
            _ => return Err(wrong_lengths()),
        };
        let Some(StreamedFrame { index, len, taken, to }) = &mut self.streamed else {
            return Err(wrong_lengths());
        };
        let missing = *len - *taken;
        if written == 0 || written > missing {
            return Err(Malformed::Order { kind: header.kind, missing: missing as usize });
        }
        // SAFETY: the sender filled these bytes before it sent the cell, and we return the fragment only below.
        let bytes = unsafe { self.fragments.received(*index, *taken + written) }?;
        let bytes = &mut bytes[*taken as usize..];
        match to {
            // SAFETY: the sink gave `len` bytes to this device until the body has landed; `taken` of them are written,
            // and `bytes` has at most the length of the rest.
            Some(BodyPtr(to)) => unsafe {
                claim::copy_and_claim(bytes.as_mut_ptr(), to.wrapping_add(*taken as usize), bytes.len());
            },
            None => {
                handler.piece(bytes);
                // SAFETY: the bytes are in a fragment that was not returned yet.
                unsafe { claim::claim(bytes.as_mut_ptr(), bytes.len()) };
            }
        }
        *taken += written;
        if taken == len {
            self.streamed = None;
            handler.landed();
            self.return_fragment(ring);
        }
        Ok(())
    }

    #[cold]
    fn on_split_cell(
        &mut self,
        header: CellHeader,
        head: &[u8],
        rest: &[u8],
        handler: &mut impl FrameHandler,
    ) -> Result<(), Malformed> {
        let CellHeader { kind, head: head_len, length, .. } = header;
        if kind > CellKind::StreamData as u8 {
            return Err(Malformed::Kind { kind });
        }
        if let Some(StreamedFrame { len, taken, .. }) = &self.streamed {
            return Err(Malformed::Order { kind, missing: (len - taken) as usize });
        }
        if kind > CellKind::SplitData as u8 {
            return Err(Malformed::Order {
                kind,
                missing: self.split.as_ref().map_or(0, |split| split.len - split.body.len()),
            });
        }
        let missing = self.split.as_ref().map_or(0, |split| split.len - split.body.len());
        if (kind == CellKind::SplitData as u8) != self.split.is_some() {
            return Err(Malformed::Order { kind, missing });
        }
        let Some(split) = &mut self.split else {
            let Ok(len) = rest.try_into().map(u32::from_ne_bytes) else {
                return Err(Malformed::LengthsForKind { kind, head_len, rest_len: length });
            };
            let (most, size) = (self.fragments.fragment_size(), len as usize);
            if size == 0 || size > most {
                return Err(Malformed::BodySize { len, written: None, fragment: most });
            }
            self.split = Some(SplitFrame { head: head.to_vec(), body: Vec::with_capacity(size), len: size });
            return Ok(());
        };
        if !head.is_empty() || rest.is_empty() || rest.len() > missing {
            return Err(Malformed::LengthsForKind { kind, head_len, rest_len: length });
        }
        split.body.extend_from_slice(rest);
        if rest.len() == missing
            && let Some(SplitFrame { head, body, .. }) = self.split.take()
        {
            handler.frame(&head, &body);
        }
        Ok(())
    }

    #[inline]
    fn publish_consumed(&mut self, ring: &Ring) {
        self.published = self.position;
        // SYNC ring-consumed (release)
        ring.consumed().store(self.position, Ordering::Release);
        self.note_waiting_sender(ring);
    }

    #[inline]
    fn note_waiting_sender(&mut self, ring: &Ring) {
        self.light.fence();
        if ring.sender_waiting().load(Ordering::Relaxed) != 0 {
            ring.sender_waiting().store(0, Ordering::Relaxed);
            self.sender_waits = true;
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // SYNC ring-receiver-closed (release)
        self.ring.receiver_closed().store(1, Ordering::Release);
    }
}

//! The receiving end of a ring.

use std::sync::Arc;
use std::sync::atomic::compiler_fence;

use super::memory::{Bytes, CacheLine, CellHeader, CellKind, INLINE, Ring};
use super::{FragmentMemory, Malformed};
use crate::copy;
use crate::device::Landing;
use crate::fence::LightFence;
use crate::sync::atomic::Ordering;

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Consumer {
    ring: Arc<Ring>,
    reading: ReadState,
}

/// Handles the frames of a ring.
pub(crate) trait FrameHandler {
    /// Handles a frame whose body is complete.
    fn frame(&mut self, head: &[u8], body: &[u8]);

    /// Handles a head whose body of `len` bytes is still being written; returns where the body goes.
    fn begin(&mut self, head: &[u8], len: usize) -> Landing;

    /// Handles the next bytes of a body that goes to [`Landing::Pieces`].
    fn piece(&mut self, bytes: &[u8]);

    /// Handles the end of a body that was announced by `begin`.
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

/// The state of the receiving end.
#[derive(Debug)]
struct ReadState {
    area: Arc<FragmentMemory>,
    position: u64,
    /// The position that was last stored in `taken`.
    published: u64,
    /// Number of fragments returned.
    returned: u64,
    /// A frame whose body is split over cells.
    cut: Option<SplitFrame>,
    /// A frame whose body is still being written.
    begun: Option<StreamedFrame>,
    /// Whether the sender waited for cells or fragments that were returned since the last call of `is_awaited`.
    is_awaited: bool,
    light: LightFence,
}

/// A frame whose body is split over cells and not complete.
#[derive(Debug)]
struct SplitFrame {
    head: Vec<u8>,
    body: Vec<u8>,
    len: usize,
}

/// A frame whose body is still being written to a fragment, and how much of it was taken.
#[derive(Debug)]
struct StreamedFrame {
    index: u32,
    len: u32,
    taken: u32,
    /// Where the body is copied to; `None` if the sink takes it in pieces.
    to: Option<BodyPtr>,
}

/// A pointer to the place of a body, valid until the body has landed; see [`Landing::Into`].
#[derive(Debug)]
struct BodyPtr(*mut u8);

// SAFETY: the thread that takes frames writes through the pointer, whichever thread that is; `Landing::Into` promises
// the memory to the device, not to a thread.
unsafe impl Send for BodyPtr {}

impl Consumer {
    /// Makes the receiving end, of which a ring has one. `area` is the sender's.
    pub(crate) fn new(ring: Arc<Ring>, area: Arc<FragmentMemory>) -> Self {
        let light = LightFence::new();
        let reading = ReadState {
            area,
            position: 0,
            published: 0,
            returned: 0,
            cut: None,
            begun: None,
            is_awaited: false,
            light,
        };
        Consumer { ring, reading }
    }

    /// Takes the next cell, and hands its frame to `take` once the frame is complete; returns whether there was a cell.
    ///
    /// # Errors
    /// The cell is malformed. The ring must not be read any more.
    #[inline]
    pub(crate) fn receive(&mut self, take: &mut impl FrameHandler) -> Result<bool, Malformed> {
        let Consumer { ring, reading } = self;
        let cell = ring.cell(reading.position);
        // SYNC ring-seq (acquire)
        let label = CellHeader::of(cell.word.load(Ordering::Acquire));
        if label.seq != (reading.position + 1) as u32 {
            return reading.check_empty(ring, label);
        }
        reading.read_cell(ring, cell, label, take)?;
        reading.position += 1;
        if reading.position - reading.published >= ring.cells() / 4 {
            reading.publish_taken(ring);
        }
        Ok(true)
    }

    /// Returns whether a body has begun and not landed.
    pub(crate) fn is_within(&self) -> bool {
        self.reading.begun.is_some()
    }

    /// Checks that the words that the sender reads still hold the values written here. The sender cannot tell a count
    /// that was set back from one that did not grow.
    ///
    /// # Errors
    /// The first word that was overwritten.
    pub(crate) fn verify(&self) -> Result<(), Malformed> {
        let Consumer { ring, reading } = self;
        let words = [
            ("count of cells taken", ring.consumed(), reading.published),
            ("count of fragments returned", ring.returned(), reading.returned),
            ("word that says that the receiver has gone", ring.receiver_closed(), 0),
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
        std::mem::take(&mut self.reading.is_awaited)
    }
}

impl ReadState {
    /// Returns `Ok(false)` if the cell is still of the previous round. Any other sequence number is an error.
    #[inline]
    fn check_empty(&self, ring: &Ring, label: CellHeader) -> Result<bool, Malformed> {
        let next = self.position + 1;
        if label.seq == next.saturating_sub(ring.cells()) as u32 {
            return Ok(false);
        }
        Err(Malformed::Sequence { found: label.seq, next: next as u32 })
    }

    #[inline]
    fn read_cell(
        &mut self,
        ring: &Ring,
        cell: &CacheLine,
        label: CellHeader,
        take: &mut impl FrameHandler,
    ) -> Result<(), Malformed> {
        let CellHeader { form, head, length, .. } = label;
        let (start, end) = (usize::from(head), usize::from(head) + usize::from(length));
        if end > INLINE {
            return Err(Malformed::Length { head, length });
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
            let is_body = form == CellKind::Inline as u8 || form == CellKind::SplitData as u8;
            let right = label.sealed(head, if is_body { &[] } else { rest }).check;
            if label.check != right {
                return Err(Malformed::Check { found: label.check, right });
            }
            let is_whole = self.cut.is_none() && self.begun.is_none();
            if form == CellKind::Inline as u8 && is_whole {
                // SAFETY: as above, for the cell itself: a body is read only once.
                let body = unsafe {
                    std::slice::from_raw_parts(bytes.cast::<u8>().wrapping_add(start), end - start)
                };
                take.frame(head, body);
                Ok(())
            } else if form == CellKind::Fragment as u8 && is_whole {
                self.fragment(ring, label, head, rest, take)
            } else if (form == CellKind::StreamHead as u8 && is_whole)
                || (form == CellKind::StreamData as u8 && self.begun.is_some())
            {
                self.on_stream_cell(ring, label, head, rest, take)
            } else {
                self.piece(label, head, rest, take)
            }
        })
    }

    /// Hands out a frame whose body is in a fragment, and returns the fragment.
    #[inline]
    fn fragment(
        &mut self,
        ring: &Ring,
        label: CellHeader,
        head: &[u8],
        rest: &[u8],
        take: &mut impl FrameHandler,
    ) -> Result<(), Malformed> {
        let &[a, b, c, d, e, f, g, h] = rest else {
            return Err(Malformed::Body { form: label.form, head: label.head, length: label.length });
        };
        let (index, len) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
        // SAFETY: the index came to us through the ring, and we return the fragment only below.
        let body = unsafe { self.area.received(index, len) }?;
        take.frame(head, body);
        self.return_fragment(ring);
        Ok(())
    }

    /// Returns a fragment that is not read any more, by counting it.
    #[inline]
    fn return_fragment(&mut self, ring: &Ring) {
        self.returned += 1;
        // SYNC fragment-return (release)
        ring.returned().store(self.returned, Ordering::Release);
        self.note_waiting_sender(ring);
    }

    /// Takes the bytes that were written so far of a body that is still being written.
    fn on_stream_cell(
        &mut self,
        ring: &Ring,
        label: CellHeader,
        head: &[u8],
        rest: &[u8],
        take: &mut impl FrameHandler,
    ) -> Result<(), Malformed> {
        let body = || Malformed::Body { form: label.form, head: label.head, length: label.length };
        let word = |at: usize| rest.get(4 * at..4 * at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let there = match &self.begun {
            Some(_) if head.is_empty() && rest.len() == 4 => word(0).ok_or_else(body)?,
            None if rest.len() == 12 => {
                let (index, len, there) =
                    (word(0).ok_or_else(body)?, word(1).ok_or_else(body)?, word(2).ok_or_else(body)?);
                // Check that a fragment can hold the body before the handler learns of it.
                // SAFETY: no byte is read.
                unsafe { self.area.received(index, 0) }?;
                if len as usize > self.area.fragment() || there == 0 || there >= len {
                    return Err(Malformed::Size { len, fragment: self.area.fragment() });
                }
                let to = match take.begin(head, len as usize) {
                    Landing::Into(to) => Some(BodyPtr(to)),
                    Landing::Pieces => None,
                };
                self.begun = Some(StreamedFrame { index, len, taken: 0, to });
                there
            }
            _ => return Err(body()),
        };
        let Some(StreamedFrame { index, len, taken, to }) = &mut self.begun else { return Err(body()) };
        let missing = *len - *taken;
        if there == 0 || there > missing {
            return Err(Malformed::Order { form: label.form, missing: missing as usize });
        }
        // SAFETY: the index came to us through the ring, and we return the fragment only below.
        let bytes = unsafe { self.area.received(*index, *taken + there) }?;
        let bytes = &bytes[*taken as usize..];
        match to {
            // SAFETY: the sink gave `len` bytes to this device until the body has landed; `taken` of them are written,
            // and `bytes` is no longer than the rest.
            Some(BodyPtr(to)) => unsafe {
                copy::copy(bytes.as_ptr(), to.wrapping_add(*taken as usize), bytes.len());
            },
            None => take.piece(bytes),
        }
        *taken += there;
        if taken == len {
            self.begun = None;
            take.landed();
            self.return_fragment(ring);
        }
        Ok(())
    }

    /// Takes a cell of a frame that is split over cells.
    #[cold]
    fn piece(
        &mut self,
        label: CellHeader,
        head: &[u8],
        rest: &[u8],
        take: &mut impl FrameHandler,
    ) -> Result<(), Malformed> {
        let CellHeader { form, head: start, length, .. } = label;
        if form > CellKind::StreamData as u8 {
            return Err(Malformed::Form { form });
        }
        if let Some(StreamedFrame { len, taken, .. }) = &self.begun {
            return Err(Malformed::Order { form, missing: (len - taken) as usize });
        }
        if form > CellKind::SplitData as u8 {
            return Err(Malformed::Order {
                form,
                missing: self.cut.as_ref().map_or(0, |cut| cut.len - cut.body.len()),
            });
        }
        let missing = self.cut.as_ref().map_or(0, |cut| cut.len - cut.body.len());
        if (form == CellKind::SplitData as u8) != self.cut.is_some() {
            return Err(Malformed::Order { form, missing });
        }
        let Some(cut) = &mut self.cut else {
            let Ok(len) = rest.try_into().map(u32::from_ne_bytes) else {
                return Err(Malformed::Body { form, head: start, length });
            };
            let (most, size) = (self.area.fragment(), len as usize);
            if size == 0 || size > most {
                return Err(Malformed::Size { len, fragment: most });
            }
            self.cut = Some(SplitFrame { head: head.to_vec(), body: Vec::with_capacity(size), len: size });
            return Ok(());
        };
        if !head.is_empty() || rest.is_empty() || rest.len() > missing {
            return Err(Malformed::Body { form, head: start, length });
        }
        cut.body.extend_from_slice(rest);
        if rest.len() == missing
            && let Some(SplitFrame { head, body, .. }) = self.cut.take()
        {
            take.frame(&head, &body);
        }
        Ok(())
    }

    /// Stores the position, so that the sender may use the cells before it again.
    #[inline]
    fn publish_taken(&mut self, ring: &Ring) {
        self.published = self.position;
        // SYNC ring-taken (release)
        ring.consumed().store(self.position, Ordering::Release);
        self.note_waiting_sender(ring);
    }

    /// Notes whether the sender waits for the cells or fragments that were just returned.
    #[inline]
    fn note_waiting_sender(&mut self, ring: &Ring) {
        self.light.fence();
        if ring.sender_waiting().load(Ordering::Relaxed) != 0 {
            ring.sender_waiting().store(0, Ordering::Relaxed);
            self.is_awaited = true;
        }
    }
}

impl Drop for Consumer {
    /// Stores `gone`: nothing is read any more, and the sender can reclaim its fragments.
    fn drop(&mut self) {
        // SYNC ring-gone (release)
        self.ring.receiver_closed().store(1, Ordering::Release);
    }
}

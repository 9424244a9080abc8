//! The receiving end of a ring.

use std::sync::Arc;
use std::sync::atomic::compiler_fence;

use super::memory::{Bytes, Form, INLINE, Label, Line, Ring};
use super::{Fragments, Malformed, hint};
use crate::fence::Light;
use crate::sync::atomic::Ordering;

/// How many cells before its use a cell's line is asked for; see the producer.
const READ_AHEAD: u64 = 2;

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Consumer {
    ring: Arc<Ring>,
    reading: Reading,
}

/// How far the receiver is.
#[derive(Debug)]
struct Reading {
    area: Arc<Fragments>,
    position: u64,
    /// The position that the sender was told.
    told: u64,
    /// Fragments given back.
    returned: u64,
    /// A body that comes in pieces.
    cut: Option<Cut>,
    /// Whether the sender waits for what it was given since this was asked.
    is_awaited: bool,
    light: Light,
}

/// A frame whose body is not all there.
#[derive(Debug)]
struct Cut {
    head: Vec<u8>,
    body: Vec<u8>,
    len: usize,
}

impl Consumer {
    /// Makes the receiving end; there is one for a ring. `area` is the sender's.
    pub(crate) fn new(ring: Arc<Ring>, area: Arc<Fragments>) -> Self {
        let light = Light::new();
        let reading =
            Reading { area, position: 0, told: 0, returned: 0, cut: None, is_awaited: false, light };
        Consumer { ring, reading }
    }

    /// Takes the next cell, and hands its frame to `take` when all of it is there; returns whether there was a cell.
    ///
    /// # Errors
    /// The cell makes no sense. The ring must not be read any more.
    #[inline]
    pub(crate) fn receive(&mut self, take: impl FnOnce(&[u8], &[u8])) -> Result<bool, Malformed> {
        let Consumer { ring, reading } = self;
        let cell = ring.cell(reading.position);
        // SYNC ring-seq (acquire)
        let label = Label::of(cell.word.load(Ordering::Acquire));
        if label.seq != (reading.position + 1) as u32 {
            return reading.nothing(ring, label);
        }
        hint::will_read(ring.cell(reading.position + READ_AHEAD));
        reading.open(ring, cell, label, take)?;
        reading.position += 1;
        if reading.position - reading.told >= ring.cells() / 4 {
            reading.tell(ring);
        }
        Ok(true)
    }

    /// Returns whether the sender must be woken, as it waits for what it was given since the last call.
    #[inline]
    pub(crate) fn is_awaited(&mut self) -> bool {
        std::mem::take(&mut self.reading.is_awaited)
    }
}

impl Reading {
    /// There is no next cell yet if this one is still of the round before.
    #[inline]
    fn nothing(&self, ring: &Ring, label: Label) -> Result<bool, Malformed> {
        let next = self.position + 1;
        if label.seq == next.saturating_sub(ring.cells()) as u32 {
            return Ok(false);
        }
        Err(Malformed::Sequence { found: label.seq, next: next as u32 })
    }

    #[inline]
    fn open(
        &mut self,
        ring: &Ring,
        cell: &Line,
        label: Label,
        take: impl FnOnce(&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        let Label { form, head, length, .. } = label;
        let (start, end) = (usize::from(head), usize::from(head) + usize::from(length));
        if end > INLINE {
            return Err(Malformed::Length { head, length });
        }
        cell.bytes.with(|bytes| {
            // SAFETY: invariant 1 of Ring: `seq` says that the cell is ours.
            let copy: Bytes = unsafe { bytes.read() };
            // What decides anything is taken from the copy; the compiler must not look at the cell again.
            compiler_fence(Ordering::SeqCst);
            let words = std::ptr::from_ref(&copy).cast::<u8>();
            // SAFETY: `end` lies in the copy, and the sender has written that much, as `publish` does.
            let words = unsafe { std::slice::from_raw_parts(words, end) };
            let (head, rest) = words.split_at(start);
            if form == Form::Inline as u8 && self.cut.is_none() {
                // SAFETY: as above, in the cell: a body is looked at once.
                let body = unsafe {
                    std::slice::from_raw_parts(bytes.cast::<u8>().wrapping_add(start), end - start)
                };
                take(head, body);
                Ok(())
            } else if form == Form::Fragment as u8 && self.cut.is_none() {
                self.fragment(ring, label, head, rest, take)
            } else {
                self.piece(label, head, rest, take)
            }
        })
    }

    /// Takes a frame whose body lies in a fragment, and gives the fragment back.
    #[inline]
    fn fragment(
        &mut self,
        ring: &Ring,
        label: Label,
        head: &[u8],
        rest: &[u8],
        take: impl FnOnce(&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        let &[a, b, c, d, e, f, g, h] = rest else {
            return Err(Malformed::Body { form: label.form, head: label.head, length: label.length });
        };
        let (index, len) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
        // SAFETY: the index came to us through the ring, and we give the fragment back only below.
        let body = unsafe { self.area.received(index, len) }?;
        take(head, body);
        self.returned += 1;
        // SYNC fragment-return (release)
        ring.returned().store(self.returned, Ordering::Release);
        self.wake(ring);
        Ok(())
    }

    /// Takes a cell of a body that comes in pieces.
    #[cold]
    fn piece(
        &mut self,
        label: Label,
        head: &[u8],
        rest: &[u8],
        take: impl FnOnce(&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        let Label { form, head: start, length, .. } = label;
        if form > Form::Piece as u8 {
            return Err(Malformed::Form { form });
        }
        let missing = self.cut.as_ref().map_or(0, |cut| cut.len - cut.body.len());
        if (form == Form::Piece as u8) != self.cut.is_some() {
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
            self.cut = Some(Cut { head: head.to_vec(), body: Vec::with_capacity(size), len: size });
            return Ok(());
        };
        if !head.is_empty() || rest.is_empty() || rest.len() > missing {
            return Err(Malformed::Body { form, head: start, length });
        }
        cut.body.extend_from_slice(rest);
        if rest.len() == missing
            && let Some(Cut { head, body, .. }) = self.cut.take()
        {
            take(&head, &body);
        }
        Ok(())
    }

    /// Tells the sender which cells it may use again.
    #[inline]
    fn tell(&mut self, ring: &Ring) {
        self.told = self.position;
        // SYNC ring-taken (release)
        ring.taken().store(self.position, Ordering::Release);
        self.wake(ring);
    }

    /// Notes whether the sender waits for what it was just given.
    #[inline]
    fn wake(&mut self, ring: &Ring) {
        self.light.fence();
        if ring.starved().load(Ordering::Relaxed) != 0 {
            ring.starved().store(0, Ordering::Relaxed);
            self.is_awaited = true;
        }
    }
}

impl Drop for Consumer {
    /// Says that nothing is read any more, so that the sender can have its fragments back.
    fn drop(&mut self) {
        // SYNC ring-gone (release)
        self.ring.gone().store(1, Ordering::Release);
    }
}

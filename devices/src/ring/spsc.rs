//! The ring of cells: its memory, the sending end and the receiving end.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Owner, hint};
use crate::device::HEAD_MAX;
use crate::fence::Light;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::cell::UnsafeCell;

/// Bytes of a cell for head and body.
pub(crate) const INLINE: usize = 56;
const _: () = assert!(HEAD_MAX <= INLINE);

/// How many cells before its use a cell's line is asked for. Without it every locked instruction after a send waits until
/// the line has come from the receiver's core, and the other way round (a fifth of a small message between far cores).
const WRITE_AHEAD: u32 = 4;
const READ_AHEAD: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Form {
    /// The body follows the head in the cell.
    Inline = 0,
    /// The body lies in a fragment.
    Fragment = 1,
}

/// What the sender writes into a cell beside `seq`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Line {
    head: u8,
    form: u8,
    length: u16,
    bytes: [MaybeUninit<u8>; INLINE],
}

#[repr(C, align(64))]
struct Cell {
    seq: AtomicU32,
    line: UnsafeCell<MaybeUninit<Line>>,
}
#[cfg(not(loom))]
const _: () = assert!(size_of::<Cell>() == 64);

/// Lines in front of the cells: `taken`, a spare one, `starved`, a spare one, so that the two words and the cells do not
/// share a line or the pair of lines that is fetched together.
const COUNTERS: usize = 4;
const STARVED: usize = 2;

/// The memory of a ring.
///
/// # Invariants
/// 1. Cell `p & mask` belongs to the sender for position `p` while `p - taken < cells` and `seq != p + 1`, and to the
///    receiver from the moment it reads `seq == p + 1` (acquire) until it stores `taken > p` (release).
/// 2. There is one [`Producer`] and one [`Consumer`] for the memory of a ring.
/// 3. `lines` points to `COUNTERS + mask + 1` lines that were zero at first and live as long as `_owner`.
pub(crate) struct Ring {
    lines: NonNull<Cell>,
    mask: u32,
    _owner: Owner,
}

// SAFETY: by invariants 1 and 2 each cell's `line` has one owner at a time, handed over through `seq` and `taken`; by
// invariant 3 the memory is there.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring({} cells)", self.cells())
    }
}

/// The memory of a ring within one process.
struct Lines(Box<[Cell]>);

// SAFETY: the cells are used under the invariants of `Ring` alone.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Ring {
    /// Returns the bytes a ring of so many cells takes.
    pub(crate) const fn bytes(cells: u32) -> usize {
        (COUNTERS + cells as usize) * size_of::<Cell>()
    }

    /// Makes a ring over memory.
    ///
    /// # Safety
    /// Invariants 2 and 3; `cells` is a power of two.
    pub(crate) unsafe fn at(base: NonNull<u8>, cells: u32, owner: Owner) -> Self {
        Ring { lines: base.cast(), mask: cells - 1, _owner: owner }
    }

    /// Makes a ring and its two ends in memory of this process.
    pub(crate) fn pair(cells: u32) -> (Producer, Consumer) {
        let cell = |_| Cell { seq: AtomicU32::new(0), line: UnsafeCell::new(MaybeUninit::uninit()) };
        let lines = Arc::new(Lines((0..COUNTERS + cells as usize).map(cell).collect()));
        let base = NonNull::from(&*lines.0).cast::<u8>();
        // SAFETY: the lines are ours, zero where it matters, and kept by the owner.
        let ring = Arc::new(unsafe { Ring::at(base, cells, lines) });
        (Producer::new(Arc::clone(&ring)), Consumer::new(ring))
    }

    fn cells(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    fn line(&self, at: usize) -> &Cell {
        // SAFETY: invariant 3: callers pass a counter's line or a masked cell's.
        let line = unsafe { self.lines.add(at) };
        // SAFETY: as above; what changes in a line is atomic or in an `UnsafeCell`.
        unsafe { line.as_ref() }
    }

    #[inline]
    fn cell(&self, position: u32) -> &Cell {
        self.line(COUNTERS + (position & self.mask) as usize)
    }

    #[inline]
    fn taken(&self) -> &AtomicU32 {
        &self.line(0).seq
    }

    #[inline]
    fn starved(&self) -> &AtomicU32 {
        &self.line(STARVED).seq
    }
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Producer {
    ring: Arc<Ring>,
    position: u32,
    taken: u32,
}

impl Producer {
    /// Makes the sending end; there is one for a ring.
    pub(crate) fn new(ring: Arc<Ring>) -> Self {
        Producer { ring, position: 0, taken: 0 }
    }

    /// Returns whether there is a free cell; if not, the receiver will wake this rank when there is one.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        if self.position.wrapping_sub(self.taken) < self.ring.cells() {
            return true;
        }
        // SYNC ring-taken (acquire)
        self.taken = self.ring.taken().load(Ordering::Acquire);
        if self.position.wrapping_sub(self.taken) < self.ring.cells() {
            return true;
        }
        self.starve()
    }

    #[cold]
    fn starve(&mut self) -> bool {
        self.ring.starved().store(1, Ordering::Relaxed);
        crate::fence::heavy();
        self.taken = self.ring.taken().load(Ordering::Acquire);
        self.position.wrapping_sub(self.taken) < self.ring.cells()
    }

    /// Sends a head and a body that follow each other in one cell. The caller has seen [`has_room`](Self::has_room),
    /// and `head.len() + len ≤ INLINE`.
    #[inline]
    pub(crate) fn send_inline(&mut self, head: &[u8], len: usize, fill: impl FnOnce(&mut [MaybeUninit<u8>])) {
        self.publish(head, Form::Inline, len, fill);
    }

    /// Sends a head whose body of `len` bytes lies in fragment `index`.
    #[inline]
    pub(crate) fn send_fragment(&mut self, head: &[u8], index: u32, len: u32) {
        self.publish(head, Form::Fragment, 8, |room| {
            room[..4].copy_from_slice(&index.to_ne_bytes().map(MaybeUninit::new));
            room[4..8].copy_from_slice(&len.to_ne_bytes().map(MaybeUninit::new));
        });
    }

    #[inline]
    fn publish(&mut self, head: &[u8], form: Form, len: usize, fill: impl FnOnce(&mut [MaybeUninit<u8>])) {
        assert!(
            head.len() + len <= INLINE && self.position.wrapping_sub(self.taken) < self.ring.cells(),
            "checked by the link"
        );
        let cell = self.ring.cell(self.position);
        cell.line.with_mut(|slot| {
            // SAFETY: invariant 1: the position is not `cells` ahead of `taken` (asserted), so the cell is ours.
            let slot = unsafe { &mut *slot }.write(Line {
                head: head.len() as u8,
                form: form as u8,
                length: len as u16,
                bytes: [MaybeUninit::uninit(); INLINE],
            });
            let (to, rest) = slot.bytes.split_at_mut(head.len());
            to.copy_from_slice(as_uninit(head));
            fill(&mut rest[..len]);
        });
        self.position = self.position.wrapping_add(1);
        // SYNC ring-seq (release)
        cell.seq.store(self.position, Ordering::Release);
        hint::will_write(self.ring.cell(self.position.wrapping_add(WRITE_AHEAD)));
    }
}

fn as_uninit(bytes: &[u8]) -> &[MaybeUninit<u8>] {
    // SAFETY: same layout, and a shared view as MaybeUninit cannot un-initialise anything.
    unsafe { &*(std::ptr::from_ref(bytes) as *const [MaybeUninit<u8>]) }
}

/// What came out of a cell: the head, copied, and where the body is.
#[derive(Debug)]
pub(crate) enum Received<'a> {
    /// Head and body.
    Inline(&'a [u8], &'a [u8]),
    /// Head, index and length of the fragment.
    Fragment(&'a [u8], u32, u32),
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Consumer {
    ring: Arc<Ring>,
    position: u32,
    told: u32,
    light: Light,
}

impl Consumer {
    /// Makes the receiving end; there is one for a ring.
    pub(crate) fn new(ring: Arc<Ring>) -> Self {
        Consumer { ring, position: 0, told: 0, light: Light::new() }
    }

    /// Hands the next frame to `take`; returns whether there was one. `wake` is called if the sender waits for cells.
    #[inline]
    pub(crate) fn receive(&mut self, take: impl FnOnce(Received<'_>), wake: impl FnOnce()) -> bool {
        let cell = self.ring.cell(self.position);
        // SYNC ring-seq (acquire)
        if cell.seq.load(Ordering::Acquire) != self.position.wrapping_add(1) {
            return false;
        }
        hint::will_read(self.ring.cell(self.position.wrapping_add(READ_AHEAD)));
        cell.line.with(|line| {
            // SAFETY: invariant 1: `seq` says that the sender has filled the cell for our position.
            let line = unsafe { &*line };
            // SAFETY: as above: `publish` has written the line.
            let line = unsafe { line.assume_init_ref() };
            let (head, length) = (usize::from(line.head), usize::from(line.length));
            // The sender is this process's own code, but a bad length must not become a bad slice.
            if head + length <= INLINE {
                let bytes = &line.bytes[..head + length];
                // SAFETY: the sender has written `head + length` bytes, as `publish` does.
                let bytes = unsafe { &*(std::ptr::from_ref(bytes) as *const [u8]) };
                let (head, body) = bytes.split_at(head);
                match body.first_chunk::<8>() {
                    Some(&[a, b, c, d, e, f, g, h]) if line.form == Form::Fragment as u8 => {
                        let (index, len) =
                            (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
                        take(Received::Fragment(head, index, len));
                    }
                    _ => take(Received::Inline(head, body)),
                }
            }
        });
        self.position = self.position.wrapping_add(1);
        if self.position.wrapping_sub(self.told) >= self.ring.cells() / 4 {
            self.tell(wake);
        }
        true
    }

    /// Tells the sender which cells it may use again.
    pub(crate) fn tell(&mut self, wake: impl FnOnce()) {
        self.told = self.position;
        // SYNC ring-taken (release)
        self.ring.taken().store(self.position, Ordering::Release);
        self.light.fence();
        if self.ring.starved().load(Ordering::Relaxed) != 0 {
            self.ring.starved().store(0, Ordering::Relaxed);
            wake();
        }
    }
}

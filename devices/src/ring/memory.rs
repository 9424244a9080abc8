//! The memory of a ring: its cells, and the words in which its two sides count.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::Owner;
use crate::device::HEAD_MAX;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::cell::UnsafeCell;

/// Bytes of a cell for head and body.
pub(crate) const INLINE: usize = 56;
// The head of a streamed frame comes with three numbers.
const _: () = assert!(HEAD_MAX + 3 * size_of::<u32>() <= INLINE);

/// The kind of a cell, which says how its bytes are to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum CellKind {
    /// A frame: the body follows the head in the cell.
    Inline = 0,
    /// A frame whose body is in a fragment: the fragment's index and the length, u32 each, follow the head.
    Fragment = 1,
    /// The head of a frame whose body is in the next cells; the length of the body, u32, follows the head.
    SplitHead = 2,
    /// The next bytes of a body that is split over cells.
    SplitData = 3,
    /// The head of a frame whose body is still being written to a fragment. The fragment's index, the length of the
    /// body, and the number of bytes already written, u32 each, follow the head.
    StreamHead = 4,
    /// The number of further bytes of a streamed body that have been written, u32.
    StreamData = 5,
}

/// The first word of a cell; `ring/mod.rs` shows its bits. It is written and read as a whole, so that it cannot change
/// between its check and its use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CellHeader {
    /// The position of the cell plus 1, modulo 2^32.
    pub(super) seq: u32,
    pub(super) kind: u8,
    /// Bytes of the head.
    pub(super) head: u8,
    /// Bytes after the head.
    pub(super) length: u8,
    /// A checksum of the fields above except `seq`, of the head, and of the numbers that the receiver acts on. It
    /// detects most changes of these bytes by a memory error elsewhere in the job.
    pub(super) check: u16,
}

/// One odd factor for each whole word of a head or of the numbers, so that the sum depends on the order of the words.
/// The last factor is also used for the remaining bytes and for the other fields of the header.
const FACTORS: [u64; INLINE / 8] = [
    0x9e37_79b9_7f4a_7c15,
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
    0xd6e8_feb8_6659_fd93,
    0xc2b2_ae3d_27d4_eb4f,
    0xff51_afd7_ed55_8ccd,
    0xc4ce_b9fe_1a85_ec53,
];

impl CellHeader {
    /// Makes the header of a cell. `rest` is the numbers after the head, or empty if a body follows the head.
    #[inline]
    pub(super) fn new(seq: u32, kind: CellKind, head: &[u8], length: usize, rest: &[u8]) -> Self {
        let (kind, start, length) = (kind as u8, head.len() as u8, length as u8);
        CellHeader { seq, kind, head: start, length, check: 0 }.with_checksum(head, rest)
    }

    #[inline]
    pub(super) fn with_checksum(self, head: &[u8], rest: &[u8]) -> Self {
        let shape = u64::from(self.kind) | u64::from(self.head) << 8 | u64::from(self.length) << 16;
        let sum = checksum(head).wrapping_add(checksum(rest)).wrapping_add(shape.wrapping_mul(FACTORS[6]));
        CellHeader { check: (sum >> 48) as u16, ..self }
    }

    #[inline]
    pub(super) fn word(self) -> u64 {
        u64::from(self.seq)
            | u64::from(self.kind & 0xf) << 32
            | u64::from(self.head & 0x3f) << 36
            | u64::from(self.length & 0x3f) << 42
            | u64::from(self.check) << 48
    }

    #[inline]
    pub(super) fn from_word(word: u64) -> Self {
        CellHeader {
            seq: word as u32,
            kind: (word >> 32) as u8 & 0xf,
            head: (word >> 36) as u8 & 0x3f,
            length: (word >> 42) as u8 & 0x3f,
            check: (word >> 48) as u16,
        }
    }
}

/// Multiplies each whole word by its factor, and returns the sum of the products and of a hash of the remaining bytes.
/// Most changes of a word change the upper 16 bits of the sum, which are the checksum. The products are independent of
/// each other, so a long head takes hardly more time than a short one.
#[inline]
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().zip(FACTORS).map(|(word, by)| u64::from_ne_bytes(*word).wrapping_mul(by));
    let rest = rest.iter().fold(0u64, |sum, byte| (sum << 8 | u64::from(*byte)).wrapping_mul(FACTORS[6]));
    words.fold(rest, u64::wrapping_add)
}

/// The bytes of a cell after its header.
pub(super) type Bytes = [MaybeUninit<u8>; INLINE];

/// A cache line: a cell, or one of the words before the cells.
#[repr(C, align(64))]
pub(super) struct CacheLine {
    pub(super) word: AtomicU64,
    pub(super) bytes: UnsafeCell<Bytes>,
}
#[cfg(not(loom))]
const _: () = assert!(size_of::<CacheLine>() == 64);

/// Number of lines before the cells. The receiver often writes the first two; the next two are rarely written. So the
/// two sides never both write often to adjacent lines, which processors fetch together.
const WORD_LINES: usize = 4;
const CONSUMED: usize = 0;
const RETURNED: usize = 1;
const SENDER_WAITING: usize = 2;
const RECEIVER_CLOSED: usize = 3;

/// The memory of a ring.
///
/// # Invariants
/// 1. Cell `p & mask` belongs to the sender for position `p` while `p - consumed < cells` and the `seq` of its header
///    is not `p + 1`. It belongs to the receiver from the moment when the receiver reads `seq == p + 1` (acquire) until
///    the receiver stores `consumed > p` (release).
/// 2. There is one [`Producer`](super::Producer) and one [`Consumer`](super::Consumer) for the memory of a ring.
/// 3. `lines` points to `WORD_LINES + mask + 1` lines, which live as long as `_owner`. They were zero at first, except
///    for the bytes of the cells.
pub(crate) struct Ring {
    lines: NonNull<CacheLine>,
    mask: u32,
    _owner: Owner,
}

// SAFETY: by invariants 1 and 2 the bytes of each cell have one owner at a time, and `seq` and `consumed` hand them
// over; by invariant 3 the memory exists.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring({} cells)", self.cells())
    }
}

/// The memory of a ring within one process.
struct Lines(Box<[CacheLine]>);

// SAFETY: the lines are used only under the invariants of `Ring`.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Ring {
    pub(crate) const fn bytes(cells: u32) -> usize {
        (WORD_LINES + cells as usize) * 64
    }

    /// Makes a ring over memory.
    ///
    /// # Safety
    /// Invariants 2 and 3; `cells` is a power of two.
    pub(crate) unsafe fn at(base: NonNull<u8>, cells: u32, owner: Owner) -> Self {
        Ring { lines: base.cast(), mask: cells - 1, _owner: owner }
    }

    pub(crate) fn new(cells: u32) -> Self {
        let line = |at| {
            let byte = if at < WORD_LINES { MaybeUninit::new(0) } else { MaybeUninit::uninit() };
            CacheLine { word: AtomicU64::new(0), bytes: UnsafeCell::new([byte; INLINE]) }
        };
        let lines = std::sync::Arc::new(Lines((0..WORD_LINES + cells as usize).map(line).collect()));
        let base = NonNull::from(&*lines.0).cast::<u8>();
        // SAFETY: the lines are ours, zero where invariant 3 requires it, and kept alive by the owner. Callers pass a
        // power of two, and make only one end of each kind (invariant 2).
        unsafe { Ring::at(base, cells, lines) }
    }

    #[inline]
    pub(super) fn cells(&self) -> u64 {
        u64::from(self.mask) + 1
    }

    #[inline]
    fn line(&self, at: usize) -> &CacheLine {
        // SAFETY: invariant 3: callers pass the line of a word or of a masked cell.
        let line = unsafe { self.lines.add(at) };
        // SAFETY: as above; the parts of a line that change are atomic or in an `UnsafeCell`.
        unsafe { line.as_ref() }
    }

    #[inline]
    pub(super) fn cell(&self, position: u64) -> &CacheLine {
        self.line(WORD_LINES + (position as u32 & self.mask) as usize)
    }

    #[inline]
    pub(super) fn consumed(&self) -> &AtomicU64 {
        &self.line(CONSUMED).word
    }

    #[inline]
    pub(super) fn returned(&self) -> &AtomicU64 {
        &self.line(RETURNED).word
    }

    /// Not 0 from the sender's request for a wake-up until the receiver has seen it.
    #[inline]
    pub(super) fn sender_waiting(&self) -> &AtomicU64 {
        &self.line(SENDER_WAITING).word
    }

    /// Requests a wake-up when the receiver returns cells or fragments. The receiver is certain to see the request only
    /// if the sender then executes a heavy fence, and the receiver returns them after that fence. So a rank executes
    /// the fence before it sleeps, and then checks for room once more.
    #[cold]
    pub(super) fn request_wakeup(&self) {
        // SYNC ring-sender-waiting (the fences order it)
        self.sender_waiting().store(1, Ordering::Relaxed);
    }

    /// Not 0 once the receiver has stopped reading cells and fragments.
    #[inline]
    pub(super) fn receiver_closed(&self) -> &AtomicU64 {
        &self.line(RECEIVER_CLOSED).word
    }
}

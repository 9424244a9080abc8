//! Where codecs push their bytes: a pointer into the block that is being filled, and how much is left there.
//!
//! serde calls once for every number, so a push is all that counts. Through the chain it is twelve instructions,
//! through this cursor six.

use core::fmt;
use core::ptr::NonNull;

use crate::CodecError;
use crate::dynamic::Chain;

/// Where a codec pushes the bytes of one value: the end of the message's dynamic part.
pub struct RecordWriter<'a> {
    chain: &'a mut Chain,
    cursor: Cursor,
    /// Whether the sink has called the chain for room since this was last cleared.
    split: bool,
}

/// Two words, so that it is passed and returned in registers.
///
/// # Invariants
/// 1. `at` and the `left - 1` bytes after it are the end of the chain's tail, or `left` is 0. The sink that holds the
///    cursor borrows the chain mutably, so no other code uses them; no two sinks hold cursors into the same bytes.
/// 2. `left` was at most the length of the chain's `window` when that was last read, and the bytes from there to `at`
///    hold values that were pushed; the chain does not count them yet.
#[derive(Clone, Copy)]
struct Cursor {
    at: NonNull<u8>,
    left: usize,
}

impl Cursor {
    /// A cursor to nowhere: the next push calls the chain.
    const NOWHERE: Self = Self { at: NonNull::dangling(), left: 0 };

    fn of(chain: &Chain) -> Self {
        let (at, left) = chain.window();
        Self { at, left }
    }

    fn store(self, chain: &mut Chain) {
        // The code that took the cursor away has not put it back.
        chain.poisoned |= self.at == Self::NOWHERE.at;
        let (from, _) = chain.window();
        let pushed = self.at.addr().get().saturating_sub(from.addr().get());
        // SAFETY: invariants 1 and 2: the `pushed` bytes after the tail's end, all within the tail, hold values.
        unsafe { chain.assume_pushed(pushed) };
    }
}

impl<'a> RecordWriter<'a> {
    pub(crate) fn new(chain: &'a mut Chain) -> Self {
        Self { cursor: Cursor::of(chain), chain, split: false }
    }

    /// Tells the chain what was pushed.
    pub(crate) fn finish(self) {
        self.cursor.store(self.chain);
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`CodecError::NoMemory`] if the pool has no block left; the record is lost then, whatever the codec makes of it.
    #[inline(always)]
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), CodecError> {
        if self.fits(bytes) {
            return Ok(());
        }
        // The cursor is passed and returned by value: in a loop that pushes numbers it can stay in registers.
        self.cursor = push_split(self.chain, self.cursor, bytes);
        self.split = true;
        self.pushed()
    }

    /// Appends the bytes of a number, as [`push`](Self::push) does. They stay in a register, too.
    ///
    /// # Errors
    /// As `push`.
    #[inline(always)]
    pub fn push_array<const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), CodecError> {
        if self.fits(&bytes) {
            return Ok(());
        }
        self.cursor = push_array_split(self.chain, self.cursor, bytes);
        self.split = true;
        self.pushed()
    }

    /// Appends the length of a byte string in 64 bits, little endian, and the string.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline(always)]
    pub(super) fn push_counted(&mut self, bytes: &[u8]) -> Result<(), CodecError> {
        let count = (bytes.len() as u64).to_le_bytes();
        let Cursor { at, left } = self.cursor;
        // Room for both is checked once. The sum does not overflow: no slice has more than `isize::MAX` bytes.
        if count.len() + bytes.len() > left {
            self.push_array(count)?;
            return self.push(bytes);
        }
        // SAFETY: invariant 1: `left` bytes, at least eight, can be written at `at`.
        unsafe { at.as_ptr().copy_from_nonoverlapping(count.as_ptr(), count.len()) };
        // SAFETY: invariant 1: the result is within the block, or one past its end.
        let at = unsafe { at.add(count.len()) };
        // SAFETY: invariant 1: after the eight there is room for all of `bytes`, which is borrowed from elsewhere.
        unsafe { copy_short(at, bytes) };
        // SAFETY: as above.
        let at = unsafe { at.add(bytes.len()) };
        // All bytes up to `at` were written: invariant 2. The rest begins at the new `at`: invariant 1.
        self.cursor = Cursor { at, left: left - count.len() - bytes.len() };
        Ok(())
    }

    /// Appends bytes if they fit.
    #[inline(always)]
    fn fits(&mut self, bytes: &[u8]) -> bool {
        let Cursor { at, left } = self.cursor;
        if bytes.len() > left {
            return false;
        }
        // SAFETY: invariant 1: `left` bytes, at least `bytes.len()`, can be written at `at`; they do not overlap
        // `bytes`, which is borrowed from elsewhere.
        unsafe { at.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // SAFETY: invariant 1: the result is within the block, or one past its end.
        let at = unsafe { at.add(bytes.len()) };
        // The bytes were written: invariant 2. The rest begins at the new `at`: invariant 1.
        self.cursor = Cursor { at, left: left - bytes.len() };
        true
    }

    /// Returns whether the chain has taken all so far.
    fn pushed(&self) -> Result<(), CodecError> {
        if self.chain.failure.is_none() { Ok(()) } else { Err(CodecError::NoMemory) }
    }

    /// Pushes what `push` makes of each item.
    ///
    /// The inner loop ends when the chain was called for room: without a call in it, the compiler can vectorize it.
    #[inline(always)]
    pub(super) fn each<T>(
        &mut self,
        mut items: impl Iterator<Item = T>,
        mut push: impl FnMut(&mut RecordWriter<'_>, T) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        self.with_local_cursor(|sink| {
            loop {
                sink.split = false;
                loop {
                    let Some(item) = items.next() else { return Ok(()) };
                    push(sink, item)?;
                    if sink.split {
                        break;
                    }
                }
            }
        })
    }

    /// Runs `push` with a sink of its own, which lies on the stack of the caller alone: where everything is inlined,
    /// its cursor stays in registers.
    ///
    /// If `push` panics, and the panic is caught while the value is still being written, the record is rejected at its
    /// end.
    #[inline(always)]
    pub(super) fn with_local_cursor<T>(&mut self, push: impl FnOnce(&mut RecordWriter<'_>) -> T) -> T {
        // Moved, not copied: invariant 1.
        let cursor = core::mem::replace(&mut self.cursor, Cursor::NOWHERE);
        let mut sink = RecordWriter { chain: self.chain, cursor, split: false };
        let result = push(&mut sink);
        // Where `push` has panicked this is not done, and `settle` will notice.
        self.cursor = sink.cursor;
        result
    }
}

/// Copies bytes without a call if they are few: a piece from the front and one of the same size from the end, which may
/// overlap.
///
/// # Safety
/// `to` is valid for writes of `bytes.len()` bytes, and these do not overlap `bytes`.
#[inline(always)]
unsafe fn copy_short(to: NonNull<u8>, bytes: &[u8]) {
    match bytes.len() {
        // SAFETY: the caller's promise, and the length.
        4..=7 => unsafe { copy_ends::<4>(to, bytes) },
        // SAFETY: as above.
        8..=16 => unsafe { copy_ends::<8>(to, bytes) },
        // SAFETY: as above.
        17..=32 => unsafe { copy_ends::<16>(to, bytes) },
        // SAFETY: as above.
        33..=64 => unsafe { copy_ends::<32>(to, bytes) },
        // SAFETY: the caller's promise.
        _ => unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) },
    }
}

/// # Safety
/// As for `copy_short`, and there are `N` to `2 * N` bytes.
#[inline(always)]
unsafe fn copy_ends<const N: usize>(to: NonNull<u8>, bytes: &[u8]) {
    let behind = bytes.len() - N;
    // SAFETY: the caller's promise: there are at least `N` bytes here and there.
    unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), N) };
    let end = bytes[behind..].as_ptr();
    // SAFETY: the caller's promise: `behind + N` bytes can be written.
    let to = unsafe { to.add(behind) };
    // SAFETY: as above: these are the last `N`, there and here.
    unsafe { to.as_ptr().copy_from_nonoverlapping(end, N) };
}

#[cold]
#[inline(never)]
fn push_split(chain: &mut Chain, cursor: Cursor, bytes: &[u8]) -> Cursor {
    cursor.store(chain);
    if let Err(error) = chain.push(bytes) {
        chain.failure.get_or_insert(error);
    }
    Cursor::of(chain)
}

#[cold]
#[inline(never)]
fn push_array_split<const N: usize>(chain: &mut Chain, cursor: Cursor, bytes: [u8; N]) -> Cursor {
    push_split(chain, cursor, &bytes)
}

impl fmt::Debug for RecordWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("left", &self.cursor.left).finish_non_exhaustive()
    }
}

//! The cursor through which codecs push bytes into the chain. serde makes a call for every number, and a push takes
//! fewer instructions here than through the chain.

use core::fmt;
use core::ptr::NonNull;

use crate::CodecError;
use crate::dynamic::Chain;

/// Writer of one encoded value, at the end of the message's dynamic part.
pub struct RecordWriter<'a> {
    chain: &'a mut Chain,
    cursor: Cursor,
    /// Whether a push went through the chain since this flag was last cleared.
    split: bool,
}

/// Position in the chain's tail: two words, passed in registers.
///
/// # Invariants
/// 1. The `left` bytes from `at` on are the end of the chain's tail. The writer that holds the cursor borrows the chain
///    mutably, so no other code uses them; no two writers have cursors into the same bytes.
/// 2. The bytes from the start of the chain's spare bytes to `at` are in the tail and initialised: they were pushed,
///    but the chain does not count them yet. Neither invariant applies to [`NOWHERE`](Self::NOWHERE): it has no bytes.
#[derive(Clone, Copy)]
struct Cursor {
    at: NonNull<u8>,
    left: usize,
}

impl Cursor {
    /// A cursor without bytes: the next push of bytes calls the chain.
    const NOWHERE: Self = Self { at: NonNull::dangling(), left: 0 };

    fn of(chain: &Chain) -> Self {
        let (at, left) = chain.spare_raw();
        Self { at, left }
    }

    fn store(self, chain: &mut Chain) {
        // `NOWHERE` means that a push panicked before it stored its cursor.
        chain.poisoned |= self.at == Self::NOWHERE.at;
        let (from, _) = chain.spare_raw();
        let pushed = self.at.addr().get().saturating_sub(from.addr().get());
        // SAFETY: invariant 2: `pushed` spare bytes are initialised; 0 bytes for `NOWHERE`, the lowest address.
        unsafe { chain.assume_pushed(pushed) };
    }
}

impl<'a> RecordWriter<'a> {
    pub(crate) fn new(chain: &'a mut Chain) -> Self {
        Self { cursor: Cursor::of(chain), chain, split: false }
    }

    pub(crate) fn finish(self) {
        self.cursor.store(self.chain);
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`CodecError::NoMemory`] if the pool has no memory left. Then the record is discarded.
    #[inline(always)]
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), CodecError> {
        if self.push_if_fits(bytes) {
            return Ok(());
        }
        // By value, so that the cursor can stay in registers.
        let cursor = std::mem::replace(&mut self.cursor, Cursor::NOWHERE);
        self.cursor = push_split(self.chain, cursor, bytes);
        self.split = true;
        self.push_result()
    }

    /// Appends the bytes of a number, as [`push`](Self::push) does, from a register.
    ///
    /// # Errors
    /// As `push`.
    #[inline(always)]
    pub fn push_array<const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), CodecError> {
        if self.push_if_fits(&bytes) {
            return Ok(());
        }
        let cursor = std::mem::replace(&mut self.cursor, Cursor::NOWHERE);
        self.cursor = push_array_split(self.chain, cursor, bytes);
        self.split = true;
        self.push_result()
    }

    /// Appends the length of `bytes` as a little-endian `u64`, then `bytes`; fails as [`push`](Self::push) does.
    #[inline(always)]
    pub(super) fn push_counted(&mut self, bytes: &[u8]) -> Result<(), CodecError> {
        let count = (bytes.len() as u64).to_le_bytes();
        let Cursor { at, left } = self.cursor;
        // One check for both. The sum does not overflow: no slice has more than `isize::MAX` bytes.
        if count.len() + bytes.len() > left {
            self.push_array(count)?;
            return self.push(bytes);
        }
        // SAFETY: invariant 1: `left` bytes, at least eight, can be written at `at`.
        unsafe { at.as_ptr().copy_from_nonoverlapping(count.as_ptr(), count.len()) };
        // SAFETY: invariant 1: the result is within the block, or one past its end.
        let at = unsafe { at.add(count.len()) };
        // SAFETY: invariant 1: the remaining `left - 8` bytes can take `bytes`, which is borrowed from elsewhere.
        unsafe { copy_short(at, bytes) };
        // SAFETY: as above.
        let at = unsafe { at.add(bytes.len()) };
        // All bytes up to `at` were written: invariant 2. The rest begins at the new `at`: invariant 1.
        self.cursor = Cursor { at, left: left - count.len() - bytes.len() };
        Ok(())
    }

    #[inline(always)]
    fn push_if_fits(&mut self, bytes: &[u8]) -> bool {
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

    fn push_result(&self) -> Result<(), CodecError> {
        if self.chain.failure.is_none() { Ok(()) } else { Err(CodecError::NoMemory) }
    }

    /// Calls `push` for each item. The inner loop ends after a push that went through the chain, so that it contains no
    /// call and the compiler can vectorize it.
    #[inline(always)]
    pub(super) fn each<T>(
        &mut self,
        mut items: impl Iterator<Item = T>,
        mut push: impl FnMut(&mut RecordWriter<'_>, T) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        self.with_local_cursor(|local| {
            loop {
                local.split = false;
                loop {
                    let Some(item) = items.next() else { return Ok(()) };
                    push(local, item)?;
                    if local.split {
                        break;
                    }
                }
            }
        })
    }

    /// Runs `push` with a writer on the stack of the caller, so that its cursor stays in registers after inlining.
    ///
    /// If `push` panics, and the value's `Serialize` catches the panic, `write_object` still returns an error.
    #[inline(always)]
    pub(super) fn with_local_cursor<T>(&mut self, push: impl FnOnce(&mut RecordWriter<'_>) -> T) -> T {
        // Moved, not copied: invariant 1.
        let cursor = core::mem::replace(&mut self.cursor, Cursor::NOWHERE);
        let mut local = RecordWriter { chain: self.chain, cursor, split: false };
        let result = push(&mut local);
        // Not reached if `push` panics; `store` detects that.
        self.cursor = local.cursor;
        result
    }
}

/// Copies `bytes`; 4 to 64 of them without a call, as two equal parts, which may overlap.
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
    let last = bytes.len() - N;
    // SAFETY: the caller's promise: `bytes` and `to` have at least `N` bytes.
    unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), N) };
    let end = bytes[last..].as_ptr();
    // SAFETY: the caller's promise: `last + N` bytes can be written.
    let to = unsafe { to.add(last) };
    // SAFETY: as above: these are the last `N` bytes of both.
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
        f.debug_struct("RecordWriter").field("left", &self.cursor.left).finish_non_exhaustive()
    }
}

//! `Buffer`: constructors, `set_pool`, and the methods of both modes.

use core::fmt;
use std::sync::Arc;

use mpj_pool::{AllocError, AllocErrorKind, DefaultBlock, Pool, RawBuffer, ReadBlock, Region, RegionKey};

use crate::block::FilledRange;
use crate::dynamic::Dynamic;
use crate::header::{ALIGN, MESSAGE_HEADER_LEN, SECTION_HEADER_LEN, align_up};
use crate::read::Reading;
use crate::validate::{self, CheckedMessage};
use crate::write::Writing;
use crate::{Element, FormatError, FromBlockError, Overflow};

/// One message: a static part in the block `R`, and a dynamic part in blocks of [`mpj_pool::global`], or of another
/// pool ([`set_pool`](Buffer::set_pool)). A received message lies completely in `R`.
///
/// `M` is the mode. A [`Writing`] buffer takes sections; [`commit`](Buffer::commit) makes it a [`Reading`] buffer,
/// which returns them in the same order and can be sent; [`clear`](Buffer::clear) makes it a writing one again. A call
/// in the wrong mode does not compile:
///
/// ```compile_fail,E0599
/// # use mpj_buffer::Buffer;
/// let mut buffer = Buffer::with_capacity(256).unwrap();
/// buffer.write(&[1, 2, 3]).unwrap();
/// buffer.read(&mut [0; 3]); // not committed
/// ```
///
/// ```compile_fail,E0599
/// # use mpj_buffer::Buffer;
/// let mut buffer = Buffer::with_capacity(256).unwrap().commit();
/// buffer.write(&[1, 2, 3]); // not cleared
/// ```
///
/// ```compile_fail,E0382
/// # use mpj_buffer::Buffer;
/// let buffer = Buffer::with_capacity(256).unwrap();
/// let committed = buffer.commit();
/// buffer.len(); // `buffer` has become `committed`
/// ```
///
/// ```compile_fail,E0505
/// # use mpj_buffer::Buffer;
/// let mut buffer = Buffer::with_capacity(256).unwrap();
/// buffer.write(&[1, 2, 3]).unwrap();
/// let mut buffer = buffer.commit();
/// let view: &[i32] = buffer.view().unwrap();
/// buffer.clear(); // while `view` borrows it
/// assert_eq!(view, [1, 2, 3]);
/// ```
pub struct Buffer<R: ReadBlock, M = Writing> {
    pub(crate) block: FilledRange<R>,
    pub(crate) headroom: usize,
    pub(crate) chain: Dynamic,
    pub(crate) mode: M,
}

/// Returns the offset at which a message with `headroom` bytes of headroom begins in its block: `headroom` rounded up
/// to a multiple of [`ALIGN`]. The headroom lies directly before the message, so that both can be sent in one write.
pub const fn message_start(headroom: usize) -> usize {
    headroom.saturating_add(ALIGN - 1) / ALIGN * ALIGN
}

/// Returns the length of a section of `count` elements with its header and the padding after it, or `None` on overflow.
/// A block needs the sum over its sections, [`MESSAGE_HEADER_LEN`] bytes, and [`message_start`] bytes for headroom.
pub const fn section_len<T: Element>(count: usize) -> Option<usize> {
    let Some(payload) = count.checked_mul(size_of::<T>()) else { return None };
    let Some(padded) = payload.checked_next_multiple_of(ALIGN) else { return None };
    padded.checked_add(SECTION_HEADER_LEN)
}

impl Buffer<DefaultBlock, Writing> {
    /// Makes an empty buffer in the global pool, with a static part of at least `bytes` bytes, headers included.
    ///
    /// # Errors
    /// [`AllocError`] if the pool cannot allocate the block.
    ///
    /// # Examples
    /// ```
    /// use mpj_buffer::{Buffer, MESSAGE_HEADER_LEN, section_len};
    ///
    /// let bytes = MESSAGE_HEADER_LEN + section_len::<f64>(1000).unwrap();
    /// let mut buffer = Buffer::with_capacity(bytes)?;
    /// buffer.write(&[0.5; 1000])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_capacity(bytes: usize) -> Result<Self, AllocError> {
        let pool = mpj_pool::global();
        // `new` needs a message header, and `capacity` counts in units of `ALIGN`.
        let bytes = align_up(bytes.max(MESSAGE_HEADER_LEN), ALIGN).unwrap_or(bytes);
        let block = pool.alloc(bytes)?;
        // Fails only if the pool returned less than requested.
        Self::new(block).map_err(|_| AllocError::new(bytes, pool.max_alloc(), 0, AllocErrorKind::TooLarge))
    }
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Makes an empty buffer in a block.
    ///
    /// # Errors
    /// Returns the block if it is too small for a message header.
    pub fn new(block: R) -> Result<Self, FromBlockError<R, Overflow>> {
        Self::with_headroom(block, 0)
    }

    /// Makes an empty buffer with `headroom` bytes of headroom directly in front of the message, for a device's header.
    ///
    /// # Errors
    /// Returns the block if it is too small for a message header and the headroom, rounded up to [`ALIGN`].
    pub fn with_headroom(block: R, headroom: usize) -> Result<Self, FromBlockError<R, Overflow>> {
        let start = message_start(headroom);
        let needed = start.saturating_add(MESSAGE_HEADER_LEN);
        let left = block.capacity();
        if needed > left {
            return Err(FromBlockError { block, error: Overflow { needed, available: left } });
        }
        let mut block = match FilledRange::empty(block, start - headroom) {
            Ok(filled) => filled,
            Err((block, error)) => return Err(FromBlockError { block, error }),
        };
        // Zeros, so that the headroom does not expose old bytes of the pool. `commit` stores the message header.
        match block.push_zeros(headroom + MESSAGE_HEADER_LEN) {
            Ok(()) => Ok(Self { block, headroom, chain: Dynamic::default(), mode: Writing::new() }),
            Err(error) => Err(FromBlockError { block: block.into_block(), error }),
        }
    }
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Allocates later blocks of the dynamic part from `pool` instead of the global pool. After this,
    /// [`clear`](Buffer::clear) frees every block of the dynamic part. The static part may be in any pool.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use mpj_buffer::Buffer;
    /// use mpj_buffer::pool::{Buddy, Growth, Heap, Pool};
    ///
    /// let pool = Arc::new(Buddy::growing(Growth::default().limit(1 << 20), Heap::create));
    /// let mut buffer = Buffer::new(pool.alloc(256)?)?;
    /// buffer.set_pool(Arc::clone(&pool));
    /// buffer.write_object("bounded")?;
    /// assert!(buffer.write_object(&vec![1u8; 2 << 20]).is_err()); // exceeds the limit of the pool
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_pool<P: Pool + 'static>(&mut self, pool: Arc<P>)
    where
        P::Block: Sync,
    {
        self.chain.set_source(pool);
    }
}

impl<R: RawBuffer> Buffer<R, Reading> {
    /// Makes a buffer of a block that contains a received message, without copying. Fills the headroom with zeros.
    ///
    /// # Errors
    /// Returns the block if it is too small, or if the `len` bytes are not exactly one message. Checks every header.
    ///
    /// # Safety
    /// If `message_start(headroom) + len` is at most the capacity of `block`, the `len` bytes from
    /// `message_start(headroom)` on are initialised.
    #[expect(unsafe_code, reason = "only the caller knows how many bytes have arrived")]
    pub unsafe fn from_block(
        block: R,
        headroom: usize,
        len: usize,
    ) -> Result<Self, FromBlockError<R, FormatError>> {
        let start = message_start(headroom);
        let left = block.capacity();
        let end = match start.checked_add(len).filter(|end| *end <= left) {
            Some(end) => end,
            None => {
                let needed = (start as u64).saturating_add(len as u64);
                return Err(FromBlockError {
                    block,
                    error: FormatError::BlockTooSmall { needed, available: left as u64 },
                });
            }
        };
        let too_small = FormatError::BlockTooSmall { needed: end as u64, available: left as u64 };
        let mut block = match FilledRange::empty(block, start - headroom) {
            Ok(filled) => filled,
            Err((block, _)) => return Err(FromBlockError { block, error: too_small }),
        };
        if block.push_zeros(headroom).is_err() {
            return Err(FromBlockError { block: block.into_block(), error: too_small });
        }
        // SAFETY: the caller promises that `start..end` is initialised, and `end` was checked against the capacity; the
        // headroom, which ends at `start`, was just written.
        unsafe { block.assume_filled(end) };
        match validate::message(&block.bytes()[headroom..]) {
            Ok(layout) => Ok(Self::checked(block, headroom, layout)),
            Err(error) => Err(FromBlockError { block: block.into_block(), error }),
        }
    }

    /// Copies a whole message into a block.
    ///
    /// # Errors
    /// Returns the block if it is too small or the bytes are not exactly one message.
    pub fn from_bytes(block: R, bytes: &[u8]) -> Result<Self, FromBlockError<R, FormatError>> {
        let layout = match validate::message(bytes) {
            Ok(layout) => layout,
            Err(error) => return Err(FromBlockError { block, error }),
        };
        let error =
            FormatError::BlockTooSmall { needed: bytes.len() as u64, available: block.capacity() as u64 };
        let mut block = match FilledRange::empty(block, 0) {
            Ok(filled) => filled,
            Err((block, _)) => return Err(FromBlockError { block, error }),
        };
        match block.push(bytes) {
            Ok(()) => Ok(Self::checked(block, 0, layout)),
            Err(_) => Err(FromBlockError { block: block.into_block(), error }),
        }
    }
}

impl<R: ReadBlock> Buffer<R, Reading> {
    /// Makes a buffer of memory that contains a received message, without copying; the memory is only read.
    ///
    /// # Errors
    /// Returns the block if it is too small, or if its first `len` bytes are not exactly one message. Checks every
    /// header.
    ///
    /// # Safety
    /// If the block has `len` bytes, the first `len` are initialised.
    #[expect(unsafe_code, reason = "only the caller knows how many bytes have arrived")]
    pub unsafe fn from_read_block(block: R, len: usize) -> Result<Self, FromBlockError<R, FormatError>> {
        let available = block.bytes().len();
        if len > available {
            let error = FormatError::BlockTooSmall { needed: len as u64, available: available as u64 };
            return Err(FromBlockError { block, error });
        }
        // SAFETY: the caller's promise, and the check above.
        let block = unsafe { FilledRange::filled(block, len) };
        match validate::message(block.bytes()) {
            Ok(layout) => Ok(Self::checked(block, 0, layout)),
            Err(error) => Err(FromBlockError { block: block.into_block(), error }),
        }
    }

    pub(crate) fn checked(block: FilledRange<R>, headroom: usize, layout: CheckedMessage) -> Self {
        let mode = Reading::new(layout.order, layout.sections_end);
        Self { block, headroom, chain: Dynamic::default(), mode }
    }
}

impl<R: RawBuffer, M> Buffer<R, M> {
    /// Discards the message and prepares the block for another one with the same headroom.
    ///
    /// Frees the blocks of the dynamic part, except one of at most 160 KiB of the global pool, which the buffer keeps
    /// for the dynamic part of the next message. After [`set_pool`](Buffer::set_pool), frees all of them.
    #[inline]
    pub fn clear(self) -> Buffer<R, Writing> {
        let Self { mut block, headroom, chain, .. } = self;
        // Every buffer has a message header, so these bytes are initialised.
        block.truncate(headroom + MESSAGE_HEADER_LEN);
        Buffer { block, headroom, chain: chain.cleared(), mode: Writing::new() }
    }

    /// Returns the headroom in front of the message, for a device to write its header.
    pub fn headroom_mut(&mut self) -> &mut [u8] {
        match self.headroom {
            // Without a borrow: other threads might be reading the block.
            0 => &mut [],
            headroom => &mut self.block.bytes_mut()[..headroom],
        }
    }
}

impl<R: ReadBlock, M> Buffer<R, M> {
    /// Returns the block, which still contains the static part, and frees the dynamic part.
    pub fn into_block(self) -> R {
        self.block.into_block()
    }

    /// Returns the headroom in front of the message.
    pub fn headroom(&self) -> &[u8] {
        &self.block.bytes()[..self.headroom]
    }

    /// Returns the key of the shared memory region of the block, if it has one, and the offset of the message there.
    pub fn region_offset(&self) -> Option<(RegionKey, usize)> {
        let (key, block) = self.block.region_offset()?;
        Some((key, block.checked_add(message_start(self.headroom))?))
    }

    /// Returns the memory region of the block, if it has one. A device registers a region once for all its blocks.
    pub fn region(&self) -> Option<&Region> {
        self.block.region()
    }

    /// Returns the capacity of the static part in bytes, headers included.
    #[inline]
    pub fn capacity(&self) -> usize {
        // A multiple of `ALIGN`, so that padding in front of the dynamic part always fits.
        (self.block.capacity() - message_start(self.headroom)) / ALIGN * ALIGN
    }

    #[inline]
    pub(crate) fn static_part(&self) -> &[u8] {
        &self.block.bytes()[self.headroom..]
    }

    #[inline]
    pub(crate) fn static_len(&self) -> usize {
        self.block.len() - self.headroom
    }
}

impl<R: ReadBlock, M: fmt::Debug> fmt::Debug for Buffer<R, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("capacity", &self.capacity())
            .field("headroom", &self.headroom)
            .field("static_part", &self.static_len())
            .field("dynamic", &self.chain.len())
            .field("mode", &self.mode)
            .finish()
    }
}

//! The buffer itself: making one, taking it apart, and what both modes share.

use core::fmt;
use std::sync::Arc;

use mpj_pool::{AllocError, AllocErrorKind, DefaultBlock, Pool, RawBuffer, Region, RegionKey};

use crate::block::FilledRange;
use crate::dynamic::Dynamic;
use crate::header::{ALIGN, MESSAGE_HEADER, SECTION_HEADER, align_up};
use crate::read::Reading;
use crate::validate::{self, CheckedMessage};
use crate::write::Writing;
use crate::{Element, FormatError, FromBlockError, Overflow};

/// One message: a static part in the block `R`, and a dynamic part in blocks of [`mpj_pool::global`].
///
/// `M` is what may be done with it. A [`Writing`] buffer takes sections; [`commit`](Buffer::commit) makes it a
/// [`Reading`] one, which gives them out in the same order and can be sent; [`clear`](Buffer::clear) leads back. Using
/// the wrong mode does not compile:
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
/// buffer.clear(); // while `view` looks into it
/// assert_eq!(view, [1, 2, 3]);
/// ```
pub struct Buffer<R: RawBuffer, M = Writing> {
    /// Initialised from the first byte of the headroom to the last one of the static part.
    pub(crate) block: FilledRange<R>,
    /// Bytes in front of the message that belong to the device.
    pub(crate) room: usize,
    pub(crate) chain: Dynamic,
    pub(crate) mode: M,
}

/// Returns the offset in its block at which a message with `room` bytes of headroom begins: `room` rounded up to a
/// multiple of [`ALIGN`]. The headroom lies directly before the message, so that both can be sent in one write.
pub const fn message_start(room: usize) -> usize {
    room.saturating_add(ALIGN - 1) / ALIGN * ALIGN
}

/// Returns the most bytes that a section of `count` elements adds to a message, header and padding included, or `None`
/// on overflow. A block for a whole message needs [`MESSAGE_HEADER`] more, and the headroom.
pub const fn section_len<T: Element>(count: usize) -> Option<usize> {
    let Some(payload) = count.checked_mul(size_of::<T>()) else { return None };
    let Some(padded) = payload.checked_next_multiple_of(ALIGN) else { return None };
    padded.checked_add(SECTION_HEADER)
}

impl Buffer<DefaultBlock, Writing> {
    /// Makes an empty buffer for a static part of at least `bytes` bytes, headers included, in a block of the global
    /// pool.
    ///
    /// # Errors
    /// [`AllocError`] if the pool has no such block.
    ///
    /// # Examples
    /// ```
    /// use mpj_buffer::{Buffer, MESSAGE_HEADER, section_len};
    ///
    /// let bytes = MESSAGE_HEADER + section_len::<f64>(1000).unwrap();
    /// let mut buffer = Buffer::with_capacity(bytes)?;
    /// buffer.write(&[0.5; 1000])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_capacity(bytes: usize) -> Result<Self, AllocError> {
        let pool = mpj_pool::global();
        // `new` needs room for a header, and `capacity` counts in units of `ALIGN`.
        let bytes = align_up(bytes.max(MESSAGE_HEADER), ALIGN).unwrap_or(bytes);
        let block = pool.alloc(bytes)?;
        // Only a pool that returns less than requested gets here.
        Self::new(block).map_err(|_| AllocError::new(bytes, pool.max_alloc(), 0, AllocErrorKind::TooLarge))
    }
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Makes an empty buffer of a block.
    ///
    /// # Errors
    /// The block back, if it is too small for a message header.
    pub fn new(block: R) -> Result<Self, FromBlockError<R, Overflow>> {
        Self::with_headroom(block, 0)
    }

    /// Makes an empty buffer with `room` bytes of headroom directly in front of the message, for a device's header.
    ///
    /// # Errors
    /// The block, if it is too small for the headroom, rounded up to [`ALIGN`], and a message header.
    pub fn with_headroom(block: R, room: usize) -> Result<Self, FromBlockError<R, Overflow>> {
        let start = message_start(room);
        let needed = start.saturating_add(MESSAGE_HEADER);
        let left = block.capacity();
        if needed > left {
            return Err(FromBlockError { block, error: Overflow { needed, left } });
        }
        let mut block = match FilledRange::empty(block, start - room) {
            Ok(filled) => filled,
            Err((block, error)) => return Err(FromBlockError { block, error }),
        };
        // `commit` stores the header. Zeros, so that the headroom never exposes old bytes of the pool.
        match block.push_zeros(room + MESSAGE_HEADER) {
            Ok(()) => Ok(Self { block, room, chain: Dynamic::default(), mode: Writing::new() }),
            Err(error) => Err(FromBlockError { block: block.into_block(), error }),
        }
    }
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Takes the blocks of the dynamic part from `pool` instead of the global one, from the next block on, also after
    /// [`clear`](Buffer::clear), which then gives all of them back. The static part may come from any pool:
    /// [`new`](Self::new) takes its block.
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
    /// assert!(buffer.write_object(&vec![1u8; 2 << 20]).is_err()); // more than the pool may have
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
    /// Takes a block into which a device has received a whole message, without copying.
    ///
    /// # Errors
    /// The block back, if the bytes are not exactly one message: every header is checked, nothing is believed.
    ///
    /// # Safety
    /// If `message_start(room) + len` is at most the capacity of `block`, the `len` bytes from `message_start(room)` on
    /// are initialised.
    #[expect(unsafe_code, reason = "only the caller knows how many bytes have arrived")]
    pub unsafe fn from_block(
        block: R,
        room: usize,
        len: usize,
    ) -> Result<Self, FromBlockError<R, FormatError>> {
        let start = message_start(room);
        let left = block.capacity();
        let end = match start.checked_add(len).filter(|end| *end <= left) {
            Some(end) => end,
            None => {
                let needed = (start as u64).saturating_add(len as u64);
                return Err(FromBlockError {
                    block,
                    error: FormatError::BlockTooSmall { needed, left: left as u64 },
                });
            }
        };
        let too_small = FormatError::BlockTooSmall { needed: end as u64, left: left as u64 };
        let mut block = match FilledRange::empty(block, start - room) {
            Ok(filled) => filled,
            Err((block, _)) => return Err(FromBlockError { block, error: too_small }),
        };
        if block.push_zeros(room).is_err() {
            return Err(FromBlockError { block: block.into_block(), error: too_small });
        }
        // SAFETY: the caller promises that `start..end` is initialised, and `end` was checked against the capacity; the
        // headroom, which ends at `start`, has just been pushed.
        unsafe { block.assume_filled(end) };
        match validate::message(&block.bytes()[room..]) {
            Ok(layout) => Ok(Self::checked(block, room, layout)),
            Err(error) => Err(FromBlockError { block: block.into_block(), error }),
        }
    }

    /// Copies a whole message into a block.
    ///
    /// # Errors
    /// The block back, if it is too small or the bytes are not exactly one message.
    pub fn from_bytes(block: R, bytes: &[u8]) -> Result<Self, FromBlockError<R, FormatError>> {
        let layout = match validate::message(bytes) {
            Ok(layout) => layout,
            Err(error) => return Err(FromBlockError { block, error }),
        };
        let error = FormatError::BlockTooSmall { needed: bytes.len() as u64, left: block.capacity() as u64 };
        let mut block = match FilledRange::empty(block, 0) {
            Ok(filled) => filled,
            Err((block, _)) => return Err(FromBlockError { block, error }),
        };
        match block.push(bytes) {
            Ok(()) => Ok(Self::checked(block, 0, layout)),
            Err(_) => Err(FromBlockError { block: block.into_block(), error }),
        }
    }

    pub(crate) fn checked(block: FilledRange<R>, room: usize, layout: CheckedMessage) -> Self {
        let mode = Reading::new(layout.order, layout.sections_end);
        Self { block, room, chain: Dynamic::default(), mode }
    }
}

impl<R: RawBuffer, M> Buffer<R, M> {
    /// Discards the message and makes the block ready for another one, with the same headroom.
    ///
    /// Blocks of the dynamic part are returned to their pool, except one of at most 160 KiB in which the next message
    /// begins. So a buffer that has held objects keeps up to that much memory until it is dropped, or taken apart by
    /// [`into_block`](Self::into_block). Blocks of a pool set by [`set_pool`](Buffer::set_pool) are all returned.
    #[inline]
    pub fn clear(self) -> Buffer<R, Writing> {
        let Self { mut block, room, chain, .. } = self;
        // Every buffer has had a message header, so these bytes are initialised.
        block.truncate(room + MESSAGE_HEADER);
        Buffer { block, room, chain: chain.cleared(), mode: Writing::new() }
    }

    /// Gives the block back.
    pub fn into_block(self) -> R {
        self.block.into_block()
    }

    /// Returns the headroom in front of the message.
    pub fn room(&self) -> &[u8] {
        &self.block.bytes()[..self.room]
    }

    /// Returns the headroom in front of the message, for a device to write its header.
    pub fn room_mut(&mut self) -> &mut [u8] {
        match self.room {
            // Other handles may be reading its block.
            0 => &mut [],
            room => &mut self.block.bytes_mut()[..room],
        }
    }

    /// Returns the key of the shared region of the static part, and the offset of the message there.
    pub fn region_offset(&self) -> Option<(RegionKey, usize)> {
        let (key, block) = self.block.region_offset()?;
        Some((key, block.checked_add(message_start(self.room))?))
    }

    /// Returns the region of the static part, which a device registers once for all its blocks.
    pub fn region(&self) -> Option<&Region> {
        self.block.region()
    }

    /// Returns the most bytes that the static part can have.
    #[inline]
    pub fn capacity(&self) -> usize {
        // Whole units only, so that padding in front of the dynamic part always fits.
        (self.block.capacity() - message_start(self.room)) / ALIGN * ALIGN
    }

    /// Returns the bytes of the static part, from the message header on.
    #[inline]
    pub(crate) fn static_part(&self) -> &[u8] {
        &self.block.bytes()[self.room..]
    }

    /// Returns the length of the static part.
    #[inline]
    pub(crate) fn fixed_len(&self) -> usize {
        self.block.len() - self.room
    }
}

impl<R: RawBuffer, M: fmt::Debug> fmt::Debug for Buffer<R, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("capacity", &self.capacity())
            .field("room", &self.room)
            .field("fixed", &self.fixed_len())
            .field("dynamic", &self.chain.len())
            .field("mode", &self.mode)
            .finish()
    }
}

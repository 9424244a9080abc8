//! Receives of [`Buffer`]s.

use mpj_buffer::{Buffer, MESSAGE_HEADER_LEN, Reading};
use mpj_devices::{Envelope, MatchedMessage};
use mpj_pool::{Pool, ReadBlock};

use super::{Communicator, Message, ReceivedBuffer};
use crate::address::{IntoSource, Source, Tag};
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{self, ReadInPlace, ReceivedBlock, alloc_for};
use crate::status::Status;

/// The name of the receives of buffers in errors.
const CALL: &str = "recv_buffer";

impl<K> Communicator<K> {
    /// Receives a [`Buffer`] of any length. It is read in the sender's memory if the sender has sent a block of its
    /// [`World::pool`](crate::World::pool) in shared memory, and [`recv_block`](Self::recv_block) would read it in
    /// place. Otherwise, and always between threads of one process, it is in a block of the global pool.
    ///
    /// If it is read in the sender's memory, the sender's request completes when the buffer is dropped. Ranks that send
    /// blocks of their pools to each other must therefore drop the received buffer before they wait for their own send.
    /// [`recv_buffer_in`](Self::recv_buffer_in) always copies, and returns a buffer that can be written again.
    ///
    /// ```
    /// use mpj::buffer::Buffer;
    ///
    /// # mpj::threads(2, |world| {
    /// if world.rank() == 0 {
    ///     let mut message = Buffer::with_capacity(4096)?;
    ///     message.write(&[0.5f64; 100])?;
    ///     message.write_object("and a word")?;
    ///     world.send(&message.commit(), 1, 7)?;
    /// } else {
    ///     let (mut message, _status) = world.recv_buffer(0, 7)?;
    ///     assert_eq!(message.view::<f64>()?, [0.5; 100]);
    ///     assert_eq!(message.read_object::<String>()?, "and a word");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`ErrorClass::Buffer`] if the message is not a buffer, or has a newer format;
    /// [`ErrorClass::NoMem`] if the pool cannot allocate a block for it. Both errors consume the message: its send
    /// completes, and the next receive gets the next message.
    pub fn recv_buffer(
        &self,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<(ReceivedBuffer, Status)> {
        let (comm, source) = (self.as_raw(), source.into_source());
        if source == Source::Null {
            let (message, status) = empty_buffer(comm, mpj_pool::global())?;
            let bytes = message.len();
            // SAFETY: a message without a dynamic part is at the start of its block.
            let block = unsafe { ReceivedBlock::not_received(message.into_block(), bytes) };
            return Ok((to_buffer(CALL, block)?, status));
        }
        recv(comm, CALL, source.number(), tag.into().number())
    }

    /// Receives a [`Buffer`] of at most `limit` bytes into a block of `pool`.
    ///
    /// ```
    /// use mpj::buffer::Buffer;
    /// use mpj::pool::{Growth, Magazine, Pages};
    ///
    /// # mpj::threads(2, |world| {
    /// if world.rank() == 0 {
    ///     let mut message = Buffer::with_capacity(4096)?;
    ///     message.write(&[7u8; 3000])?;
    ///     let message = message.commit();
    ///     world.send(&message, 1, 0)?;
    ///     world.send(&message, 1, 0)?;
    /// } else {
    ///     let mine = Magazine::growing(Growth::default().limit(16 << 20), Pages::create);
    ///     let error = world.recv_buffer_in(&mine, 1000, 0, 0).expect_err("too long");
    ///     assert_eq!(error.class(), mpj::ErrorClass::Truncate);
    ///     let (mut message, _) = world.recv_buffer_in(&mine, 10_000, 0, 0)?;
    ///     assert_eq!(message.view::<u8>()?, [7; 3000]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`recv_buffer`](Self::recv_buffer); [`ErrorClass::Truncate`] if the message is longer than `limit`; it is
    /// then discarded without an allocation.
    pub fn recv_buffer_in<P: Pool>(
        &self,
        pool: &P,
        limit: usize,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<(Buffer<P::Block, Reading>, Status)> {
        let (comm, source) = (self.as_raw(), source.into_source());
        if source == Source::Null {
            return empty_buffer(comm, pool);
        }
        let message = raw::mprobe_as(comm, CALL, source.number(), tag.into().number())?;
        receive_in(comm, message, pool, limit)
    }
}

impl Message {
    /// Receives the message as [`Communicator::recv_buffer`] does, with the same errors.
    pub fn recv_buffer(self) -> Result<(ReceivedBuffer, Status)> {
        let (comm, message) = self.into_parts(CALL)?;
        let (block, status) = raw::mrecv_block_as(&comm, CALL, message, ReadInPlace::SharedPool)?;
        Ok((to_buffer(CALL, block)?, status))
    }

    /// Receives the message as [`Communicator::recv_buffer_in`] does, with the same errors.
    pub fn recv_buffer_in<P: Pool>(
        self,
        pool: &P,
        limit: usize,
    ) -> Result<(Buffer<P::Block, Reading>, Status)> {
        let (comm, message) = self.into_parts(CALL)?;
        receive_in(&comm, message, pool, limit)
    }
}

/// Returns the result of a receive from `PROC_NULL`: a message without sections.
fn empty_buffer<P: Pool>(comm: &raw::Comm, pool: &P) -> Result<(Buffer<P::Block, Reading>, Status)> {
    comm.check_not_freed(CALL)?;
    let block = alloc_for(CALL, pool, MESSAGE_HEADER_LEN, 0, MESSAGE_HEADER_LEN)?;
    let buffer = Buffer::new(block).map_err(|e| Error::new(ErrorClass::NoMem, CALL, e.error.to_string()))?;
    Ok((buffer.commit(), Status::empty()))
}

/// Receives the next matching message.
pub(super) fn recv(
    comm: &raw::Comm,
    call: &'static str,
    source: i32,
    tag: i32,
) -> Result<(ReceivedBuffer, Status)> {
    let block = raw::recv_block_as(comm, call, source, tag, ReadInPlace::SharedPool)?;
    let status = Status::of(block.envelope());
    Ok((to_buffer(call, block)?, status))
}

/// Receives an extracted message into a block of a pool.
fn receive_in<P: Pool>(
    comm: &raw::Comm,
    message: MatchedMessage,
    pool: &P,
    limit: usize,
) -> Result<(Buffer<P::Block, Reading>, Status)> {
    let Envelope { source, bytes, .. } = *message.envelope();
    let (block, status) = raw::mrecv_in(comm, CALL, message, pool, limit)?;
    // SAFETY: the receive has filled the block.
    Ok((unsafe { parse(CALL, block, source, bytes) }?, status))
}

/// Makes a buffer in the block of a message.
#[inline]
pub(super) fn to_buffer(call: &'static str, block: ReceivedBlock) -> Result<ReceivedBuffer> {
    let (source, len) = (block.envelope().source, block.len());
    // SAFETY: all bytes of the message are initialised.
    unsafe { parse(call, block, source, len) }
}

/// # Safety
/// The first `bytes` bytes of the block are initialised.
#[inline]
pub(super) unsafe fn parse<B: ReadBlock>(
    call: &'static str,
    block: B,
    source: u32,
    bytes: usize,
) -> Result<Buffer<B, Reading>> {
    // SAFETY: the caller's contract.
    let buffer = unsafe { Buffer::from_read_block(block, bytes) };
    buffer.map_err(|invalid| {
        let why = format!(
            "message from rank {source} ({bytes} bytes) is not a valid mpj::buffer message: {}",
            invalid.error
        );
        Error::new(ErrorClass::Buffer, call, why)
    })
}

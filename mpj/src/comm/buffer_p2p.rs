//! Receives of [`Buffer`]s.

use mpj_buffer::{Buffer, MESSAGE_HEADER_LEN, Reading};
use mpj_datatypes::Primitive;
use mpj_devices::{Envelope, Matched, MatchedMessage};
use mpj_pool::{DefaultBlock, Pool, RawBuffer, ReadBlock};

use super::{Intracomm, Message};
use crate::address::{IntoSource, Source, Tag};
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{self, Buf};
use crate::status::Status;

/// The name of all receives of this file in errors.
const CALL: &str = "recv_buffer";

impl Intracomm {
    /// Receives a [`Buffer`] of any length into a block of the global pool.
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
    ) -> Result<(Buffer<DefaultBlock, Reading>, Status)> {
        let (comm, source) = (self.as_raw(), source.into_source());
        if source == Source::Null {
            return empty_buffer(comm, mpj_pool::global());
        }
        probe_and_receive(comm, CALL, source.number(), tag.into().number())
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
        receive_in(comm, CALL, message, pool, limit)
    }
}

impl Message {
    /// Receives the message as [`Intracomm::recv_buffer`] does, with the same errors.
    pub fn recv_buffer(self) -> Result<(Buffer<DefaultBlock, Reading>, Status)> {
        let (comm, message) = self.into_parts(CALL)?;
        receive(comm.as_raw(), CALL, message)
    }

    /// Receives the message as [`Intracomm::recv_buffer_in`] does, with the same errors.
    pub fn recv_buffer_in<P: Pool>(
        self,
        pool: &P,
        limit: usize,
    ) -> Result<(Buffer<P::Block, Reading>, Status)> {
        let (comm, message) = self.into_parts(CALL)?;
        receive_in(comm.as_raw(), CALL, message, pool, limit)
    }
}

/// Returns the result of a receive from `PROC_NULL`: a message without sections.
fn empty_buffer<P: Pool>(comm: &raw::Comm, pool: &P) -> Result<(Buffer<P::Block, Reading>, Status)> {
    comm.check_not_freed(CALL)?;
    let block = alloc_for(CALL, pool, MESSAGE_HEADER_LEN, 0, MESSAGE_HEADER_LEN)?;
    let buffer = Buffer::new(block).map_err(|e| Error::new(ErrorClass::NoMem, CALL, e.error.to_string()))?;
    Ok((buffer.commit(), Status::empty()))
}

/// Receives the next matching message: in its own block if it arrived in one, otherwise in one of the global pool.
pub(super) fn probe_and_receive(
    comm: &raw::Comm,
    call: &'static str,
    source: i32,
    tag: i32,
) -> Result<(Buffer<DefaultBlock, Reading>, Status)> {
    match raw::mprobe_or_recv(comm, call, source, tag)? {
        Matched::Block(message, block) => {
            // SAFETY: the block was filled with the message.
            let buffer = unsafe { parse(call, block, message.source, message.bytes) }?;
            Ok((buffer, Status::of(&message)))
        }
        Matched::Message(message) => receive_in(comm, call, message, mpj_pool::global(), usize::MAX),
    }
}

/// As [`probe_and_receive`], for an extracted message.
fn receive(
    comm: &raw::Comm,
    call: &'static str,
    message: MatchedMessage,
) -> Result<(Buffer<DefaultBlock, Reading>, Status)> {
    let Envelope { source, bytes, .. } = *message.envelope();
    let status = Status::of(message.envelope());
    match comm.engine().recv_block(message) {
        // SAFETY: the block was filled with the message.
        Ok(block) => Ok((unsafe { parse(call, block, source, bytes) }?, status)),
        Err(message) => receive_in(comm, call, message, mpj_pool::global(), usize::MAX),
    }
}

/// Receives an extracted message into a block of a pool.
fn receive_in<P: Pool>(
    comm: &raw::Comm,
    call: &'static str,
    message: MatchedMessage,
    pool: &P,
    limit: usize,
) -> Result<(Buffer<P::Block, Reading>, Status)> {
    let Envelope { source, bytes, .. } = *message.envelope();
    let block = match alloc_for(call, pool, limit, source, bytes) {
        Ok(block) => block,
        // The sender might wait for the match.
        Err(error) => {
            raw::discard(comm, message);
            return Err(error);
        }
    };
    let buf = Buf::in_block(&block, 0, bytes, Primitive::Packed);
    // SAFETY: the block is ours, has at least `bytes` bytes, and no other code accesses it until the call returns.
    let status = unsafe { raw::mrecv(comm, buf, message) }.map_err(|error| error.with_call(call))?;
    // SAFETY: the receive has filled the block.
    Ok((unsafe { parse(call, block, source, bytes) }?, status))
}

/// Allocates a block for `bytes` bytes from communicator rank `source`, unless they exceed `limit`.
pub(super) fn alloc_for<P: Pool>(
    call: &'static str,
    pool: &P,
    limit: usize,
    source: u32,
    bytes: usize,
) -> Result<P::Block> {
    if bytes > limit {
        let why = format!("message of {bytes} bytes from rank {source} exceeds the limit of {limit}");
        return Err(Error::new(ErrorClass::Truncate, call, why));
    }
    let block = pool.alloc(bytes).map_err(|e| Error::new(ErrorClass::NoMem, call, e.to_string()))?;
    match block.capacity() {
        // Other crates can implement pools.
        capacity if capacity < bytes => {
            let why = format!(
                "the pool returned a block of {capacity} bytes for a message of {bytes} (defect of the pool)"
            );
            Err(Error::new(ErrorClass::NoMem, call, why))
        }
        _ => Ok(block),
    }
}

/// # Safety
/// The first `bytes` bytes of the block are initialised.
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

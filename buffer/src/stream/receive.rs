//! Messages from streams: [`Buffer::read_from`] for blocking streams, [`Receiver`] for others.
//!
//! ```text
//!          16 bytes received              all received
//!  header ──────────────────────► body ───────────────────► message; then the next header
//!    │    length ≤ limit, a block   │      all headers valid
//!    ╰─► error, header kept         ╰─► error, message dropped
//! ```

use core::fmt;
use std::io::{self, BufWriter, ErrorKind, Read, Write};

use mpj_pool::{AllocError, AllocErrorKind, Pool, RawBuffer};

use super::receive_error::ReceiveError;
use crate::block::FilledRange;
use crate::header::{MESSAGE_HEADER_LEN, MessageHeader};
use crate::validate;
use crate::{Buffer, FormatError, Reading};

const READ_LEN: usize = 64 << 10;

/// A message of known length, received in part.
///
/// # Invariants
/// 1. `bytes.len() <= total <= bytes.capacity()`.
struct MessageBody<R> {
    bytes: FilledRange<R>,
    total: usize,
}

impl<R: RawBuffer> MessageBody<R> {
    /// Allocates a block for the message that the header announces, and stores the header there.
    fn open<P: Pool<Block = R>>(
        header: [u8; MESSAGE_HEADER_LEN],
        pool: &P,
        limit: usize,
    ) -> Result<Self, ReceiveError> {
        let len = MessageHeader::parse(&header).map_err(ReceiveError::Format)?.total;
        if len < MESSAGE_HEADER_LEN as u64 {
            let given = MESSAGE_HEADER_LEN as u64;
            return Err(ReceiveError::Format(FormatError::Trailing { total: len, given }));
        }
        let Some(total) = usize::try_from(len).ok().filter(|total| *total <= limit) else {
            return Err(ReceiveError::TooLong { len, limit, header });
        };
        let block = pool.alloc(total).map_err(|error| ReceiveError::Alloc { error, header })?;
        // The error if the pool returned less than requested.
        let short = AllocError::new(total, block.capacity(), 0, AllocErrorKind::TooLarge);
        let short = ReceiveError::Alloc { error: short, header };
        if block.capacity() < total {
            return Err(short);
        }
        let Ok(mut bytes) = FilledRange::empty(block, 0) else { return Err(short) };
        match bytes.push(&header) {
            Ok(()) => Ok(Self { bytes, total }),
            Err(_) => Err(short),
        }
    }

    fn missing(&self) -> usize {
        self.total - self.bytes.len()
    }

    /// Takes bytes of the message from the front of `input`.
    fn take(&mut self, input: &mut &[u8]) {
        let (now, later) = input.split_at(self.missing().min(input.len()));
        let pushed = self.bytes.push(now);
        debug_assert_eq!(pushed, Ok(()), "invariant 1");
        *input = later;
    }

    fn close(self) -> Result<Buffer<R, Reading>, ReceiveError> {
        let layout = validate::message(self.bytes.bytes()).map_err(ReceiveError::Format)?;
        Ok(Buffer::checked(self.bytes, 0, layout))
    }
}

impl<R: RawBuffer> Write for MessageBody<R> {
    fn write(&mut self, mut src: &[u8]) -> io::Result<usize> {
        let given = src.len();
        self.take(&mut src);
        Ok(given - src.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<R: RawBuffer> Buffer<R, Reading> {
    /// Reads one message from a blocking stream into a block of `pool`. Reads no bytes after the message.
    ///
    /// # Errors
    /// [`ReceiveError`] if the stream fails or ends, if the bytes are not a message, if its header announces more than
    /// `limit` bytes, or if the pool cannot allocate a block for them. The length is checked before the allocation.
    /// `TooLong` and `Alloc` contain the header: `header.chain(stream)` restores the stream.
    ///
    /// # Examples
    /// ```
    /// use std::io::Read;
    ///
    /// use mpj_buffer::{Buffer, ReceiveError};
    /// use mpj_buffer::pool::global;
    ///
    /// let mut buffer = Buffer::with_capacity(256)?;
    /// buffer.write(&[1u8, 2, 3])?;
    /// let mut wire = Vec::new();
    /// buffer.commit().write_to(&mut wire)?;
    /// let mut stream = &wire[..];
    /// let Err(ReceiveError::TooLong { len, header, .. }) = Buffer::read_from(&mut stream, global(), 20) else {
    ///     panic!("35 bytes exceed the limit of 20");
    /// };
    /// let mut buffer = Buffer::read_from(header.chain(stream), global(), len as usize)?;
    /// assert_eq!(buffer.view::<u8>()?, [1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_from<P: Pool<Block = R>>(
        mut stream: impl Read,
        pool: &P,
        limit: usize,
    ) -> Result<Self, ReceiveError> {
        let mut header = [0; MESSAGE_HEADER_LEN];
        stream.read_exact(&mut header)?;
        let mut body = MessageBody::open(header, pool, limit)?;
        let missing = body.missing();
        // `io::copy` reads into its own memory, or into that of the `BufWriter`, and zeroes neither for streams of std.
        // For other streams, it zeroes each once.
        let mut rest = stream.take(missing as u64);
        if missing < READ_LEN / 4 {
            io::copy(&mut rest, &mut body)?;
        } else {
            let mut writer = BufWriter::with_capacity(READ_LEN, &mut body);
            io::copy(&mut rest, &mut writer)?;
            writer.flush()?;
        }
        if body.missing() > 0 {
            return Err(ReceiveError::Io(ErrorKind::UnexpectedEof.into()));
        }
        body.close()
    }
}

/// The result of one read by a [`Receiver`].
#[derive(Debug)]
pub enum Received<R: RawBuffer> {
    /// A complete message.
    Message(Buffer<R, Reading>),
    /// No more bytes are available: read again when the stream is ready.
    Pending,
    /// The stream ended after a whole message, or before the first.
    End,
}

/// Receives messages from a stream in portions of any size: for non-blocking sockets and async runtimes.
///
/// The caller passes bytes to [`feed`](Self::feed), or a stream to [`read`](Self::read). The receiver has at most one
/// block, for a message of at most `limit` bytes. It waits only in a read of a blocking stream.
///
/// # Errors
/// After a [`ReceiveError`]:
/// * `TooLong`, `Alloc`: the header is kept. Repeat the call after [`set_limit`](Self::set_limit), or when the pool has
///   memory again; it continues where it stopped.
/// * `Format`: if the header was invalid, every further call returns the same error, because the start of the next
///   message is unknown. Otherwise the message is dropped, and the next call begins with the next message.
/// * `Io`: whether a later call can succeed depends on the stream.
///
/// # Examples
/// ```
/// use mpj_buffer::pool::global;
/// use mpj_buffer::{Buffer, Receiver};
///
/// let mut wire = Vec::new();
/// for number in 0..3u64 {
///     let mut message = Buffer::with_capacity(256)?;
///     message.write(&[number])?;
///     message.commit().write_to(&mut wire)?;
/// }
///
/// let mut receiver = Receiver::new(global(), 1 << 20);
/// let mut numbers = Vec::new();
/// for mut portion in wire.chunks(50) {
///     // A portion may end within a message, or contain several.
///     while let Some(mut message) = receiver.feed(&mut portion)? {
///         numbers.extend_from_slice(message.view::<u64>()?);
///     }
/// }
/// assert_eq!(numbers, [0, 1, 2]);
/// assert!(!receiver.has_partial_message());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With tokio: `examples/echo.rs`.
pub struct Receiver<P: Pool> {
    pool: P,
    limit: usize,
    partial: Partial<P::Block>,
    ahead: ReadAhead,
}

struct Partial<R> {
    header: [u8; MESSAGE_HEADER_LEN],
    have: usize,
    body: Option<MessageBody<R>>,
}

/// Bytes from the stream, of which `memory[from..to]` are not yet consumed.
#[derive(Default)]
struct ReadAhead {
    memory: Vec<u8>,
    from: usize,
    to: usize,
}

impl<R: RawBuffer> Partial<R> {
    const EMPTY: Self = Self { header: [0; MESSAGE_HEADER_LEN], have: 0, body: None };

    /// Takes bytes of the message from the front of `input`; returns the message once it is complete.
    fn feed<P: Pool<Block = R>>(
        &mut self,
        input: &mut &[u8],
        pool: &P,
        limit: usize,
    ) -> Result<Option<Buffer<R, Reading>>, ReceiveError> {
        let mut body = match self.body.take() {
            Some(body) => body,
            None => {
                let (now, later) = input.split_at((MESSAGE_HEADER_LEN - self.have).min(input.len()));
                self.header[self.have..][..now.len()].copy_from_slice(now);
                self.have += now.len();
                *input = later;
                if self.have < MESSAGE_HEADER_LEN {
                    return Ok(None);
                }
                MessageBody::open(self.header, pool, limit)?
            }
        };
        body.take(input);
        if body.missing() > 0 {
            self.body = Some(body);
            return Ok(None);
        }
        self.have = 0;
        body.close().map(Some)
    }
}

impl<P: Pool> Receiver<P> {
    /// Makes a receiver of messages of at most `limit` bytes, in blocks of `pool`: a pool, a reference, or an `Arc`.
    pub fn new(pool: P, limit: usize) -> Self {
        Self { pool, limit, partial: Partial::EMPTY, ahead: ReadAhead::default() }
    }

    /// Sets the limit, except for a message whose block is already allocated.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns whether the receiver has bytes of a message that it has not returned.
    pub fn has_partial_message(&self) -> bool {
        self.partial.have > 0 || self.ahead.from < self.ahead.to
    }

    /// Takes bytes from the front of `input`, up to the end of one message, and returns that message. `None` means that
    /// all bytes were taken and more are needed. If [`read`](Self::read) has read a message ahead, returns it first and
    /// leaves `input` unchanged.
    ///
    /// # Errors
    /// Those of the [type](Self#errors), except `Io`. Then `input` begins with the first byte that was not taken.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Buffer<P::Block, Reading>>, ReceiveError> {
        match self.next_ahead()? {
            None => self.partial.feed(input, &self.pool, self.limit),
            message => Ok(message),
        }
    }

    /// Returns the next message of a stream, which may be non-blocking. Keeps bytes after the message for the next
    /// call.
    ///
    /// Bytes pass through 64 KiB of memory, allocated by the first call, so that one system call reads several short
    /// messages. A server can instead read into one buffer for all connections, and call [`feed`](Self::feed).
    ///
    /// # Errors
    /// Those of the [type](Self#errors); an end within a message is [`ErrorKind::UnexpectedEof`].
    ///
    /// # Examples
    /// ```
    /// use std::os::unix::net::UnixStream;
    ///
    /// use mpj_buffer::pool::global;
    /// use mpj_buffer::{Buffer, Received, Receiver};
    ///
    /// let (out, into) = UnixStream::pair()?;
    /// into.set_nonblocking(true)?;
    /// let mut receiver = Receiver::new(global(), 1 << 20);
    /// assert!(matches!(receiver.read(&into)?, Received::Pending));
    ///
    /// let mut message = Buffer::with_capacity(256)?;
    /// message.write_object("no hurry")?;
    /// message.commit().write_to(&out)?;
    /// let Received::Message(mut message) = receiver.read(&into)? else { panic!("no message") };
    /// assert_eq!(message.read_object::<String>()?, "no hurry");
    ///
    /// drop(out);
    /// assert!(matches!(receiver.read(&into)?, Received::End));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(&mut self, mut stream: impl Read) -> Result<Received<P::Block>, ReceiveError> {
        loop {
            if let Some(message) = self.next_ahead()? {
                return Ok(Received::Message(message));
            }
            if self.ahead.memory.is_empty() {
                self.ahead.memory.resize(READ_LEN, 0);
            }
            match stream.read(&mut self.ahead.memory) {
                Ok(0) if self.has_partial_message() => {
                    return Err(ReceiveError::Io(ErrorKind::UnexpectedEof.into()));
                }
                Ok(0) => return Ok(Received::End),
                Ok(count) => (self.ahead.from, self.ahead.to) = (0, count.min(READ_LEN)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Received::Pending),
                Err(e) => return Err(ReceiveError::Io(e)),
            }
        }
    }

    /// Consumes bytes that were read ahead; all of them if it returns `Ok(None)`.
    fn next_ahead(&mut self) -> Result<Option<Buffer<P::Block, Reading>>, ReceiveError> {
        let Self { pool, limit, partial, ahead } = self;
        let mut input = &ahead.memory[ahead.from..ahead.to];
        let message = partial.feed(&mut input, pool, *limit);
        ahead.from = ahead.to - input.len();
        message
    }
}

impl<P: Pool> fmt::Debug for Receiver<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("limit", &self.limit)
            .field("has_partial_message", &self.has_partial_message())
            .finish_non_exhaustive()
    }
}

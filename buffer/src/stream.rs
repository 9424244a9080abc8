//! Messages and sections as streams: `std::io`, and the `bytes` crate with feature `bytes`.
//!
//! A section of bytes is read through its view: `&[u8]` is [`Read`], `BufRead` and `bytes::Buf` already.

use core::error::Error;
use core::fmt;
use std::io::{self, Read, Write};

use mpj_pool::RawBuffer;

use crate::block::Filled;
use crate::check;
use crate::dynamic::Dynamic;
use crate::header::{MESSAGE_HEADER, Message};
use crate::{Buffer, FormatError, Overflow, Reading, Refused, Writing};

#[cfg(feature = "bytes")]
#[expect(
    unsafe_code,
    reason = "`BufMut` is an unsafe trait, its `advance_mut` an unsafe function; proofs inside"
)]
mod bytes;

/// At once this much is read: what is zeroed for it is still in the cache.
const STEP: usize = 64 << 10;

/// Why no message was received.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The stream failed, or ended within the message.
    Io(io::Error),
    /// The bytes are not a message, or the block is too small for it.
    Format(FormatError),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => e.fmt(f),
            Self::Format(e) => e.fmt(f),
        }
    }
}

impl Error for ReceiveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            Self::Format(e) => Some(e),
        }
    }
}

/// The bytes of a message in order, as [`Read`]; with feature `bytes` as `bytes::Buf`, too.
#[derive(Clone)]
pub struct MessageReader<'a> {
    chain: &'a Dynamic,
    /// What is unread of the piece that is being read.
    piece: &'a [u8],
    /// The chunk of the chain that comes next.
    next: usize,
    left: usize,
}

impl MessageReader<'_> {
    /// Returns the number of unread bytes.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Steps over bytes, not beyond the end of the message.
    fn step(&mut self, mut count: usize) {
        self.left = self.left.saturating_sub(count);
        while count >= self.piece.len() {
            count -= self.piece.len();
            let Some(piece) = self.chain.chunk(self.next) else {
                self.piece = &[];
                return;
            };
            (self.piece, self.next) = (piece, self.next + 1);
        }
        self.piece = &self.piece[count..];
    }
}

impl Read for MessageReader<'_> {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.len().min(dst.len());
        dst[..count].copy_from_slice(&self.piece[..count]);
        self.step(count);
        Ok(count)
    }
}

impl fmt::Debug for MessageReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageReader").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<R: RawBuffer> Buffer<R, Reading> {
    /// Returns the bytes of the message as a stream, whatever has been read of its sections.
    pub fn reader(&self) -> MessageReader<'_> {
        MessageReader { chain: &self.chain, piece: self.fixed(), next: 0, left: self.len() }
    }

    /// Writes the message to a stream, piece by piece.
    ///
    /// # Errors
    /// What `out` answers.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        self.segments().try_for_each(|segment| out.write_all(segment))
    }

    /// Reads one message from a stream into a block: exactly its bytes, so that another one may follow.
    ///
    /// # Errors
    /// The block back, if the stream fails or ends, if the bytes are not a message, or if it is too small. The length that
    /// the header announces is checked against the block before more is read.
    ///
    /// # Examples
    /// ```
    /// use mpj_buffer::Buffer;
    /// use mpj_buffer::pool::{Pool, global};
    ///
    /// let mut buffer = Buffer::with_capacity(256)?;
    /// buffer.write(&[1u8, 2, 3])?;
    /// let mut stream = Vec::new();
    /// buffer.commit().write_to(&mut stream)?;
    /// let mut buffer = Buffer::read_from(global().alloc(256)?, &stream[..])?;
    /// assert_eq!(buffer.view::<u8>()?, [1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_from(block: R, mut stream: impl Read) -> Result<Self, Refused<R, ReceiveError>> {
        let left = block.capacity();
        let mut block = match Filled::empty(block, 0) {
            Ok(filled) => filled,
            Err((block, _)) => {
                let error = FormatError::Block { needed: MESSAGE_HEADER as u64, left: left as u64 };
                return Err(Refused { block, error: ReceiveError::Format(error) });
            }
        };
        match fill(&mut block, &mut stream) {
            Ok(layout) => Ok(Self::checked(block, 0, layout)),
            Err(error) => Err(Refused { block: block.into_block(), error }),
        }
    }
}

/// Reads one message.
fn fill<R: RawBuffer>(block: &mut Filled<R>, stream: &mut impl Read) -> Result<check::Layout, ReceiveError> {
    let mut head = [0; MESSAGE_HEADER];
    stream.read_exact(&mut head).map_err(ReceiveError::Io)?;
    let total = Message::parse(&head).map_err(ReceiveError::Format)?.total;
    let left = block.capacity();
    let too_small = ReceiveError::Format(FormatError::Block { needed: total, left: left as u64 });
    let Some(total) = usize::try_from(total).ok().filter(|total| *total <= left) else {
        return Err(too_small);
    };
    if block.push(&head).is_err() {
        return Err(too_small);
    }
    while block.len() < total {
        let from = block.len();
        if block.push_zeros(STEP.min(total - from)).is_err() {
            return Err(too_small); // Impossible: `total` fits.
        }
        stream.read_exact(&mut block.bytes_mut()[from..]).map_err(ReceiveError::Io)?;
    }
    check::message(block.bytes()).map_err(ReceiveError::Format)
}

/// Appends bytes to a section as [`Write`]; with feature `bytes` as `bytes::BufMut`, too.
#[derive(Debug)]
pub struct ByteWriter<'a, R: RawBuffer> {
    buffer: &'a mut Buffer<R, Writing>,
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Returns a stream that appends bytes to the open section of `u8`; if there is none, opens one. When the block is
    /// full it takes no more, which [`write_all`](Write::write_all) makes an error.
    ///
    /// # Errors
    /// [`Overflow`] if the static part has no room for the header.
    ///
    /// # Examples
    /// ```
    /// use std::io::Write;
    ///
    /// # use mpj_buffer::Buffer;
    /// let mut buffer = Buffer::with_capacity(256)?;
    /// write!(buffer.byte_writer()?, "{} + {}", 1, 2)?;
    /// assert_eq!(buffer.commit().view::<u8>()?, b"1 + 2");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn byte_writer(&mut self) -> Result<ByteWriter<'_, R>, Overflow> {
        self.write::<u8>(&[])?;
        Ok(ByteWriter { buffer: self })
    }
}

impl<R: RawBuffer> Write for ByteWriter<'_, R> {
    fn write(&mut self, src: &[u8]) -> io::Result<usize> {
        let count = src.len().min(self.buffer.left());
        self.buffer.write(&src[..count]).map_err(io::Error::other)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

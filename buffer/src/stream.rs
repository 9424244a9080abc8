//! Messages and sections as streams: `std::io`, and the `bytes` crate with feature `bytes`.
//!
//! A section of bytes is read through its view: `&[u8]` is [`Read`], `BufRead` and `bytes::Buf` already.

use core::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

use mpj_pool::RawBuffer;

use crate::dynamic::Dynamic;
use crate::{Buffer, Overflow, Reading, Writing};

#[cfg(feature = "bytes")]
#[expect(
    unsafe_code,
    reason = "`BufMut` is an unsafe trait, its `advance_mut` an unsafe function; proofs inside"
)]
mod bytes;
mod receive;

pub use self::receive::{ReceiveError, Received, Receiver};

/// The most pieces that one call writes: those of a message of 200 MiB.
const PIECES: usize = 64;

/// The bytes of a message in order, as [`Read`]; with feature `bytes` as `bytes::Buf`, too.
#[derive(Clone)]
pub struct MessageReader<'a> {
    chain: &'a Dynamic,
    /// The unread bytes of the current piece.
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

    /// Puts the unread pieces into `slices`, as many as it holds; returns how many that are.
    fn pieces<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let later = (self.next..).map_while(|index| self.chain.chunk(index));
        let pieces = core::iter::once(self.piece).chain(later).filter(|piece| !piece.is_empty());
        slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    /// Writes the unread bytes to a stream, many pieces a call. Bytes that the stream has taken count as read even if
    /// it fails later, so a non-blocking stream can be written to again when it is ready.
    ///
    /// # Errors
    /// The error of `out`, except [`ErrorKind::Interrupted`]; [`ErrorKind::WriteZero`] if it takes no bytes.
    ///
    /// # Examples
    /// ```
    /// use std::io::ErrorKind;
    /// use std::os::unix::net::UnixStream;
    ///
    /// use mpj_buffer::Buffer;
    ///
    /// let (out, into) = UnixStream::pair()?;
    /// out.set_nonblocking(true)?;
    /// let mut message = Buffer::with_capacity(4096)?;
    /// message.write_object(&vec![7u64; 100_000])?;
    /// let message = message.commit();
    ///
    /// let receiving = std::thread::spawn(|| Buffer::read_from(into, mpj_buffer::pool::global(), 1 << 20));
    /// let mut reader = message.reader();
    /// while let Err(error) = reader.write_to(&out) {
    ///     assert_eq!(error.kind(), ErrorKind::WouldBlock);
    ///     std::thread::yield_now(); // or wait until the socket is ready
    /// }
    /// assert_eq!(receiving.join().unwrap()?.len(), message.len());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_to(&mut self, mut out: impl Write) -> io::Result<()> {
        while self.left > 0 {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let count = self.pieces(&mut slices);
            match out.write_vectored(&slices[..count]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.step(written),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
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
        MessageReader { chain: &self.chain, piece: self.static_part(), next: 0, left: self.len() }
    }

    /// Writes the message to a stream: with one call, if the stream takes all its pieces at once.
    ///
    /// # Errors
    /// The error of `out`; [`ErrorKind::WriteZero`] if it takes no bytes. For a non-blocking stream use
    /// [`reader`](Self::reader), which remembers its position.
    pub fn write_to(&self, out: impl Write) -> io::Result<()> {
        self.reader().write_to(out)
    }
}

/// Appends bytes to a section as [`Write`]; with feature `bytes` as `bytes::BufMut`, too.
#[derive(Debug)]
pub struct ByteWriter<'a, R: RawBuffer> {
    buffer: &'a mut Buffer<R, Writing>,
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Returns a stream that appends bytes to the open section of `u8`, or to a new one if none is open. When the block
    /// is full the stream takes no more bytes, and [`write_all`](Write::write_all) returns an error.
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
        let count = src.len().min(self.buffer.remaining_capacity());
        self.buffer.write(&src[..count]).map_err(io::Error::other)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

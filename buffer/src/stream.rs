//! Messages and sections as streams of `std::io`, and of the `bytes` crate with feature `bytes`. To read a section of
//! bytes as a stream, use its view: `&[u8]` implements [`Read`], `BufRead` and `bytes::Buf`.

use core::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

use mpj_pool::{RawBuffer, ReadBlock};

use crate::dynamic::Dynamic;
use crate::{Buffer, Overflow, Reading, Writing};

#[cfg(feature = "bytes")]
#[expect(
    unsafe_code,
    reason = "`BufMut` is an unsafe trait, its `advance_mut` an unsafe function; proofs inside"
)]
mod bytes;
mod receive;
mod receive_error;

pub use self::receive::{Received, Receiver};
pub use self::receive_error::ReceiveError;

/// Maximum number of segments per write.
const MAX_SLICES: usize = 64;

/// The bytes of a message as [`Read`]; with feature `bytes` also as `bytes::Buf`.
#[derive(Clone)]
pub struct MessageReader<'a> {
    chain: &'a Dynamic,
    segment: &'a [u8],
    next: usize,
    remaining: usize,
}

impl MessageReader<'_> {
    /// Returns the number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Advances by `count` bytes, at most to the end of the message.
    fn advance_by(&mut self, mut count: usize) {
        self.remaining = self.remaining.saturating_sub(count);
        while count >= self.segment.len() {
            count -= self.segment.len();
            let Some(segment) = self.chain.chunk(self.next) else {
                self.segment = &[];
                return;
            };
            (self.segment, self.next) = (segment, self.next + 1);
        }
        self.segment = &self.segment[count..];
    }

    /// Fills `slices` with the unread segments, and returns how many slices were filled.
    fn fill_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let later = (self.next..).map_while(|index| self.chain.chunk(index));
        let segments = core::iter::once(self.segment).chain(later).filter(|segment| !segment.is_empty());
        slices.iter_mut().zip(segments).map(|(slice, segment)| *slice = IoSlice::new(segment)).count()
    }

    /// Writes the unread bytes to a stream, several segments per call. Bytes that the stream has accepted count as read
    /// even if the stream fails later, so the call can be repeated when a non-blocking stream is ready.
    ///
    /// # Errors
    /// The error of `out`, except [`ErrorKind::Interrupted`]; [`ErrorKind::WriteZero`] if it accepts no bytes.
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
        while self.remaining > 0 {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let count = self.fill_slices(&mut slices);
            match out.write_vectored(&slices[..count]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.advance_by(written),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Read for MessageReader<'_> {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        let count = self.segment.len().min(dst.len());
        dst[..count].copy_from_slice(&self.segment[..count]);
        self.advance_by(count);
        Ok(count)
    }
}

impl fmt::Debug for MessageReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageReader").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}

impl<R: ReadBlock> Buffer<R, Reading> {
    /// Returns the bytes of the whole message as a stream.
    pub fn reader(&self) -> MessageReader<'_> {
        MessageReader { chain: &self.chain, segment: self.static_part(), next: 0, remaining: self.len() }
    }

    /// Writes the message to a stream, up to 64 segments per call. Repeats the call until all bytes are written.
    ///
    /// # Errors
    /// The error of `out`, except [`ErrorKind::Interrupted`]; [`ErrorKind::WriteZero`] if it accepts no bytes. For a
    /// non-blocking stream use [`reader`](Self::reader), which keeps its position.
    pub fn write_to(&self, out: impl Write) -> io::Result<()> {
        self.reader().write_to(out)
    }
}

/// Appends bytes to a section as [`Write`]; with feature `bytes` also as `bytes::BufMut`.
#[derive(Debug)]
pub struct ByteWriter<'a, R: RawBuffer> {
    buffer: &'a mut Buffer<R, Writing>,
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Returns a stream that appends bytes to the open section of `u8`, or to a new one. When the block is full, the
    /// stream accepts no more bytes; then [`write_all`](Write::write_all) returns an error.
    ///
    /// # Errors
    /// [`Overflow`] if the static part is too small for the header.
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

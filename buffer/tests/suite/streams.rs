//! Messages through `std::io` and the `bytes` crate.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use crate::common::{Heap, ShortBlocks};
use mpj_buffer::pool::{AllocError, Growth, Magazine, Pool, global};
use mpj_buffer::{Buffer, FormatError, Overflow, Reading, ReceiveError};

fn sample(objects: usize) -> Buffer<Heap, Reading> {
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.write(&[1u8, 2, 3]).unwrap();
    for _ in 0..objects {
        buffer.write_dynamic(&[7u32; 5000]).unwrap();
    }
    buffer.write(&[0.5f64]).unwrap();
    buffer.commit()
}

struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        let count = dst.len().min(7);
        self.0.read(&mut dst[..count])
    }
}

#[test]
fn messages_follow_each_other_in_a_stream() {
    let mut stream = Vec::new();
    for objects in 0..3 {
        sample(objects).write_to(&mut stream).unwrap();
    }
    let mut slow = Slow(&stream);
    for objects in 0..3 {
        let expected = sample(objects);
        let mut read = Vec::new();
        expected.reader().read_to_end(&mut read).unwrap();
        assert_eq!(read, expected.to_vec());
        assert_eq!(expected.reader().remaining(), expected.len());
        let got = Buffer::read_from(&mut slow, global(), 100_000).unwrap();
        assert_eq!(got.to_vec(), expected.to_vec());
    }
    let refused = Buffer::read_from(&mut slow, global(), 16).unwrap_err();
    assert!(matches!(refused, ReceiveError::Io(e) if e.kind() == ErrorKind::UnexpectedEof));
}

/// Accepts at most `max` bytes per call; every third call is interrupted.
struct LimitedWriter {
    bytes: Vec<u8>,
    max: usize,
    calls: usize,
}

impl Write for LimitedWriter {
    fn write(&mut self, src: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(src)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            return Err(ErrorKind::Interrupted.into());
        }
        let before = self.bytes.len();
        for piece in pieces {
            let left = self.max - (self.bytes.len() - before);
            self.bytes.extend(piece.iter().take(left));
        }
        Ok(self.bytes.len() - before)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn message_of_many_segments_is_one_write() {
    let message = sample(40);
    assert!(message.segments().count() > 5);
    let mut out = LimitedWriter { bytes: Vec::new(), max: usize::MAX, calls: 0 };
    message.write_to(&mut out).unwrap();
    assert_eq!((out.calls, out.bytes), (1, message.to_vec()));
}

#[test]
fn short_writes_are_continued() {
    let message = sample(4);
    for max in [1, 15, 16, 17, 4095, 4096, 4097, 30_000] {
        let mut out = LimitedWriter { bytes: Vec::new(), max, calls: 0 };
        message.write_to(&mut out).unwrap();
        assert_eq!(out.bytes, message.to_vec(), "{max}");
    }
    let mut nothing = LimitedWriter { bytes: Vec::new(), max: 0, calls: 0 };
    assert_eq!(message.write_to(&mut nothing).unwrap_err().kind(), ErrorKind::WriteZero);
}

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (out, listener.accept().unwrap().0)
}

#[test]
fn more_segments_than_the_system_accepts_are_written() {
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.set_pool(Arc::new(ShortBlocks { max: 64 }));
    buffer.write_dynamic(&[0x5a5a_u16; 100_000]).unwrap();
    let message = buffer.commit();
    assert!(message.segments().count() > 3000, "the system accepts 1024 per call");
    let (out, into) = connected();
    let receiving = std::thread::spawn(move || Buffer::read_from(&into, global(), 1 << 20));
    message.write_to(&out).unwrap();
    drop(out);
    assert_eq!(receiving.join().unwrap().unwrap().to_vec(), message.to_vec());
}

#[test]
fn write_to_a_nonblocking_stream_can_be_repeated() {
    // The message is longer than the buffers of the connection.
    let message = sample(1000);
    let (out, mut into) = connected();
    out.set_nonblocking(true).unwrap();
    let (mut reader, mut got, mut waits) = (message.reader(), Vec::new(), 0);
    while let Err(error) = reader.write_to(&out) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        waits += 1;
        let mut piece = [0; 10_000];
        let count = into.read(&mut piece).unwrap();
        got.extend_from_slice(&piece[..count]);
    }
    drop(out);
    into.read_to_end(&mut got).unwrap();
    assert_eq!((waits > 0, got), (true, message.to_vec()));
}

#[test]
fn invalid_and_too_long_messages_are_errors() {
    let read = |bytes: &[u8], limit| Buffer::read_from(bytes, global(), limit);
    let wire = sample(1).to_vec();
    for len in 0..wire.len() {
        let error = read(&wire[..len], 100_000).unwrap_err();
        assert!(matches!(error, ReceiveError::Io(e) if e.kind() == ErrorKind::UnexpectedEof), "{len}");
    }
    for (field, message) in [(u64::MAX, "18446744073709551615 bytes"), (1 << 40, "1099511627776 bytes")] {
        let mut huge = wire.clone();
        huge[8..16].copy_from_slice(&field.to_ne_bytes());
        let error = read(&huge, 100_000).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
    for total in 0..16u64 {
        let mut short = wire.clone();
        short[8..16].copy_from_slice(&total.to_ne_bytes());
        let expected = FormatError::Trailing { total, given: 16 };
        assert!(matches!(read(&short, 100_000), Err(ReceiveError::Format(e)) if e == expected));
    }
    let error = read(b"GET / HTTP/1.1\r\n\r\n", 100_000).unwrap_err();
    assert!(matches!(error, ReceiveError::Format(FormatError::Magic { .. })));
    assert!(!error.to_string().is_empty());
}

#[test]
fn error_of_a_long_message_contains_the_header() {
    let wire = sample(1).to_vec();
    let mut stream = &wire[..];
    let Err(ReceiveError::TooLong { len, limit, header }) =
        Buffer::read_from(&mut stream, global(), wire.len() - 1)
    else {
        panic!("one byte too long");
    };
    assert_eq!((len, limit, stream.len()), (wire.len() as u64, wire.len() - 1, wire.len() - 16));
    let message = Buffer::read_from(header.chain(stream), global(), len as usize).unwrap();
    assert_eq!(message.to_vec(), wire);
}

#[test]
fn error_of_an_empty_pool_contains_the_header() {
    let wire = sample(10).to_vec();
    let pool = Magazine::growing(Growth::default().limit(1 << 20), mpj_buffer::pool::Heap::create);
    let mut held = Vec::new();
    while let Ok(block) = pool.alloc(wire.len()) {
        held.push(block);
    }
    let mut stream = &wire[..];
    let Err(ReceiveError::Alloc { header, .. }) = Buffer::read_from(&mut stream, &pool, 1 << 20) else {
        panic!("the pool is not empty");
    };
    held.clear();
    let message = Buffer::read_from(header.chain(stream), &pool, 1 << 20).unwrap();
    assert_eq!(message.to_vec(), wire);
}

/// A defective pool that returns less than requested.
#[derive(Debug)]
struct ShortByOne;

impl Pool for ShortByOne {
    type Block = Heap;

    fn alloc(&self, len: usize) -> Result<Heap, AllocError> {
        Ok(Heap::new(len - 1))
    }

    fn max_alloc(&self) -> usize {
        usize::MAX
    }

    fn stats(&self) -> mpj_buffer::pool::PoolStats {
        Default::default()
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn block_that_is_too_short_is_an_error() {
    let wire = sample(0).to_vec();
    assert!(matches!(Buffer::read_from(&wire[..], &ShortByOne, 1 << 20), Err(ReceiveError::Alloc { .. })));
}

#[test]
fn section_of_bytes_is_a_stream() {
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    write!(buffer.byte_writer().unwrap(), "{:>4}", 12).unwrap();
    buffer.write(b"!").unwrap();
    assert_eq!(buffer.byte_writer().unwrap().write(&[b'x'; 100]).unwrap(), 27);
    let full = buffer.byte_writer().unwrap().write_all(b"y");
    assert_eq!(full.unwrap_err().kind(), ErrorKind::WriteZero);
    let mut buffer = buffer.commit();
    let mut text = String::new();
    buffer.view::<u8>().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "  12!".to_owned() + &"x".repeat(27));

    let mut buffer = Buffer::new(Heap::new(16)).unwrap();
    assert_eq!(buffer.byte_writer().map(drop), Err(Overflow { needed: 16, available: 0 }));
}

#[cfg(feature = "bytes")]
#[test]
fn bytes_traits_read_and_write_messages() {
    use bytes::{Buf, BufMut};

    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    let mut writer = buffer.byte_writer().unwrap();
    assert_eq!(writer.remaining_mut(), 32);
    writer.put_u32(0x0102_0304);
    writer.put_slice(b"abc");
    writer.put_bytes(9, 2);
    assert_eq!((writer.remaining_mut(), writer.chunk_mut().len()), (23, 23));
    buffer.write(&[5u8]).unwrap();
    let mut local = buffer.commit();
    let expected = [1, 2, 3, 4, b'a', b'b', b'c', 9, 9, 5];
    assert_eq!(local.view::<u8>(), Ok(&expected[..]));
    local.rewind();
    assert_eq!(local.view::<u8>().unwrap().get_u16(), 0x0102);

    let whole = local.to_vec();
    let bytes = local.into_bytes();
    assert_eq!(bytes, whole);
    let split = bytes.slice(..20).chain(bytes.slice(20..));
    let mut buffer = Buffer::from_buf(Heap::new(64), split).unwrap();
    assert_eq!(buffer.view::<u8>(), Ok(&expected[..]));
    assert_eq!(buffer.view::<u8>(), Ok(&[][..]));
    assert_eq!(buffer.view::<u16>(), Err(mpj_buffer::ReadError::End));
    assert!(Buffer::from_buf(Heap::new(10), &whole[..]).is_err());
    assert!(Buffer::from_buf(Heap::new(64), &whole[1..]).is_err());

    let long = sample(3);
    let mut slices = [IoSlice::new(&[]); 100];
    let mut reader = long.reader();
    let count = reader.chunks_vectored(&mut slices);
    let joined: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
    assert_eq!((count, joined), (long.segments().count(), long.to_vec()));
    assert!(reader.chunk().len() < reader.remaining());
    assert_eq!(reader.copy_to_bytes(long.len()), long.to_vec());
    reader.advance(5);
    assert_eq!((reader.remaining(), reader.chunk()), (0, &[][..]));
    assert_eq!(Buffer::from_buf(Heap::new(long.len()), long.reader()).unwrap().to_vec(), long.to_vec());
    assert_eq!(long.to_vec(), long.into_bytes());
}

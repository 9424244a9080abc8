//! Messages through `std::io` and the `bytes` crate.

mod common;

use std::io::{self, ErrorKind, Read, Write};

use common::Heap;
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

/// Gives a few bytes at a time, and fails at the end of `left`.
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
        assert_eq!(expected.reader().left(), expected.len());
        let got = Buffer::read_from(Heap::new(100_000), &mut slow).unwrap();
        assert_eq!(got.to_vec(), expected.to_vec());
    }
    let refused = Buffer::read_from(Heap::new(16), &mut slow).unwrap_err();
    assert!(matches!(refused.error, ReceiveError::Io(e) if e.kind() == ErrorKind::UnexpectedEof));
}

#[test]
fn what_does_not_fit_or_is_no_message_is_refused() {
    let wire = sample(1).to_vec();
    for len in 0..wire.len().min(200) {
        assert!(Buffer::read_from(Heap::new(100_000), &wire[..len]).is_err(), "{len}");
    }
    let needed = wire.len() as u64;
    let refused = Buffer::read_from(Heap::new(wire.len() - 1), &wire[..]).unwrap_err();
    assert!(matches!(
        refused.error,
        ReceiveError::Format(FormatError::Block { needed: n, left }) if n == needed && left == needed - 1
    ));
    // A length that no block has is refused before a byte of it is read.
    let mut huge = wire.clone();
    huge[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
    let refused = Buffer::read_from(refused.block, &huge[..]).unwrap_err();
    assert!(matches!(refused.error, ReceiveError::Format(FormatError::Block { needed: u64::MAX, .. })));
    let mut short = wire.clone();
    short[8..16].copy_from_slice(&3u64.to_ne_bytes());
    assert!(Buffer::read_from(refused.block, &short[..]).is_err());
    let refused = Buffer::read_from(Heap::new(64), &b"GET / HTTP/1.1\r\n\r\n"[..]).unwrap_err();
    assert!(matches!(refused.error, ReceiveError::Format(FormatError::Magic { .. })));
    assert!(!refused.to_string().is_empty());
}

#[test]
fn a_section_of_bytes_is_a_stream() {
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
    assert_eq!(buffer.byte_writer().map(drop), Err(Overflow { needed: 16, left: 0 }));
}

#[cfg(feature = "bytes")]
#[test]
fn the_traits_of_bytes() {
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
    let mut reader = long.reader();
    assert!(reader.chunk().len() < reader.remaining());
    assert_eq!(reader.copy_to_bytes(long.len()), long.to_vec());
    reader.advance(5);
    assert_eq!((reader.remaining(), reader.chunk()), (0, &[][..]));
    assert_eq!(Buffer::from_buf(Heap::new(long.len()), long.reader()).unwrap().to_vec(), long.to_vec());
    assert_eq!(long.to_vec(), long.into_bytes());
}

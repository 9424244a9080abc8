//! Tests the bytes of the format against the hex dumps in README.md.

use crate::common::Heap;
use mpj_buffer::{Buffer, ByteOrder, ReadError, Reading};

/// Returns the bytes of the dump whose fence in README.md is named `name`.
fn dump(name: &str) -> Vec<u8> {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once(&format!("```{name}\n")).expect("the dump");
    let (dump, _) = rest.split_once("```").expect("its end");
    let mut bytes = Vec::new();
    for line in dump.lines() {
        let (offset, rest) = line.split_once("  ").expect("an offset");
        assert_eq!(usize::from_str_radix(offset, 16), Ok(bytes.len()), "{line}");
        let hex = rest.split('|').next().unwrap_or_default();
        bytes.extend(hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("a byte")));
    }
    bytes
}

fn written() -> Buffer<Heap, Reading> {
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.write(&[1u8, 2]).unwrap();
    buffer.write(&[3u8]).unwrap();
    buffer.write(&[0x0102_0304i32, -2]).unwrap();
    buffer.write_object("héllo").unwrap();
    buffer.write_object(&(300u32, true)).unwrap();
    buffer.write(&[1.5f64]).unwrap();
    buffer.commit()
}

fn check(mut buffer: Buffer<Heap, Reading>) {
    let (mut bytes, mut ints, mut doubles) = ([0u8; 3], [0i32; 2], [0f64]);
    assert_eq!(buffer.read(&mut bytes), Ok(3));
    assert_eq!(bytes, [1, 2, 3]);
    assert_eq!(buffer.read(&mut ints), Ok(2));
    assert_eq!(ints, [0x0102_0304, -2]);
    assert_eq!(buffer.read_object::<String>().unwrap(), "héllo");
    assert_eq!(buffer.read_object(), Ok((300u32, true)));
    assert_eq!(buffer.read(&mut doubles), Ok(1));
    assert_eq!(doubles, [1.5]);
    assert_eq!(buffer.read(&mut doubles), Err(ReadError::PastSection { needed: 1, available: 0 }));
}

#[test]
fn native_bytes_equal_the_dump() {
    let native = if cfg!(target_endian = "little") { "golden-little" } else { "golden-big" };
    let buffer = written();
    assert_eq!(buffer.to_vec(), dump(native), "{:02x?}", buffer.to_vec());
    check(buffer);
}

#[test]
fn messages_of_both_byte_orders_are_read() {
    for name in ["golden-little", "golden-big"] {
        check(Buffer::from_bytes(Heap::new(256), &dump(name)).unwrap());
    }
}

#[test]
fn section_in_the_other_order_equals_the_dump() {
    if cfg!(target_endian = "little") {
        let mut buffer = Buffer::new(Heap::new(256)).unwrap();
        buffer.section_with_order::<u16>(ByteOrder::Big).unwrap();
        buffer.write(&[0x0102u16, 3]).unwrap();
        buffer.write(&[1u16]).unwrap();
        buffer.section::<u16>().unwrap();
        buffer.write(&[5u16]).unwrap();
        assert_eq!(buffer.commit().to_vec(), dump("golden-mixed"));
    }
    let mut buffer = Buffer::from_bytes(Heap::new(256), &dump("golden-mixed")).unwrap();
    let orders: Vec<_> = buffer.sections().map(|section| section.byte_order).collect();
    assert_eq!(orders, [ByteOrder::Big, ByteOrder::Little]);
    let (mut three, mut one) = ([0u16; 3], [0u16]);
    assert_eq!((buffer.read(&mut three), three), (Ok(3), [0x0102, 3, 1]));
    assert_eq!(buffer.section::<u16>(), Ok(1));
    assert_eq!((buffer.read(&mut one), one), (Ok(1), [5]));
}

#[test]
fn an_empty_message_is_its_header() {
    let buffer = Buffer::new(Heap::new(16)).unwrap().commit();
    let order: &[u8] =
        if cfg!(target_endian = "little") { b"<\0\0\x10\0\0\0\0\0\0\0" } else { b">\0\0\0\0\0\0\0\0\0\x10" };
    assert_eq!(buffer.to_vec(), [b"mpjb\x01", order].concat());
}

//! Defects of mpjbuf in MPJ Express 0.44 that this crate does not have.

use crate::common::{Heap, POISON};
use mpj_buffer::pool::{Pool, RawBuffer};
use mpj_buffer::{
    Buffer, ElementKind, Overflow, ReadError, SECTION_HEADER_LEN, WriteError, pool, section_len,
};

/// mpjbuf sends three old bytes of the pool's block in each section header.
#[test]
fn messages_contain_no_old_bytes() {
    let mut buffer = Buffer::new(Heap::new(4096)).unwrap();
    buffer.write(&[0x11u8, 2, 3]).unwrap();
    buffer.write(&[0x0102_0304i32, 5]).unwrap();
    buffer.section::<bool>().unwrap();
    buffer.write_strided(&[1u16, 2, 3, 4], 3, &[(2, -3)]).unwrap();
    buffer.gather(&['a', 'b'], &[1, 0, 1]).unwrap();
    buffer.write_object(&(1u8, "x")).unwrap();
    assert!(!buffer.commit().to_vec().contains(&POISON));
}

/// mpjbuf's property says little endian, but its bytes are big endian, and its reader ignores the swap flag.
#[test]
fn byte_order_is_that_of_the_header() {
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.write(&[0x0102_0304i32]).unwrap();
    let wire = buffer.commit().to_vec();
    let expected = if wire[5] == b'<' { 0x0102_0304i32.to_le_bytes() } else { 0x0102_0304i32.to_be_bytes() };
    assert_eq!(wire[32..], expected);
    let mut other = wire.clone();
    other[5] ^= b'<' ^ b'>';
    for range in [8..16, 20..24, 24..32, 32..36] {
        other[range].reverse();
    }
    let mut value = [0i32];
    Buffer::from_bytes(Heap::new(64), &other).unwrap().read(&mut value).unwrap();
    assert_eq!(value, [0x0102_0304]);
}

/// In mpjbuf a buffer for 100 bytes accepts 127, and a buffer with headroom throws a different exception on overflow.
#[test]
fn capacity_does_not_include_the_headroom() {
    for headroom in [0, 9, 24] {
        let mut buffer = Buffer::with_headroom(Heap::new(128), headroom).unwrap();
        let left = 128 - mpj_buffer::message_start(headroom) - 16 - SECTION_HEADER_LEN;
        let needed = left + 1 + SECTION_HEADER_LEN;
        assert_eq!(
            buffer.write(&vec![1u8; left + 1]),
            Err(Overflow { needed, available: left + SECTION_HEADER_LEN })
        );
        buffer.write(&vec![1u8; left]).unwrap();
        assert_eq!(buffer.remaining_capacity(), 0);
    }
}

/// In mpjbuf every pooled buffer begins at an odd address.
#[test]
fn sections_of_pooled_buffers_can_be_viewed_as_any_type() {
    for bytes in [48, 64, 100, 1000, 5000, 100_000] {
        assert_eq!(pool::global().alloc(bytes).unwrap().as_ptr().addr().get() % 64, 0);
        let mut buffer = Buffer::with_capacity(bytes).unwrap();
        buffer.write(&[7u128]).unwrap();
        assert_eq!(buffer.commit().view::<u128>(), Ok(&[7][..]));
    }
}

/// In mpjbuf an invalid index throws an exception after the elements before it were copied.
#[test]
fn gather_and_scatter_are_all_or_nothing() {
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    assert!(matches!(buffer.gather(&[1u8, 2], &[0, 1, 2]), Err(WriteError::Index(_))));
    assert!(buffer.is_empty());
    buffer.write(&[1u8, 2, 3]).unwrap();
    let mut buffer = buffer.commit();
    let mut dst = [0u8; 2];
    assert!(matches!(buffer.scatter(&mut dst, &[0, 1, 2]), Err(ReadError::Index(_))));
    assert_eq!(dst, [0, 0]);
}

/// In mpjbuf, vector(3, 2, 4) of the numbers 0 to 11 arrives as 0 4 8 1 5 9. This crate has the order of MPI's vectors.
#[test]
fn vector_type_has_its_dimensions_from_the_outermost_in() {
    let numbers: Vec<i32> = (0..12).collect();
    let mut buffer = Buffer::new(Heap::new(512)).unwrap();
    buffer.write_strided(&numbers, 0, &[(3, 4), (2, 1)]).unwrap(); // vector(3, 2, 4)
    buffer.write_strided(&numbers, 0, &[(2, 6), (2, 2)]).unwrap(); // a vector of a vector
    buffer.write_strided(&numbers, 0, &[(2, 3), (2, 2)]).unwrap(); // contiguous(2, vector(2, 1, 2))
    let mut buffer = buffer.commit();
    assert_eq!(buffer.view_n::<i32>(6), Ok(&[0, 1, 4, 5, 8, 9][..]));
    assert_eq!(buffer.view_n::<i32>(4), Ok(&[0, 2, 6, 8][..]));
    assert_eq!(buffer.view_n::<i32>(4), Ok(&[0, 2, 3, 5][..]));
}

/// In mpjbuf three elements received as vector(3, 2, 4) go to the positions 0, 1 and 2.
#[test]
fn short_message_fills_the_front_of_a_vector() {
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.write(&[7i32, 8, 9]).unwrap();
    let mut buffer = buffer.commit();
    let mut target = [0i32; 12];
    assert_eq!(buffer.read_strided(&mut target, 0, &[(1, 4), (2, 1)]), Ok(2));
    assert_eq!(buffer.read_strided(&mut target, 4, &[(1, 1)]), Ok(1));
    assert_eq!(target, [7, 8, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
}

/// In mpjbuf the packed size grows with each call: 20, 32, 44, 56.
#[test]
fn section_length_depends_only_on_type_and_count() {
    let once = section_len::<i32>(3).unwrap();
    assert_eq!((once, section_len::<i32>(3)), (32, Some(once)));
    let mut buffer = Buffer::new(Heap::new(16 + once)).unwrap();
    for _ in 0..3 {
        buffer.write(&[1i32, 2, 3]).unwrap();
        buffer = buffer.commit().clear();
    }
}

/// mpjbuf reads a scattered section of objects as contiguous, and takes the number of objects from the strides.
#[test]
fn objects_are_counted_as_objects() {
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    for value in 0..5u8 {
        buffer.write_object(&value).unwrap();
    }
    let mut buffer = buffer.commit();
    assert_eq!(buffer.object_section(), Ok(5));
    assert_eq!((0..5).map(|_| buffer.read_object::<u8>().unwrap()).sum::<u8>(), 10);
    assert_eq!(buffer.read_object::<u8>(), Err(ReadError::PastSection { needed: 1, available: 0 }));
}

#[test]
fn wrong_type_is_an_error_that_names_both() {
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.write(&[1i32]).unwrap();
    let mut buffer = buffer.commit();
    let error = ReadError::WrongType { expected: ElementKind::F32, found: ElementKind::I32 };
    assert_eq!(buffer.read(&mut [0f32]), Err(error));
    assert_eq!(error.to_string(), "expected a section of f32, found i32");
}

/// In mpjbuf lengths have 32 bits.
#[test]
#[ignore = "needs 7 GiB of free memory"]
fn section_can_exceed_four_gib() {
    const COUNT: usize = 5 << 30;
    let available = || {
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = meminfo.lines().find(|line| line.starts_with("MemAvailable:"))?;
        line.split_whitespace().nth(1)?.parse::<usize>().ok()
    };
    assert!(available().is_some_and(|kib| kib >> 20 >= 7), "fewer than 7 GiB of memory are free");
    let mut buffer = Buffer::with_capacity(16 + section_len::<u8>(COUNT).unwrap()).unwrap();
    buffer.write_strided(&[1u8], 0, &[(COUNT - 1, 0)]).unwrap();
    buffer.write(&[2u8]).unwrap();
    let mut buffer = buffer.commit();
    assert_eq!(buffer.len(), 32 + COUNT);
    assert_eq!(buffer.peek().map(|section| section.count), Some(COUNT as u64));
    let mut last = [0u8; 2];
    assert_eq!(buffer.read_strided(&mut last, 0, &[(COUNT - 1, 0)]), Ok(COUNT - 1));
    assert_eq!(buffer.read(&mut last[1..]), Ok(1));
    assert_eq!(last, [1, 2]);
    buffer.rewind();
    assert_eq!(buffer.view::<u8>().map(<[u8]>::len), Ok(COUNT));
}

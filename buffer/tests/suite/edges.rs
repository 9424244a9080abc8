//! Full blocks, wrong calls and odd headroom.

use crate::common::{Heap, POISON};
use mpj_buffer::pool::RawBuffer;
use mpj_buffer::{
    Buffer, ByteOrder, ElementKind, FormatError, Overflow, ReadError, WriteError, message_start, section_len,
};

const FOREIGN: ByteOrder = if cfg!(target_endian = "little") { ByteOrder::Big } else { ByteOrder::Little };

#[test]
fn a_block_can_be_filled_to_its_last_byte() {
    let mut buffer = Buffer::new(Heap::new(96)).unwrap();
    assert_eq!((buffer.capacity(), buffer.remaining_capacity(), buffer.len()), (96, 80, 16));
    assert_eq!(buffer.write(&[0u64; 9]), Err(Overflow { needed: 88, available: 80 }));
    assert!(buffer.is_empty());
    buffer.write(&[1u64; 7]).unwrap();
    assert_eq!(buffer.remaining_capacity(), 8);
    assert_eq!(buffer.write(&[1u64; 2]), Err(Overflow { needed: 16, available: 8 }));
    assert_eq!(buffer.write(&[1u8]), Err(Overflow { needed: 8 + 16 + 1, available: 8 }));
    assert_eq!(buffer.section::<u64>(), Err(Overflow { needed: 24, available: 8 }));
    assert_eq!(buffer.write_object("x"), Err(WriteError::Overflow(Overflow { needed: 24, available: 8 })));
    buffer.write(&[2u64]).unwrap();
    assert_eq!((buffer.remaining_capacity(), buffer.len()), (0, 96));
    let mut buffer = buffer.commit();
    assert_eq!(buffer.len(), 96);
    assert_eq!(buffer.view::<u64>(), Ok(&[1, 1, 1, 1, 1, 1, 1, 2][..]));
}

#[test]
fn a_block_that_is_too_small_is_returned() {
    let refused = Buffer::new(Heap::new(15)).unwrap_err();
    assert_eq!(refused.error, Overflow { needed: 16, available: 15 });
    let refused = Buffer::with_headroom(refused.block, 1).unwrap_err();
    assert_eq!((refused.error, refused.block.capacity()), (Overflow { needed: 32, available: 15 }, 15));
    let refused = Buffer::with_headroom(refused.block, usize::MAX).unwrap_err();
    assert_eq!(refused.error.available, 15);
    let mut buffer = Buffer::new(Heap::new(31)).unwrap();
    assert_eq!(buffer.write::<u8>(&[]), Err(Overflow { needed: 16, available: 0 }));
    assert_eq!(buffer.commit().len(), 16);
}

#[test]
fn reader_sees_the_sections_of_the_writer() {
    let mut buffer = Buffer::new(Heap::new(1024)).unwrap();
    buffer.write(&[1i32, 2]).unwrap();
    buffer.section::<i32>().unwrap();
    buffer.section::<i32>().unwrap();
    buffer.write(&[3i32]).unwrap();
    buffer.write::<f32>(&[]).unwrap();
    buffer.object_section().unwrap();
    buffer.write(&[4u8]).unwrap();
    let mut buffer = buffer.commit();

    let mut two = [0i32; 2];
    assert_eq!(buffer.remaining(), 0);
    assert_eq!(buffer.read(&mut two), Ok(2));
    assert_eq!(buffer.read(&mut two), Err(ReadError::PastSection { needed: 2, available: 0 }));
    assert_eq!(buffer.section::<i32>(), Ok(0));
    assert_eq!(buffer.section::<i32>(), Ok(1));
    let wrong = ReadError::WrongType { expected: ElementKind::F32, found: ElementKind::I32 };
    assert_eq!(buffer.read::<f32>(&mut []), Err(wrong));
    assert_eq!(buffer.section::<f32>(), Err(ReadError::Unread { kind: ElementKind::I32, left: 1 }));
    assert_eq!(buffer.read(&mut two), Err(ReadError::PastSection { needed: 2, available: 1 }));
    assert_eq!(buffer.read(&mut two[..1]), Ok(1));
    assert_eq!(two, [3, 2]);
    assert_eq!(buffer.read::<f32>(&mut []), Ok(0));
    assert_eq!(buffer.object_section(), Ok(0));
    assert_eq!(buffer.read_object::<u8>(), Err(ReadError::PastSection { needed: 1, available: 0 }));
    let wrong = ReadError::WrongType { expected: ElementKind::I8, found: ElementKind::U8 };
    assert_eq!(buffer.section::<i8>(), Err(wrong));
    assert_eq!(buffer.read(&mut [0u8]), Ok(1));
    assert_eq!(buffer.section::<u8>(), Err(ReadError::End));
    assert_eq!(buffer.skip_section(), Err(ReadError::End));
    assert_eq!(buffer.read::<i8>(&mut []), Err(ReadError::End));
}

#[test]
fn unread_elements_must_be_skipped() {
    let mut buffer = Buffer::new(Heap::new(1024)).unwrap();
    buffer.write(&[1i64, 2, 3]).unwrap();
    buffer.write_object("a").unwrap();
    buffer.write_object("b").unwrap();
    buffer.write(&[7u16]).unwrap();
    buffer.write_object("c").unwrap();
    let mut buffer = buffer.commit();

    let mut one = [0i64];
    buffer.read(&mut one).unwrap();
    let unread = ReadError::Unread { kind: ElementKind::I64, left: 2 };
    assert_eq!(buffer.read_object::<String>(), Err(unread));
    assert_eq!(buffer.read(&mut [0u16]), Err(unread));
    assert_eq!(buffer.peek().map(|s| (s.kind, s.count)), Some((ElementKind::I64, 2)));
    buffer.skip_section().unwrap();
    assert_eq!(buffer.read_object::<String>().unwrap(), "a");
    assert_eq!(buffer.read(&mut [0u16]), Err(ReadError::Unread { kind: ElementKind::Object, left: 1 }));
    buffer.skip_section().unwrap();
    assert_eq!(buffer.kind(), Some(ElementKind::U16));
    buffer.skip_section().unwrap();
    assert_eq!(buffer.read_object::<String>().unwrap(), "c");
    assert_eq!(buffer.peek(), None);

    buffer.rewind();
    assert_eq!(buffer.view::<i64>(), Ok(&[1, 2, 3][..]));
    let mut buffer = buffer.clear();
    assert!(buffer.is_empty());
    buffer.write(&[9i64]).unwrap();
    assert_eq!(buffer.commit().to_vec().len(), 40);
}

#[test]
fn skip_counts_elements_as_read() {
    let mut buffer = Buffer::new(Heap::new(1024)).unwrap();
    buffer.write(&[1u16, 2, 3]).unwrap();
    buffer.section_with_order::<u32>(FOREIGN).unwrap();
    buffer.write(&[4u32, 5]).unwrap();
    for text in ["a", "b", "c"] {
        buffer.write_object(text).unwrap();
    }
    buffer.write(&[6u8]).unwrap();
    let mut buffer = buffer.commit();
    for _ in 0..2 {
        assert_eq!(buffer.skip(4), Err(ReadError::PastSection { needed: 4, available: 3 }));
        assert_eq!(buffer.skip(u64::MAX), Err(ReadError::PastSection { needed: u64::MAX, available: 3 }));
        buffer.skip(2).unwrap();
        assert_eq!(buffer.skip(2), Err(ReadError::PastSection { needed: 2, available: 1 }));
        assert_eq!(buffer.section::<u32>(), Err(ReadError::Unread { kind: ElementKind::U16, left: 1 }));
        assert_eq!(buffer.view::<u16>(), Ok(&[3][..]));
        buffer.skip(1).unwrap();
        let mut one = [0u32];
        assert_eq!((buffer.read(&mut one), one), (Ok(1), [5]));
        buffer.skip(2).unwrap();
        assert_eq!(buffer.read_object::<String>().unwrap(), "c");
        buffer.skip(1).unwrap();
        assert_eq!((buffer.skip(0), buffer.skip(1)), (Err(ReadError::End), Err(ReadError::End)));
        buffer.rewind();
    }
    buffer.skip_section().unwrap();
    buffer.skip_section().unwrap();
    buffer.skip(1).unwrap();
    assert_eq!(buffer.read_object::<String>().unwrap(), "b");
}

#[test]
fn headroom_lies_directly_before_the_aligned_message() {
    for headroom in [0, 1, 7, 15, 16, 17, 48] {
        assert_eq!(message_start(headroom) % 16, 0);
        let mut buffer = Buffer::with_headroom(Heap::new(256), headroom).unwrap();
        assert!(buffer.headroom().iter().all(|b| *b == 0), "old bytes in the headroom");
        buffer.headroom_mut().fill(0xEE);
        buffer.write(&[1u128, 2]).unwrap();
        let mut buffer = buffer.commit();
        assert_eq!(buffer.view::<u128>(), Ok(&[1, 2][..]));
        let framed: Vec<u8> = buffer.segments_with_headroom().flatten().copied().collect();
        let message = buffer.to_vec();
        assert_eq!(framed[..headroom], vec![0xEE; headroom][..]);
        assert_eq!(framed[headroom..], message);
        assert_eq!(buffer.segments_with_headroom().count(), 1);

        let mut buffer = buffer.clear();
        assert_eq!(buffer.headroom(), vec![0xEE; headroom]);
        assert_eq!(buffer.capacity(), 256 - message_start(headroom));
        buffer.write(&[1u128, 2]).unwrap();
        assert_eq!(buffer.commit().to_vec(), message);
    }
}

#[test]
#[expect(unsafe_code, reason = "the blocks are written before")]
fn a_received_block_is_checked_and_can_be_reused() {
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.write(&[1u32, 2, 3]).unwrap();
    buffer.write_object(&(1u8, "x")).unwrap();
    let wire = buffer.commit().to_vec();
    for headroom in [0, 5, 16] {
        let mut frame = vec![POISON; message_start(headroom)];
        frame.extend_from_slice(&wire);
        // SAFETY: the whole block is initialised.
        let mut buffer =
            unsafe { Buffer::from_block(Heap::with_contents(&frame, 256), headroom, wire.len()) }.unwrap();
        assert_eq!(buffer.view::<u32>(), Ok(&[1, 2, 3][..]));
        assert_eq!(buffer.read_object(), Ok((1u8, String::from("x"))));
        assert_eq!(buffer.headroom(), vec![0; headroom]);
        assert_eq!(buffer.to_vec(), wire);
        let mut buffer = buffer.clear();
        buffer.write(&[true]).unwrap();
        assert_eq!(buffer.commit().view::<bool>(), Ok(&[true][..]));
    }
    for (headroom, len) in [(0, 257), (0, usize::MAX), (usize::MAX, 1), (240, 17), (300, 0)] {
        // SAFETY: headroom and length exceed the block, so the call fails and reads no byte.
        let refused = unsafe { Buffer::from_block(Heap::new(256), headroom, len) }.unwrap_err();
        assert!(matches!(refused.error, FormatError::BlockTooSmall { available: 256, .. }), "{refused}");
        assert_eq!(refused.block.capacity(), 256);
    }
    let refused = Buffer::from_bytes(Heap::new(wire.len() - 1), &wire).unwrap_err();
    let needed = wire.len() as u64;
    assert_eq!(refused.error, FormatError::BlockTooSmall { needed, available: needed - 1 });
}

#[test]
fn padding_is_zero_and_lengths_are_as_documented() {
    let mut buffer = Buffer::new(Heap::new(1024)).unwrap();
    buffer.write(&[0xFFu8; 3]).unwrap();
    buffer.write(&[-1i16; 5]).unwrap();
    buffer.write_object(&0xFFu8).unwrap();
    buffer.write_object(&0xFFu8).unwrap();
    let wire = buffer.commit().to_vec();
    assert!(!wire.contains(&POISON));
    assert_eq!(wire[35..48], [0; 13]);
    assert_eq!(wire[74..80], [0; 6]);
    assert_eq!(section_len::<u8>(3), Some(32));
    assert_eq!(section_len::<u8>(0), Some(16));
    assert_eq!(section_len::<u64>(usize::MAX / 4), None);
    assert_eq!(section_len::<u8>(usize::MAX - 3), None);
}

#[test]
fn copy_to_a_short_slice_is_an_error() {
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.write(&[5u8]).unwrap();
    let buffer = buffer.commit();
    let mut short = [0xEE; 32];
    assert_eq!(buffer.copy_to(&mut short), Err(Overflow { needed: 33, available: 32 }));
    assert_eq!(short, [0xEE; 32]);
    let mut long = [0xEE; 40];
    assert_eq!(buffer.copy_to(&mut long), Ok(33));
    assert_eq!(long[..33], buffer.to_vec());
    assert_eq!(long[33..], [0xEE; 7]);
}

#[test]
fn buffers_can_move_between_threads() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    let mut buffer = Buffer::with_capacity(33).unwrap();
    assert!(buffer.capacity() >= 48);
    assert!(Buffer::with_capacity(0).unwrap().capacity() >= 16);
    buffer.write(&[1u8]).unwrap();
    send(send(buffer).commit());
    assert!(Buffer::with_capacity(usize::MAX).is_err());
}

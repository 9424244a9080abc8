//! All primitives round trip, in both byte orders, aligned or not.

use core::fmt::Debug;

use crate::common::Heap;
use mpj_buffer::{Buffer, ByteOrder, Element, ElementKind, ReadError};

fn check_round_trip<T: Element + Debug + PartialEq>(values: &[T], zero: T) {
    for skew in [0, 1] {
        let mut buffer = Buffer::new(Heap::skewed(1024, skew)).unwrap();
        buffer.write(values).unwrap();
        let wire = buffer.commit().to_vec();

        for bytes in [wire.clone(), swapped(&wire, T::KIND.size())] {
            let native = bytes == wire;
            let mut buffer = Buffer::from_bytes(Heap::skewed(1024, skew), &bytes).unwrap();
            assert_eq!(buffer.kind(), Some(T::KIND));
            let mut back = vec![zero; values.len()];
            assert_eq!(buffer.read(&mut back), Ok(values.len()));
            assert_eq!(back, values);
            assert_eq!(buffer.remaining(), 0);
            assert_eq!(buffer.peek(), None);

            buffer.rewind();
            let wide = size_of::<T>() > 1;
            match buffer.view::<T>() {
                Ok(view) => {
                    assert_eq!(view, values);
                    assert!(!wide || (native && skew == 0));
                    assert_eq!(buffer.remaining(), 0);
                }
                Err(ReadError::ForeignOrder { kind }) => assert!(kind == T::KIND && wide && !native),
                Err(ReadError::Misaligned { kind }) => assert!(kind == T::KIND && wide && skew == 1),
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

/// Returns a message of one section as a machine of the other byte order would have sent it.
fn swapped(wire: &[u8], element: usize) -> Vec<u8> {
    let mut bytes = wire.to_vec();
    bytes[5] = if bytes[5] == b'<' { b'>' } else { b'<' };
    bytes[8..16].reverse();
    bytes[20..24].reverse();
    bytes[24..32].reverse();
    bytes[32..].chunks_exact_mut(element).for_each(<[u8]>::reverse);
    bytes
}

#[test]
fn all_primitives_round_trip() {
    check_round_trip(&[i8::MIN, -1, 0, 1, i8::MAX], 0);
    check_round_trip(&[0, 1, u8::MAX], 0);
    check_round_trip(&[i16::MIN, -2, 0x0102, i16::MAX], 0);
    check_round_trip(&[0, 0x0102, u16::MAX], 0);
    check_round_trip(&[i32::MIN, -2, 0x0102_0304, i32::MAX], 0);
    check_round_trip(&[0, 0x0102_0304, u32::MAX], 0);
    check_round_trip(&[i64::MIN, -2, 0x0102_0304_0506_0708, i64::MAX], 0);
    check_round_trip(&[0, 0x0102_0304_0506_0708, u64::MAX], 0);
    check_round_trip(&[i128::MIN, -2, 1 << 100, i128::MAX], 0);
    check_round_trip(&[0, 1 << 100, u128::MAX], 0);
    check_round_trip(&[0.0, -0.0, 1.5, f32::MIN_POSITIVE, f32::INFINITY], 0.0f32);
    check_round_trip(&[0.0, -0.0, 1.5, f64::MIN_POSITIVE, f64::NEG_INFINITY], 0.0f64);
    check_round_trip(&[true, false, true], false);
    check_round_trip(&['a', 'ß', '語', '🦀', char::MAX, '\0'], 'x');
}

#[test]
fn nans_keep_their_bits() {
    let bits = [0x7ff0_0000_0000_0001u64, 0xfff8_1234_5678_9abc];
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.write(&bits.map(f64::from_bits)).unwrap();
    let wire = buffer.commit().to_vec();
    for bytes in [wire.clone(), swapped(&wire, 8)] {
        let mut back = [0.0f64; 2];
        Buffer::from_bytes(Heap::new(256), &bytes).unwrap().read(&mut back).unwrap();
        assert_eq!(back.map(f64::to_bits), bits);
    }
}

#[test]
fn signalling_nans_keep_their_bits_in_both_orders() {
    let patterns = [0x7f80_0001u32, 0xff80_0001, 0x7fbf_ffff, 0x7fc0_1234, 0x0100_807f, 0xffff_ffff, 1];
    let values: Vec<f32> = patterns.iter().cycle().take(100).map(|bits| f32::from_bits(*bits)).collect();
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut buffer = Buffer::new(Heap::new(4096)).unwrap();
        buffer.section_with_order::<f32>(order).unwrap();
        buffer.write(&values).unwrap();
        buffer.fill_with(100, |at| values[at]).unwrap();
        buffer.gather(&values, &(0..100u32).collect::<Vec<_>>()).unwrap();
        buffer.write_strided(&values, 0, &[(100, 1)]).unwrap();
        let mut reader = buffer.commit();
        reader.section::<f32>().unwrap();
        for _ in 0..4 {
            let mut back = [0.0f32; 100];
            reader.read(&mut back).unwrap();
            assert_eq!(bits(&back), bits(&values), "{order:?}");
        }
    }
}

#[test]
fn bools_and_chars_are_checked_before_the_copy() {
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.write(&[true, true, true]).unwrap();
    buffer.write(&['a', 'b', 'c']).unwrap();
    let mut wire = buffer.commit().to_vec();
    wire[34] = 2;
    wire[72..76].copy_from_slice(&0xd800u32.to_ne_bytes());
    let mut buffer = Buffer::from_bytes(Heap::new(256), &wire).unwrap();

    let mut bools = [false; 3];
    let invalid = |kind, index| Err(ReadError::Invalid { kind, index });
    assert_eq!(buffer.read(&mut bools), invalid(ElementKind::Bool, 2));
    assert_eq!(bools, [false; 3]);
    assert_eq!(buffer.view::<bool>().map(<[bool]>::len), invalid(ElementKind::Bool, 2));
    assert_eq!(buffer.read(&mut bools[..2]), Ok(2));
    assert_eq!(bools, [true, true, false]);
    buffer.skip_section().unwrap();

    let mut chars = ['x'; 3];
    assert_eq!(buffer.read(&mut chars), invalid(ElementKind::Char, 2));
    assert_eq!(buffer.view::<char>().map(<[char]>::len), invalid(ElementKind::Char, 2));
    assert_eq!(chars, ['x'; 3]);
}

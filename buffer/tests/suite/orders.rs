//! Sections of both byte orders in one message, with all methods that append or read.

use core::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::Heap;
use bytemuck::cast_slice;
use mpj_buffer::{Buffer, ByteOrder, Element, ElementKind, Overflow, ReadError, Reading};

const FOREIGN: ByteOrder = if cfg!(target_endian = "little") { ByteOrder::Big } else { ByteOrder::Little };

/// Returns the message as a machine of the other byte order writes it: with swapped headers and the same element bytes.
fn with_swapped_headers(message: &Buffer<Heap, Reading>, headers: &[usize]) -> Buffer<Heap, Reading> {
    let mut wire = message.to_vec();
    wire[5] ^= b'<' ^ b'>';
    wire[8..16].reverse();
    for at in headers {
        wire[at + 1] ^= 2;
        wire[at + 4..at + 8].reverse();
        wire[at + 8..at + 16].reverse();
    }
    Buffer::from_bytes(Heap::new(wire.len()), &wire).unwrap()
}

fn check<T: Element + PartialEq + Debug>(values: &[T], zero: T) {
    let (kind, size, count) = (T::KIND, size_of::<T>(), values.len());
    let mut buffer = Buffer::new(Heap::new(1 << 17)).unwrap();
    buffer.section_with_order::<T>(FOREIGN).unwrap();
    buffer.write(values).unwrap();
    buffer.fill_with(count, |i| values[i]).unwrap();
    let backwards: Vec<T> = values.iter().rev().copied().collect();
    let indices: Vec<usize> = (0..count).rev().collect();
    buffer.gather(&backwards, &indices).unwrap();
    buffer.write_strided(&backwards, count - 1, &[(count, -1)]).unwrap();
    buffer.write_strided(values, 0, &[(count / 2, 2), (2, 1)]).unwrap();
    buffer.section_with_order::<T>(ByteOrder::NATIVE).unwrap();
    buffer.write(values).unwrap();
    let mut local = buffer.commit();

    let wire = local.to_vec();
    let first = &wire[32..32 + count * size];
    let width = if matches!(kind, ElementKind::Complex32 | ElementKind::Complex64) { size / 2 } else { size };
    let mut expected = cast_slice::<T, u8>(values).to_vec();
    expected.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    assert_eq!(first, expected, "{kind}");
    for again in 1..5 {
        assert_eq!(&wire[32 + again * first.len()..][..first.len()], first, "{kind} {again}");
    }

    let order = if size == 1 { ByteOrder::NATIVE } else { FOREIGN };
    let listed: Vec<_> = local.sections().map(|s| (s.kind, s.count, s.byte_order)).collect();
    let second = (32 + 5 * first.len()).next_multiple_of(16);
    assert_eq!(listed, [(kind, 5 * count as u64, order), (kind, count as u64, ByteOrder::NATIVE)]);
    let mut remote = Buffer::from_bytes(Heap::new(wire.len()), &wire).unwrap();
    if size > 1 {
        let mut foreign = with_swapped_headers(&local, &[16, second]);
        let listed: Vec<_> = foreign.sections().map(|s| s.byte_order).collect();
        assert_eq!(listed, [FOREIGN, ByteOrder::NATIVE]);
        read(&mut foreign, values, zero);
    }
    read(&mut local, values, zero);
    read(&mut remote, values, zero);
}

fn read<T: Element + PartialEq + Debug>(buffer: &mut Buffer<Heap, Reading>, values: &[T], zero: T) {
    let (kind, count) = (T::KIND, values.len());
    let mut back = vec![zero; count];
    for _ in 0..2 {
        assert_eq!(buffer.read(&mut back), Ok(count));
        assert_eq!(back, values);
        back.fill(zero);
    }
    assert_eq!(buffer.remaining(), 3 * count as u64);
    let seen = buffer.peek().unwrap();
    match seen.byte_order == ByteOrder::NATIVE {
        true => assert_eq!(buffer.view_n::<T>(count).unwrap(), values),
        false => {
            assert_eq!(buffer.view_n::<T>(count), Err(ReadError::ForeignOrder { kind }));
            assert_eq!(buffer.scatter(&mut back, &(0..count).collect::<Vec<_>>()), Ok(count));
            assert_eq!(back, values);
        }
    }
    assert_eq!(buffer.read_strided(&mut back, count - 1, &[(count, -1)]), Ok(count));
    assert!(back.iter().eq(values.iter().rev()));
    assert_eq!(buffer.read_strided(&mut back, 0, &[(count / 2, 2), (2, 1)]), Ok(count));
    assert_eq!(back, values);
    assert_eq!(buffer.section::<T>(), Ok(count as u64));
    assert_eq!(buffer.view::<T>().unwrap(), values);
    assert_eq!(buffer.peek(), None);
}

#[test]
fn all_kinds_round_trip_in_both_orders() {
    // Slices shorter and longer than 64 bytes: the copy of a longer one uses AVX2.
    for count in [2, 38, 1026] {
        macro_rules! numbers {
            ($($type:ident)*) => {$(
                check(&(0..count).map(|i| (i * 77_773) as $type).collect::<Vec<_>>(), 0 as $type);
            )*};
        }
        numbers! { i8 u8 i16 u16 i32 u32 i64 u64 i128 u128 f32 f64 }
        check(&(0..count).map(|i| i % 3 == 0).collect::<Vec<_>>(), false);
        check(&(0..count).map(|i| ['a', 'é', '語', '🦀'][i as usize % 4]).collect::<Vec<_>>(), ' ');
        #[cfg(feature = "half")]
        {
            check(&(0..count).map(|i| half::f16::from_f32(i as f32)).collect::<Vec<_>>(), half::f16::ZERO);
            check(&(0..count).map(|i| half::bf16::from_f32(i as f32)).collect::<Vec<_>>(), half::bf16::ZERO);
        }
        #[cfg(feature = "num-complex")]
        {
            use num_complex::{Complex32, Complex64};
            let number = |i: i32| Complex32::new(i as f32, 0.5);
            check(&(0..count).map(number).collect::<Vec<_>>(), Complex32::ZERO);
            let number = |i: i32| Complex64::new(i.into(), -0.5);
            check(&(0..count).map(number).collect::<Vec<_>>(), Complex64::ZERO);
        }
    }
}

/// Writes the values in both orders, compares the bytes with `big`, and reads messages with headers of either order.
fn check_both_orders<T: Element + PartialEq + Debug>(values: [T; 2], zero: T, big: &[u8]) {
    let mut little = big.to_vec();
    little.chunks_exact_mut(size_of::<T>()).for_each(<[u8]>::reverse);
    for (order, bytes) in [(ByteOrder::Big, big), (ByteOrder::Little, &little[..])] {
        let mut buffer = Buffer::new(Heap::new(128)).unwrap();
        buffer.section_with_order::<T>(order).unwrap();
        buffer.write(&values[..1]).unwrap();
        buffer.fill_with(1, |_| values[1]).unwrap();
        buffer.gather(&values, &[1u32, 0]).unwrap();
        buffer.write_strided(&values, 1, &[(2, -1)]).unwrap();
        let mut here = buffer.commit();
        let wire = here.to_vec();
        let (written, others) = wire[32..].split_at(bytes.len());
        assert_eq!(written, bytes, "{order}");
        let mut reversed = values;
        reversed.reverse();
        for other in others.chunks(bytes.len()) {
            let (first, second) = bytes.split_at(size_of::<T>());
            assert_eq!(other, [second, first].concat(), "{order}");
        }
        for buffer in [&mut with_swapped_headers(&here, &[16]), &mut here] {
            assert_eq!(buffer.peek().map(|section| section.byte_order), Some(order));
            let mut back = [zero; 2];
            assert_eq!((buffer.read(&mut back), back), (Ok(2), values));
            assert_eq!((buffer.scatter(&mut back, &[1, 0]), back), (Ok(2), values));
            match order == ByteOrder::NATIVE {
                true => assert_eq!(buffer.view::<T>().unwrap(), reversed),
                false => assert_eq!((buffer.read_strided(&mut back, 0, &[(2, 1)]), back), (Ok(2), reversed)),
            }
        }
    }
}

#[test]
fn i128_is_written_and_read_in_both_orders() {
    let one: Vec<u8> = (1..=16).collect();
    let negative: Vec<u8> = (0..16).map(|i| 0xF0 - i).collect();
    let values = [0x0102_0304_0506_0708_090A_0B0C_0D0E_0F10, -0x0F10_1112_1314_1516_1718_191A_1B1C_1D1F];
    check_both_orders(values, 0i128, &[one, negative].concat());
}

#[cfg(feature = "half")]
#[test]
fn bf16_is_written_and_read_in_both_orders() {
    use half::bf16;
    check_both_orders([bf16::from_f32(1.5), bf16::from_f32(-2.0)], bf16::ZERO, &[0x3F, 0xC0, 0xC0, 0x00]);
}

#[test]
fn other_sections_keep_the_order_of_the_machine() {
    let mut buffer = Buffer::new(Heap::new(512)).unwrap();
    buffer.section_with_order::<u32>(FOREIGN).unwrap();
    buffer.write(&[1u32]).unwrap();
    buffer.write(&[2u64]).unwrap();
    buffer.write(&[3u32]).unwrap();
    buffer.section_with_order::<u64>(FOREIGN).unwrap();
    buffer.write_object("an object").unwrap();
    buffer.write_dynamic(&[4u16]).unwrap();
    let mut buffer = buffer.commit();
    let orders: Vec<_> = buffer.sections().map(|s| s.byte_order).collect();
    let native = ByteOrder::NATIVE;
    assert_eq!(orders, [FOREIGN, native, native, FOREIGN, native, native]);
    let (mut one, mut other) = ([0u32], [0u64]);
    assert_eq!((buffer.read(&mut one), one), (Ok(1), [1]));
    assert_eq!((buffer.read(&mut other), other), (Ok(1), [2]));
    assert_eq!((buffer.read(&mut one), one), (Ok(1), [3]));
    assert_eq!(buffer.section::<u64>(), Ok(0));
    assert_eq!(buffer.read_object::<String>().unwrap(), "an object");
    assert_eq!(buffer.view_dynamic::<u16>().unwrap(), [4]);
}

#[test]
fn failed_call_leaves_a_swapped_section_unchanged() {
    let mut buffer = Buffer::new(Heap::new(48)).unwrap();
    buffer.section_with_order::<u32>(FOREIGN).unwrap();
    buffer.write(&[1u32, 2]).unwrap();
    assert_eq!(buffer.write(&[0u32; 3]), Err(Overflow { needed: 12, available: 8 }));
    assert_eq!(buffer.section_with_order::<u16>(FOREIGN), Err(Overflow { needed: 24, available: 8 }));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        buffer.fill_with(2, |i| if i == 0 { 9u32 } else { panic!("a closure that panics") })
    }));
    assert!(panicked.is_err());
    buffer.write(&[3u32]).unwrap();
    let mut back = [0u32; 3];
    let mut buffer = buffer.commit();
    assert_eq!((buffer.read(&mut back), back), (Ok(3), [1, 2, 3]));
    assert_eq!(buffer.remaining(), 0);
}

#[test]
fn values_are_checked_in_the_order_of_their_section() {
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.section_with_order::<u32>(FOREIGN).unwrap();
    buffer.write(&['x' as u32, 0xD800]).unwrap();
    let mut wire = buffer.commit().to_vec();
    wire[16] = ElementKind::Char as u8;
    let mut buffer = Buffer::from_bytes(Heap::new(64), &wire).unwrap();
    let mut text = ['-'; 2];
    assert_eq!(buffer.read(&mut text), Err(ReadError::Invalid { kind: ElementKind::Char, index: 1 }));
    assert_eq!(text, ['-'; 2]);
    assert_eq!((buffer.read(&mut text[..1]), text), (Ok(1), ['x', '-']));
}

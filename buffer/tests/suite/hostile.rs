//! Untrusted bytes cause errors, never a panic.

use crate::common::Heap;
use mpj_buffer::{Buffer, ElementKind, FormatError, ReadError, Reading};
use proptest::collection::vec;
use proptest::prelude::*;

/// A message with primitives of several widths, two object sections, and padding. Offsets of the headers:
/// 16 u8 × 3, 48 f64 × 2, 80 objects × 1, 96 char × 1, 128 objects × 1, 144 dynamic part, 160 and 176 its records.
fn sample() -> Vec<u8> {
    let mut buffer = Buffer::new(Heap::new(1024)).unwrap();
    buffer.write(&[1u8, 2, 3]).unwrap();
    buffer.write(&[0.5f64, 1.5]).unwrap();
    buffer.write_object(&(1u8, "abc")).unwrap();
    buffer.write(&['x']).unwrap();
    buffer.write_object(&vec![true, false]).unwrap();
    let wire = buffer.commit().to_vec();
    assert_eq!(wire.len(), 187);
    wire
}

fn open(bytes: &[u8]) -> Result<Buffer<Heap, Reading>, FormatError> {
    Buffer::from_bytes(Heap::new(bytes.len()), bytes).map_err(|refused| refused.error)
}

fn drain(buffer: &mut Buffer<Heap, Reading>) {
    let sections = buffer.sections().count();
    macro_rules! elements {
        ($type:ty, $zero:expr) => {{
            let count = buffer.section::<$type>().expect("the kind that peek returned");
            let mut one: [$type; 1] = [$zero];
            let past = ReadError::PastSection { needed: count + 1, available: count };
            assert_eq!(buffer.scatter(&mut one, &vec![0usize; count as usize + 1]), Err(past));
            assert_eq!(buffer.read_strided(&mut one, 0, &[(count as usize + 1, 0)]), Err(past));
            let mut all: Vec<$type> = vec![$zero; count as usize];
            let read = buffer.read(&mut all);
            let viewed = buffer.view::<$type>().map(<[$type]>::len);
            assert!(read.is_ok() || matches!(read, Err(ReadError::Invalid { .. })), "{read:?}");
            assert!(read.is_err() || viewed != Ok(all.len()) || all.is_empty());
            if read.is_err() && count > 0 {
                buffer.skip_section().unwrap();
            }
        }};
    }
    while let Some(section) = buffer.peek() {
        match section.kind {
            ElementKind::I8 => elements!(i8, 0),
            ElementKind::U8 => elements!(u8, 0),
            ElementKind::I16 => elements!(i16, 0),
            ElementKind::U16 => elements!(u16, 0),
            ElementKind::I32 => elements!(i32, 0),
            ElementKind::U32 => elements!(u32, 0),
            ElementKind::I64 => elements!(i64, 0),
            ElementKind::U64 => elements!(u64, 0),
            ElementKind::I128 => elements!(i128, 0),
            ElementKind::U128 => elements!(u128, 0),
            ElementKind::F32 => elements!(f32, 0.0),
            ElementKind::F64 => elements!(f64, 0.0),
            ElementKind::Bool => elements!(bool, false),
            ElementKind::Char => elements!(char, ' '),
            #[cfg(feature = "half")]
            ElementKind::F16 => elements!(half::f16, half::f16::ZERO),
            #[cfg(feature = "half")]
            ElementKind::Bf16 => elements!(half::bf16, half::bf16::ZERO),
            #[cfg(feature = "num-complex")]
            ElementKind::Complex32 => elements!(num_complex::Complex32, num_complex::Complex32::ZERO),
            #[cfg(feature = "num-complex")]
            ElementKind::Complex64 => elements!(num_complex::Complex64, num_complex::Complex64::ZERO),
            _ => {
                let _ = buffer.view_object_with::<mpj_buffer::Fixed, &str>();
                let _ = buffer.read_object_with::<mpj_buffer::Fixed, Vec<Vec<u8>>>();
                let _ = buffer.read_dynamic::<u64>();
                let _ = buffer.view_dynamic::<char>().map(<[char]>::len);
                let _ = buffer.read_dynamic_into(&mut [false; 3]);
                let _ = buffer.read_object::<Vec<String>>();
                let _ = buffer.read_object::<(u8, String)>();
                let _ = buffer.read_object::<Vec<bool>>();
                if buffer.peek().is_some() {
                    buffer.skip_section().unwrap();
                }
            }
        }
    }
    assert_eq!(buffer.skip_section(), Err(ReadError::End));
    assert_eq!(buffer.sections().count(), sections);
}

#[test]
fn sample_is_valid() {
    drain(&mut open(&sample()).unwrap());
}

#[test]
fn each_corrupted_field_has_its_error() {
    use FormatError::*;
    let huge = (1u64 << 63).to_ne_bytes();
    let max = u64::MAX.to_ne_bytes();
    let n = |n: u64| n.to_ne_bytes();
    let table: &[(&str, usize, &[u8], FormatError)] = &[
        ("magic", 0, b"MPJB", Magic { found: *b"MPJB" }),
        ("version 0", 4, &[0], Version { found: 0, supported: 1 }),
        ("future version", 4, &[2], Version { found: 2, supported: 1 }),
        ("byte order", 5, b"=", ByteOrder { found: b'=' }),
        ("flags", 6, &[0x81], Flags { found: 0x81 }),
        ("dynamic part not announced", 6, &[0], Flags { found: 0 }),
        ("reserved", 7, &[1], Padding { at: 7 }),
        ("total too long", 8, &n(188), Truncated { at: 0, needed: 188, available: 187 }),
        ("total huge", 8, &max, Truncated { at: 0, needed: u64::MAX, available: 187 }),
        ("total too short", 8, &n(186), Trailing { total: 186, given: 187 }),
        ("total 0", 8, &n(0), Trailing { total: 0, given: 187 }),
        ("kind 0", 16, &[0], UnknownKind { at: 16, found: 0 }),
        ("kind unknown", 16, &[99], UnknownKind { at: 16, found: 99 }),
        ("kind of other width", 16, &[ElementKind::U16 as u8], BadSection { at: 16, kind: 4 }),
        ("kind object", 16, &[32], BadSection { at: 16, kind: 32 }),
        ("kind dynamic", 16, &[33], Trailing { total: 35, given: 187 }),
        ("encoding", 17, &[1], BadSection { at: 16, kind: 2 }),
        ("the other order of single bytes", 17, &[2], BadSection { at: 16, kind: 2 }),
        ("the other order of objects", 81, &[3], BadSection { at: 80, kind: 32 }),
        ("the other order of records", 145, &[2], BadSection { at: 144, kind: 33 }),
        ("numbers as records in the other order", 49, &[3], BadSection { at: 48, kind: 12 }),
        ("an undefined bit", 49, &[6], BadSection { at: 48, kind: 12 }),
        ("encoding unknown", 17, &[7], BadSection { at: 16, kind: 2 }),
        ("codec of primitives", 18, &[1], BadSection { at: 16, kind: 2 }),
        ("schema of primitives", 19, &[1], BadSection { at: 16, kind: 2 }),
        ("element size 0", 20, &[0; 4], BadSection { at: 16, kind: 2 }),
        ("element size huge", 20, &[0xff; 4], BadSection { at: 16, kind: 2 }),
        ("count 2^63 of bytes", 24, &huge, Truncated { at: 32, needed: 1 << 63, available: 155 }),
        ("count max of bytes", 24, &max, Truncated { at: 32, needed: u64::MAX, available: 155 }),
        ("count 2^63 of f64", 56, &huge, TooLarge { at: 48, count: 1 << 63 }),
        ("count 2^61 of f64", 56, &n(1 << 61), TooLarge { at: 48, count: 1 << 61 }),
        ("count one less", 24, &n(2), Padding { at: 34 }),
        ("count beyond the end", 56, &n(16), Truncated { at: 64, needed: 128, available: 123 }),
        ("padding", 40, &[0xA5], Padding { at: 40 }),
        ("object in place", 81, &[0], BadSection { at: 80, kind: 32 }),
        ("object without codec", 82, &[0], BadSection { at: 80, kind: 32 }),
        ("element size of objects", 84, &[1; 4], BadSection { at: 80, kind: 32 }),
        ("more objects", 88, &n(2), ObjectCount { announced: 3, found: 2 }),
        ("fewer objects", 88, &n(0), ObjectCount { announced: 1, found: 2 }),
        ("objects max", 88, &max, TooLarge { at: 128, count: 1 }),
        ("dynamic encoding", 145, &[1], BadSection { at: 144, kind: 33 }),
        ("dynamic too long", 152, &n(28), Truncated { at: 160, needed: 28, available: 27 }),
        ("dynamic huge", 152, &max, Truncated { at: 160, needed: u64::MAX, available: 27 }),
        ("dynamic too short", 152, &n(26), Trailing { total: 186, given: 187 }),
        ("record too long", 160, &n(20), Truncated { at: 168, needed: 20, available: 19 }),
        ("record huge", 160, &max, Truncated { at: 168, needed: u64::MAX, available: 19 }),
        ("record shorter", 160, &n(4), Padding { at: 172 }),
        ("record swallows the next", 160, &n(19), ObjectCount { announced: 2, found: 1 }),
        ("padding of records", 174, &[1], Padding { at: 174 }),
        ("last record shorter", 176, &n(2), Truncated { at: 186, needed: 6, available: 1 }),
    ];
    for (name, at, patch, error) in table {
        let mut bytes = sample();
        bytes[*at..*at + patch.len()].copy_from_slice(patch);
        let found = open(&bytes).map(drop).unwrap_err();
        // On 32-bit systems, a count can exceed the address space.
        let is_beyond_addresses = usize::BITS < 64 && matches!(found, TooLarge { .. });
        assert!(found == *error || is_beyond_addresses, "{name}: {found:?} instead of {error:?}");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn every_truncation_is_an_error() {
    let wire = sample();
    for len in 0..wire.len() {
        let mut bytes = wire[..len].to_vec();
        assert!(open(&bytes).is_err(), "{len}");
        // If the shortened message with its new length in the header is valid, it can be read to its end.
        if len >= 16 {
            bytes[8..16].copy_from_slice(&(len as u64).to_ne_bytes());
            if let Ok(mut buffer) = open(&bytes) {
                drain(&mut buffer);
            }
        }
    }
}

#[test]
fn changed_bytes_do_not_panic() {
    let wire = sample();
    let values: &[u8] = if cfg!(miri) { &[0, 0xff] } else { &[0, 1, 2, 8, 13, 14, 32, 33, 0x7f, 0x80, 0xff] };
    for at in 0..wire.len() {
        for value in values {
            let mut bytes = wire.clone();
            bytes[at] = *value;
            if let Ok(mut buffer) = open(&bytes) {
                drain(&mut buffer);
            }
        }
    }
}

/// Makes a plausible section header and a payload, which pass more checks than random bytes.
fn section_like() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![1u8..19, Just(32u8), Just(33), any::<u8>()];
    let count = prop_oneof![0u64..8, any::<u64>(), Just(1 << 63), Just(u64::MAX)];
    let element = prop_oneof![Just(0u32), Just(1), Just(2), Just(4), Just(8), Just(16), any::<u32>()];
    (kind, 0u8..4, 0u8..4, element, count, vec(prop_oneof![Just(0u8), any::<u8>()], 0..48)).prop_map(
        |(kind, encoding, codec, element, count, payload)| {
            let mut bytes = vec![kind, encoding, codec, 0];
            bytes.extend(element.to_ne_bytes());
            bytes.extend(count.to_ne_bytes());
            bytes.extend(payload);
            bytes
        },
    )
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 8 } else { 2000 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_bytes_are_errors(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(open(&bytes).is_err());
    }

    #[test]
    fn random_sections_do_not_panic(
        sections in vec(section_like(), 0..6),
        order in prop_oneof![Just(b'<'), Just(b'>')],
        flags in 0u8..2,
    ) {
        let body = sections.concat();
        let mut bytes = b"mpjb\x01".to_vec();
        bytes.extend([order, flags, 0]);
        let total = (16 + body.len()) as u64;
        bytes.extend(if order == b'<' { total.to_le_bytes() } else { total.to_be_bytes() });
        bytes.extend(body);
        if let Ok(mut buffer) = open(&bytes) {
            drain(&mut buffer);
        }
    }

    #[test]
    fn patched_messages_do_not_panic(patches in vec((0usize..187, any::<u8>()), 1..6)) {
        let mut bytes = sample();
        for (at, value) in patches {
            bytes[at] = value;
        }
        if let Ok(mut buffer) = open(&bytes) {
            drain(&mut buffer);
        }
    }
}

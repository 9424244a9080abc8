//! Tests of both codecs and of slices in the dynamic part: round trips, untrusted input, and the exact bytes.

use core::fmt::{self, Debug};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::common::Heap;
use mpj_buffer::codec::{MAX_DEPTH, MAX_ZERO_SIZED};
use mpj_buffer::pool::{Buddy, Growth, Pool};
use mpj_buffer::{
    Buffer, Codec, CodecError, Element, ElementKind, Fixed, Postcard, Raw, RawVec, ReadError, Reading,
    WriteError,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Unit;

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
enum Shape {
    Dot,
    Circle(f32),
    Line((i8, i16), (i128, u128)),
    Text { at: [u8; 2], text: Option<String>, letter: char },
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Every {
    numbers: (u8, i8, u16, i16, u32, i32, u64, i64, f64),
    flag: bool,
    shapes: Vec<Shape>,
    map: BTreeMap<String, VecDeque<i64>>,
    nothing: (),
    unit: Unit,
    #[serde(with = "mpj_buffer::raw")]
    plain: Vec<f64>,
}

fn every() -> Every {
    Every {
        numbers: (1, -2, 3, -4, 5, -6, 7, -8, 0.5),
        flag: true,
        shapes: vec![
            Shape::Dot,
            Shape::Circle(1.5),
            Shape::Line((-1, -2), (i128::MIN, u128::MAX)),
            Shape::Text { at: [1, 2], text: Some("héllo".into()), letter: '語' },
            Shape::Text { at: [3, 4], text: None, letter: '🦀' },
        ],
        map: [("a".into(), [1, 2].into()), (String::new(), VecDeque::new())].into(),
        nothing: (),
        unit: Unit,
        plain: vec![1.0, -0.0, f64::MIN_POSITIVE],
    }
}

fn encoded<C: Codec>(value: &(impl Serialize + ?Sized)) -> Vec<u8> {
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.write_object_with::<C, _>(value).unwrap();
    buffer.commit().to_vec()[56..].to_vec()
}

fn decoded<C: Codec, T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    C::decode(bytes)
}

fn check_round_trip<C: Codec>() {
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.write_object_with::<C, _>(&every()).unwrap();
    buffer.write_object_with::<C, _>("borrowed").unwrap();
    let local = buffer.commit();
    let mut buffer = Buffer::from_bytes(Heap::new(local.len()), &local.to_vec()).unwrap();
    assert_eq!(buffer.read_object_with::<C, Every>().unwrap(), every());
    assert!(buffer.view_object_with::<C, u8>().is_err());
    assert_eq!(buffer.view_object_with::<C, &str>().unwrap(), "borrowed");
    assert_eq!(buffer.peek(), None);
    let bytes = encoded::<C>(&every());
    for len in 0..bytes.len() {
        assert!(decoded::<C, Every>(&bytes[..len]).is_err(), "{len}");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert_eq!(decoded::<C, Every>(&longer), Err(CodecError::Trailing { left: 1 }));
}

#[test]
fn all_types_round_trip() {
    check_round_trip::<Postcard>();
    check_round_trip::<Fixed>();
}

#[test]
fn fixed_encoding_is_as_documented() {
    let expected: &[u8] = &[
        1, // true
        0xfe, 0xff, // -2i16
        0, 0, 0x80, 0x3f, // 1f32
        2, 0, 0, 0, 0, 0, 0, 0, 0xc3, 0xa9, // "é"
        0xe8, 0xaa, 0x9e, // '語'
        0,    // None
        1, 7, // Some(7u8)
        1, 0, 0, 0, 0, 0, 0, 0, 3, 4, // a vector of a pair
        1, 0, 0, 0, 0, 0, 0xc0, 0x3f, // Circle(1.5)
        2, 0, 0, 0, 0, 0, 0, 0, 1, 2, // one u16 as bytes
    ];
    let value = (
        (true, -2i16, 1f32, "é", '語', None::<u8>, Some(7u8)),
        (vec![(3u8, 4u8)], (), Unit, Shape::Circle(1.5), Raw(&[0x0201u16])),
    );
    assert_eq!(encoded::<Fixed>(&value), expected);
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Nested(Vec<Nested>);

#[derive(Serialize, Deserialize, Debug, PartialEq)]
enum Chain {
    End,
    Link(Box<Chain>),
}

#[derive(Deserialize, Debug)]
#[expect(dead_code, reason = "recursion without a byte")]
struct Endless(Box<Endless>);

#[test]
fn nesting_beyond_the_limit_is_an_error() {
    let deep = |levels: usize| {
        let mut value = Nested(vec![]);
        (0..levels).for_each(|_| value = Nested(vec![core::mem::replace(&mut value, Nested(vec![]))]));
        value
    };
    let most = MAX_DEPTH as usize / 2 - 1;
    for levels in [0, 5, most] {
        assert_eq!(decoded::<Fixed, Nested>(&encoded::<Fixed>(&deep(levels))).unwrap(), deep(levels));
        assert_eq!(decoded::<Postcard, Nested>(&encoded::<Postcard>(&deep(levels))).unwrap(), deep(levels));
    }
    let too_deep = CodecError::TooDeep { limit: MAX_DEPTH };
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    assert_eq!(buffer.write_object_with::<Fixed, _>(&deep(most + 1)), Err(WriteError::Codec(too_deep)));
    assert!(buffer.is_empty());
    assert_eq!(decoded::<Postcard, Nested>(&encoded::<Postcard>(&deep(most + 1))), Err(too_deep));
    assert_eq!(decoded::<Postcard, Nested>(&[1; 1_000_000]), Err(too_deep));
    assert_eq!(decoded::<Fixed, Nested>(&1u64.to_le_bytes().repeat(100_000)), Err(too_deep));
    assert!(decoded::<Postcard, Chain>(&[1; 1_000_000]).is_err_and(|e| e == too_deep));
    assert!(decoded::<Fixed, Chain>(&1u32.to_le_bytes().repeat(100_000)).is_err_and(|e| e == too_deep));
    assert!(decoded::<Postcard, Endless>(&[]).is_err_and(|e| e == too_deep));
    assert!(decoded::<Fixed, Endless>(&[]).is_err_and(|e| e == too_deep));
}

#[test]
fn every_written_enum_can_be_read() {
    let mut written = 0;
    for links in 100..140 {
        let mut chain = Chain::End;
        (0..links).for_each(|_| chain = Chain::Link(Box::new(std::mem::replace(&mut chain, Chain::End))));
        let mut buffer = Buffer::new(Heap::new(64)).unwrap();
        if buffer.write_object_with::<Fixed, _>(&chain).is_ok() {
            assert_eq!(decoded::<Fixed, Chain>(&encoded::<Fixed>(&chain)), Ok(chain), "{links} links");
            written += 1;
        }
    }
    assert!((1..40).contains(&written));
}

fn length_prefix<C: Codec>(count: u64) -> Vec<u8> {
    encoded::<C>(&count)
}

fn check_false_lengths<C: Codec>() {
    for count in [1u64 << 60, u64::MAX, 1 << 32, 1000] {
        let bytes = length_prefix::<C>(count);
        assert!(decoded::<C, Vec<u64>>(&bytes).is_err());
        assert!(decoded::<C, Vec<[u64; 32]>>(&bytes).is_err());
        assert!(decoded::<C, String>(&bytes).is_err());
        assert!(decoded::<C, RawVec<f64>>(&bytes).is_err());
        assert!(decoded::<C, BTreeMap<u64, u64>>(&bytes).is_err());
    }
    let too_many = Err(CodecError::TooManyZeroSized { limit: MAX_ZERO_SIZED });
    for count in [u64::from(MAX_ZERO_SIZED) + 1, 1 << 60, u64::MAX] {
        if usize::try_from(count).is_err() {
            continue;
        }
        let bytes = length_prefix::<C>(count);
        assert_eq!(decoded::<C, Vec<()>>(&bytes), too_many.map(|()| vec![]));
        assert_eq!(decoded::<C, Vec<Unit>>(&bytes), too_many.map(|()| vec![]));
        assert_eq!(decoded::<C, Vec<((), [Unit; 2])>>(&bytes), too_many.map(|()| vec![]));
        assert_eq!(
            decoded::<C, VecDeque<Vec<()>>>(&[length_prefix::<C>(1), bytes].concat()),
            too_many.map(|()| [].into())
        );
    }
    let empty = vec![(); MAX_ZERO_SIZED as usize];
    assert_eq!(decoded::<C, Vec<()>>(&encoded::<C>(&empty)), Ok(empty));
    // Fields without bytes and empty sequences are not counted.
    let many = vec![(1u8, (), Unit); 2 * MAX_ZERO_SIZED as usize];
    assert_eq!(decoded::<C, Vec<(u8, (), Unit)>>(&encoded::<C>(&many)).map(|back| back == many), Ok(true));
    let many: Vec<Vec<()>> = vec![vec![]; 2 * MAX_ZERO_SIZED as usize];
    assert_eq!(decoded::<C, Vec<Vec<()>>>(&encoded::<C>(&many)).map(|back| back == many), Ok(true));
}

#[test]
fn false_lengths_are_bounded_by_the_bytes() {
    check_false_lengths::<Postcard>();
    check_false_lengths::<Fixed>();
}

/// The start of a sequence: [`MAX_ZERO_SIZED`] elements without bytes. The rest is not read.
#[derive(PartialEq, Debug)]
struct Start;

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StartVisitor;

        impl<'de> Visitor<'de> for StartVisitor {
            type Value = Start;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Start, A::Error> {
                (0..MAX_ZERO_SIZED).try_for_each(|_| sequence.next_element::<()>().map(drop))?;
                Ok(Start)
            }
        }

        deserializer.deserialize_seq(StartVisitor)
    }
}

fn check_unread_ends<C: Codec>() {
    let prefix = length_prefix::<C>(MAX_ZERO_SIZED.into());
    assert_eq!(decoded::<C, Start>(&prefix), Ok(Start));
    let too_many = Err(CodecError::TooManyZeroSized { limit: MAX_ZERO_SIZED });
    assert_eq!(decoded::<C, (Start, Start)>(&[prefix.clone(), prefix].concat()), too_many);
}

#[test]
fn zero_sized_elements_count_even_if_the_end_is_not_read() {
    check_unread_ends::<Postcard>();
    check_unread_ends::<Fixed>();
}

fn check_slices<T: Element + PartialEq + Debug>(values: &[T]) {
    fn check<C: Codec, T: Element + PartialEq + Debug>(values: &[T]) {
        let bytes = encoded::<C>(&Raw(values));
        assert_eq!(bytes, encoded::<C>(&RawVec(values.to_vec())));
        assert_eq!(decoded::<C, RawVec<T>>(&bytes).unwrap().0, values);
    }
    check::<Postcard, T>(values);
    check::<Fixed, T>(values);
    let mut buffer = Buffer::new(Heap::new(128)).unwrap();
    buffer.write_dynamic(values).unwrap();
    buffer.write_dynamic::<T>(&[]).unwrap();
    let local = buffer.commit();
    let mut remote = Buffer::from_bytes(Heap::new(local.len()), &local.to_vec()).unwrap();
    for mut buffer in [local, copy_of(&mut remote)] {
        assert_eq!(
            buffer.peek().map(|s| (s.kind, s.codec, s.schema)),
            Some((ElementKind::Object, 3, T::KIND as u8))
        );
        assert_eq!(buffer.read_dynamic::<T>().unwrap(), values);
        buffer.rewind();
        let mut back = values.to_vec();
        let expected = back.len() + 1;
        let mut longer = [back.clone(), vec![values[0]]].concat();
        let found = values.len();
        assert_eq!(buffer.read_dynamic_into(&mut longer), Err(ReadError::Length { expected, found }));
        back.reverse();
        buffer.read_dynamic_into(&mut back).unwrap();
        assert_eq!(back, values);
        assert_eq!(buffer.read_dynamic::<T>(), Ok(vec![]));
        assert_eq!(buffer.read_dynamic::<T>(), Err(ReadError::PastSection { needed: 1, available: 0 }));
        buffer.rewind();
        if size_of::<T>() <= 8 {
            assert_eq!(buffer.view_dynamic::<T>(), Ok(values));
        }
    }
}

fn copy_of(buffer: &mut Buffer<Heap, Reading>) -> Buffer<Heap, Reading> {
    Buffer::from_bytes(Heap::new(buffer.len()), &buffer.to_vec()).unwrap()
}

#[test]
fn slices_round_trip_in_the_dynamic_part() {
    check_slices(&[i8::MIN, 1]);
    check_slices(&[1u8, 2, 3]);
    check_slices(&[-1i16, 2]);
    check_slices(&[0x0102u16]);
    check_slices(&[-1i32, 0x0102_0304]);
    check_slices(&[1u32]);
    check_slices(&[i64::MIN]);
    check_slices(&[1u64, 2]);
    check_slices(&[i128::MIN, 2]);
    check_slices(&[u128::MAX]);
    check_slices(&[1.5f32]);
    check_slices(&[f64::MAX, -0.0]);
    check_slices(&[true, false]);
    check_slices(&['a', '🦀']);
}

#[test]
fn invalid_slices_are_errors() {
    let odd = encoded::<Fixed>("abc");
    assert_eq!(decoded::<Fixed, RawVec<u16>>(&odd), Err(CodecError::Malformed));
    assert_eq!(decoded::<Fixed, RawVec<bool>>(&odd), Err(CodecError::Custom));
    assert!(decoded::<Postcard, RawVec<u16>>(&encoded::<Postcard>("abc")).is_err());
    assert_eq!(
        decoded::<Fixed, RawVec<char>>(&encoded::<Fixed>(&Raw(&[0xd800u32]))),
        Err(CodecError::Custom)
    );

    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.write_dynamic(&[1u8, 2, 3]).unwrap();
    let mut wire = buffer.commit().to_vec();
    let mut buffer = Buffer::from_bytes(Heap::new(128), &wire).unwrap();
    let wrong = ReadError::WrongSchema { expected: ElementKind::U16 as u8, found: ElementKind::U8 as u8 };
    assert_eq!(buffer.read_dynamic::<u16>(), Err(wrong));
    assert_eq!(buffer.read_object::<RawVec<u8>>(), Err(ReadError::WrongCodec { expected: 1, found: 3 }));
    assert_eq!(buffer.read_dynamic::<u8>(), Ok(vec![1, 2, 3]));
    for (kind, error) in [
        (ElementKind::U16, ReadError::Codec(CodecError::Trailing { left: 1 })),
        (ElementKind::Bool, ReadError::Invalid { kind: ElementKind::Bool, index: 1 }),
    ] {
        wire[19] = kind as u8;
        let mut buffer = Buffer::from_bytes(Heap::new(128), &wire).unwrap();
        if kind == ElementKind::U16 {
            assert_eq!(buffer.read_dynamic::<u16>(), Err(error));
            assert_eq!(buffer.view_dynamic::<u16>(), Err(error));
            assert_eq!(buffer.read_dynamic_into(&mut [0u16]), Err(error));
        } else {
            let mut bools = [false; 3];
            assert_eq!(buffer.read_dynamic::<bool>(), Err(error));
            assert_eq!(buffer.view_dynamic::<bool>(), Err(error));
            assert_eq!(buffer.read_dynamic_into(&mut bools), Err(error));
            assert_eq!(bools, [false; 3]);
        }
        buffer.skip_section().unwrap();
    }
}

#[test]
fn dynamic_part_in_the_other_byte_order_is_swapped() {
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.write_dynamic(&[0x0102u16, 0x0304]).unwrap();
    let mut wire = buffer.commit().to_vec();
    wire[5] ^= b'<' ^ b'>';
    for range in [8..16, 20..24, 24..32, 36..40, 40..48, 48..56, 56..58, 58..60] {
        wire[range].reverse();
    }
    let mut buffer = Buffer::from_bytes(Heap::new(64), &wire).unwrap();
    assert_eq!(buffer.view_dynamic::<u16>(), Err(ReadError::ForeignOrder { kind: ElementKind::U16 }));
    let mut back = [0u16; 2];
    buffer.read_dynamic_into(&mut back).unwrap();
    assert_eq!(back, [0x0102, 0x0304]);
    buffer.rewind();
    assert_eq!(buffer.read_dynamic(), Ok(vec![0x0102u16, 0x0304]));
}

#[test]
fn large_values_are_split_by_the_writer_and_contiguous_at_the_receiver() {
    let values: Vec<u64> = (0..2_000_000).collect();
    let mut buffer = Buffer::new(Heap::new(128)).unwrap();
    buffer.write_dynamic(&values).unwrap();
    buffer.write_object_with::<Fixed, _>(&Raw(&values)).unwrap();
    let mut local = buffer.commit();
    assert_eq!(local.view_dynamic::<u64>(), Err(ReadError::Split { len: 16_000_000 }));
    assert_eq!(local.read_dynamic::<u64>().unwrap(), values);
    let split = local.view_object_with::<Fixed, RawVec<u64>>();
    assert_eq!(split, Err(ReadError::Split { len: 16_000_008 }));
    assert_eq!(local.read_object_with::<Fixed, RawVec<u64>>().unwrap().0, values);
    let mut remote = Buffer::from_bytes(Heap::new(local.len()), &local.to_vec()).unwrap();
    assert_eq!(remote.view_dynamic::<u64>().unwrap(), values);
    assert_eq!(remote.view_object_with::<Fixed, RawVec<u64>>().unwrap().0, values);
}

#[test]
fn sequences_may_cross_the_end_of_a_chunk() {
    type Mixed = (u8, Vec<u16>, [f64; 3], String);
    for count in 0..40 {
        // Each count moves the end of the first chunk to another field of an element.
        let mixed = |i: u16| (i as u8, (0..i % 5).collect(), [0.5, f64::from(i), -1.0], "x".repeat(count));
        let values: (Vec<u8>, Vec<Mixed>) = (vec![1; count], (0..300).map(mixed).collect());
        assert_eq!(decoded::<Fixed, _>(&encoded::<Fixed>(&values)), Ok(values));
        let numbers: (Vec<u8>, Vec<u32>, Vec<u128>) =
            (vec![2; count], (0..9000).collect(), (0..3000).collect());
        let bytes = encoded::<Fixed>(&numbers);
        assert_eq!(bytes.len(), 24 + count + 4 * 9000 + 16 * 3000);
        assert_eq!(decoded::<Fixed, _>(&bytes), Ok(numbers));
    }
}

#[test]
fn set_pool_allocates_and_frees_the_dynamic_part() {
    let pool = Arc::new(Buddy::growing(Growth::default().limit(1 << 20), mpj_buffer::pool::Heap::create));
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.set_pool(Arc::clone(&pool));
    for _ in 0..3 {
        let value = vec![7u8; 100_000];
        assert!(matches!(buffer.write_dynamic(&vec![0u8; 2 << 20]), Err(WriteError::Alloc(_))));
        assert!(matches!(buffer.write_object(&vec![0u8; 2 << 20]), Err(WriteError::Alloc(_))));
        let numbers = vec![0u64; 1 << 18];
        assert!(matches!(buffer.write_object_with::<Fixed, _>(&numbers), Err(WriteError::Alloc(_))));
        buffer.write_object(&value).unwrap();
        assert!(pool.alloc(1 << 20).is_err(), "a part of the pool is in use");
        let mut reading = buffer.commit();
        assert_eq!(reading.read_object::<Vec<u8>>().unwrap(), value);
        buffer = reading.clear();
        assert!(pool.alloc(1 << 20).is_ok(), "all blocks are free");
    }
}

fn decodes<C: Codec>(bytes: &[u8]) {
    let _ = decoded::<C, Every>(bytes);
    let _ = decoded::<C, Nested>(bytes);
    let _ = decoded::<C, Chain>(bytes);
    let _ = decoded::<C, Vec<Vec<()>>>(bytes);
    let _ = decoded::<C, Vec<Shape>>(bytes);
    let _ = decoded::<C, BTreeMap<u8, Option<char>>>(bytes);
    let _ = decoded::<C, (RawVec<f64>, RawVec<char>, RawVec<bool>)>(bytes);
    let _ = C::decode::<(&str, Option<&[u8]>)>(bytes);
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { 2000 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_bytes_do_not_panic(bytes in vec(prop_oneof![0u8..4, any::<u8>()], 0..200)) {
        decodes::<Postcard>(&bytes);
        decodes::<Fixed>(&bytes);
    }

    #[test]
    fn patched_values_do_not_panic(patches in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)) {
        let (mut small, mut wide) = (encoded::<Postcard>(&every()), encoded::<Fixed>(&every()));
        for (at, value) in patches {
            let (a, b) = (at.index(small.len()), at.index(wide.len()));
            small[a] = value;
            wide[b] = value;
        }
        decodes::<Postcard>(&small);
        decodes::<Fixed>(&wide);
    }
}

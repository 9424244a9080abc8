//! Objects: values larger than a chunk, failed writes, other codecs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::common::Heap;
use mpj_buffer::codec::RecordWriter;
use mpj_buffer::pool::{self, AllocError, Buddy, Growth, Pool, PoolStats, RawBuffer};
use mpj_buffer::{Buffer, Codec, CodecError, ReadError, Reading, WriteError};
use serde::ser::{Error, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
enum Shape {
    Dot,
    Line { from: (f64, f64), to: (f64, f64) },
    Group(Vec<Shape>),
}

fn received(sent: &Buffer<Heap, Reading>) -> Buffer<Heap, Reading> {
    Buffer::from_bytes(Heap::new(sent.len()), &sent.to_vec()).unwrap()
}

#[test]
fn values_of_all_sizes_round_trip_in_a_small_block() {
    let sizes = [0usize, 1, 7, 8, 4000, 4096, 5000, 100_000, 3, 1 << 20, 2];
    let value = |n: usize| (n, (0..n).map(|i| i as u8).collect::<Vec<_>>());
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    for n in sizes {
        buffer.write_object(&value(n)).unwrap();
    }
    let mut local = buffer.commit();
    assert!(local.segments().count() > 2);
    let mut remote = received(&local);
    assert_eq!(remote.segments().count(), 1);
    assert_eq!(remote.to_vec(), local.to_vec());
    for buffer in [&mut local, &mut remote] {
        for n in sizes {
            assert_eq!(buffer.read_object(), Ok(value(n)));
        }
        assert_eq!(buffer.read_object::<u8>(), Err(ReadError::PastSection { needed: 1, available: 0 }));
        buffer.rewind();
        buffer.skip_section().unwrap();
        assert_eq!(buffer.read_object::<u8>(), Err(ReadError::End));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many bytes")]
fn value_may_span_many_chunks() {
    let values: Vec<u8> = (0..100 << 20).map(|i| (i >> 12) as u8).collect();
    let mut buffer = Buffer::new(Heap::new(64)).unwrap();
    buffer.write_object("in front").unwrap();
    buffer.write_dynamic(&values).unwrap();
    let mut buffer = buffer.commit();
    assert!(buffer.segments().map(<[u8]>::len).max().unwrap() <= 4 << 20);
    assert_eq!(buffer.read_object::<String>().unwrap(), "in front");
    assert!(buffer.read_dynamic::<u8>().unwrap() == values);
}

#[test]
fn zero_sized_values_round_trip() {
    for count in [1, 2, 501, 502, 503, 504, 509, 510, 511, 512] {
        let mut buffer = Buffer::new(Heap::new(64)).unwrap();
        for _ in 0..count {
            buffer.write_object(&()).unwrap();
        }
        let mut local = buffer.commit();
        let mut remote = received(&local);
        for buffer in [&mut local, &mut remote] {
            for _ in 0..count {
                assert_eq!(buffer.read_object(), Ok(()));
            }
            assert_eq!(buffer.peek(), None);
        }
    }
}

#[test]
fn value_read_as_another_type_remains_unread() {
    let shape = Shape::Group(vec![Shape::Dot, Shape::Line { from: (0.0, 1.0), to: (2.0, 3.0) }]);
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.write(&[1.0f32]).unwrap();
    buffer.write_object(&shape).unwrap();
    let mut buffer = buffer.commit();
    assert!(matches!(buffer.read_object::<Shape>(), Err(ReadError::WrongType { .. })));
    buffer.skip_section().unwrap();
    assert!(matches!(
        buffer.read_object::<u8>(),
        Err(ReadError::Codec(CodecError::Trailing { left })) if left > 0
    ));
    assert!(matches!(buffer.read_object::<[u64; 32]>(), Err(ReadError::Codec(_))));
    assert_eq!(buffer.remaining(), 0, "the section is not open yet");
    assert_eq!(buffer.read_object(), Ok(shape));
}

/// Serializes some elements, then fails or panics.
struct Spoilt {
    bytes: usize,
    panics: bool,
}

impl Serialize for Spoilt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(self.bytes + 1))?;
        for _ in 0..self.bytes {
            seq.serialize_element(&0xABu8)?;
        }
        assert!(!self.panics, "a value that panics");
        Err(S::Error::custom("a value that fails"))
    }
}

#[test]
fn failed_value_leaves_no_trace() {
    for bytes in [0, 10, 4096, 50_000] {
        for panics in [false, true] {
            let spoil = |buffer: &mut Buffer<Heap>| {
                let spoilt = Spoilt { bytes, panics };
                let result = catch_unwind(AssertUnwindSafe(|| buffer.write_object(&spoilt)));
                assert!(result.is_err() || result.unwrap() == Err(WriteError::Codec(CodecError::Custom)));
            };
            let mut clean = Buffer::new(Heap::new(256)).unwrap();
            let mut buffer = Buffer::new(Heap::new(256)).unwrap();
            spoil(&mut buffer);
            assert!(buffer.is_empty());
            for value in ["one", "two"] {
                clean.write_object(value).unwrap();
                buffer.write_object(value).unwrap();
                spoil(&mut buffer);
            }
            assert_eq!(buffer.commit().to_vec(), clean.commit().to_vec());

            let mut buffer = Buffer::new(Heap::new(256)).unwrap();
            spoil(&mut buffer);
            assert_eq!(buffer.commit().len(), 16);
        }
    }
}

#[test]
fn slices_are_contiguous_whatever_precedes_them() {
    let mut buffer = Buffer::with_capacity(256).unwrap();
    let sizes = [(10, 200_000), (10_000, 200_000), (3000, 60_000), (1, 3 << 20), (70_000, 4 << 20)];
    for (first, then) in sizes.repeat(3) {
        buffer.write_object(&vec![7u8; first]).unwrap();
        buffer.write_dynamic(&vec![1u8; then]).unwrap();
        let mut reader = buffer.commit();
        assert_eq!(reader.read_object::<Vec<u8>>().unwrap().len(), first);
        assert_eq!(reader.view_dynamic::<u8>().map(<[u8]>::len), Ok(then), "after {first}");
        buffer = reader.clear();
        buffer.write_dynamic(&vec![2u8; then]).unwrap();
        let mut reader = buffer.commit();
        assert_eq!(reader.view_dynamic::<u8>().map(<[u8]>::len), Ok(then));
        buffer = reader.clear();
        buffer.write_object("a small block").unwrap();
        buffer = buffer.commit().clear();
    }
}

#[test]
fn failed_write_frees_its_blocks() {
    let pool = Arc::new(Buddy::growing(Growth::default(), mpj_buffer::pool::Heap::create));
    let mut buffer = Buffer::new(Heap::new(512)).unwrap();
    buffer.set_pool(pool.clone());
    buffer.write_object("something").unwrap();
    let live = pool.stats().live_blocks;
    for bytes in [0, 100, 5000, 300_000] {
        assert!(buffer.write_object(&Spoilt { bytes, panics: false }).is_err());
        assert_eq!(pool.stats().live_blocks, live, "{bytes}");
    }
}

#[test]
fn reused_buffer_writes_the_same_bytes_as_a_new_one() {
    // Messages with one chunk, a larger chunk, several chunks, a chunk that is too large to keep, and without objects.
    let sizes: &[&[usize]] = &[
        &[10],
        &[],
        &[4000, 3],
        &[5000],
        &[1, 70_000, 2],
        &[60_000, 60_000],
        &[100_000],
        &[3 << 20, 1],
        &[],
        &[200_000, 5 << 20, 9],
        &[8],
    ];
    let fill = |buffer: &mut Buffer<Heap>, sizes: &[usize]| {
        buffer.write(&[1u8]).unwrap();
        for (i, size) in sizes.iter().enumerate() {
            let bytes: Vec<u8> = (0..*size).map(|at| (at + i) as u8).collect();
            match i % 2 {
                0 => buffer.write_object(&bytes).unwrap(),
                _ => buffer.write_dynamic(&bytes).unwrap(),
            }
        }
    };
    let spoil = |buffer: &mut Buffer<Heap>, bytes| {
        for panics in [false, true] {
            let spoilt = Spoilt { bytes, panics };
            let result = catch_unwind(AssertUnwindSafe(|| buffer.write_object(&spoilt)));
            assert!(result.is_err() || result.unwrap().is_err());
        }
    };
    let mut buffer = Buffer::new(Heap::new(512)).unwrap();
    for round in 0..4 {
        for sizes in sizes {
            let mut fresh = Buffer::new(Heap::new(512)).unwrap();
            fill(&mut fresh, sizes);
            if round % 2 == 1 {
                spoil(&mut buffer, [0, 3, 5000, 300_000][sizes.len()]);
            }
            fill(&mut buffer, sizes);
            if round == 2 {
                spoil(&mut buffer, 10_000);
            }
            let reading = buffer.commit();
            assert!(reading.segments().all(|segment| !segment.is_empty()));
            assert_eq!(reading.segments().count() > 1, !sizes.is_empty());
            let wire = reading.to_vec();
            let mut streamed = Vec::new();
            std::io::Read::read_to_end(&mut reading.reader(), &mut streamed).unwrap();
            assert_eq!((wire == fresh.commit().to_vec(), streamed == wire), (true, true), "{sizes:?}");
            buffer = reading.clear();
        }
        fill(&mut buffer, &[100, 200]);
        buffer = buffer.clear();
    }
}

#[derive(Debug)]
struct Short(usize);

impl Pool for Short {
    type Block = Heap;

    fn alloc(&self, len: usize) -> Result<Heap, AllocError> {
        assert!(len <= self.0);
        Ok(Heap::new(len))
    }

    fn max_alloc(&self) -> usize {
        self.0
    }

    fn stats(&self) -> PoolStats {
        PoolStats::default()
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn dynamic_part_may_consist_of_short_blocks() {
    let mut usual = Buffer::new(Heap::new(256)).unwrap();
    let fill = |buffer: &mut Buffer<Heap>| {
        buffer.write_object("a few bytes").unwrap();
        buffer.write_dynamic(&[0x0102_0304u32; 3000]).unwrap();
        buffer.write_object(&vec![7u64; 100]).unwrap();
    };
    fill(&mut usual);
    let expected = usual.commit().to_vec();
    for most in [16, 23, 24, 63, 64, 65, 72, 80, 100, 4095, 4096, 4104, 5000] {
        let mut buffer = Buffer::new(Heap::new(256)).unwrap();
        buffer.set_pool(Arc::new(Short(most)));
        for _ in 0..2 {
            fill(&mut buffer);
            let reading = buffer.commit();
            assert_eq!(reading.to_vec(), expected, "{most}");
            buffer = reading.clear();
        }
    }
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.set_pool(Arc::new(Short(15)));
    assert!(matches!(buffer.write_object("no space for a header"), Err(WriteError::Alloc(_))));
    assert!(buffer.is_empty());
}

/// Postcard with another id, and the length of a type's name as its schema.
struct NameLength;

impl Codec for NameLength {
    const ID: u8 = 200;

    fn schema<T: ?core::marker::Sized>() -> u8 {
        core::any::type_name::<T>().len() as u8
    }

    fn encode<T: Serialize + ?core::marker::Sized>(
        value: &T,
        out: &mut RecordWriter<'_>,
    ) -> Result<(), CodecError> {
        mpj_buffer::Postcard::encode(value, out)
    }

    fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, CodecError> {
        mpj_buffer::Postcard::decode(bytes)
    }
}

#[test]
fn codecs_and_schemas_are_distinguished() {
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.write_object(&1u8).unwrap();
    buffer.write_object_with::<NameLength, _>(&2u8).unwrap();
    buffer.write_object_with::<NameLength, _>(&3u128).unwrap();
    let mut buffer = received(&buffer.commit());
    let wrong = ReadError::WrongCodec { expected: 200, found: 1 };
    assert_eq!(buffer.read_object_with::<NameLength, u8>(), Err(wrong));
    assert_eq!(buffer.read_object::<u8>(), Ok(1));
    let wrong = ReadError::WrongCodec { expected: 1, found: 200 };
    assert_eq!(buffer.object_section(), Err(wrong));
    let wrong = ReadError::WrongSchema { expected: 4, found: 2 };
    assert_eq!(buffer.read_object_with::<NameLength, u128>(), Err(wrong));
    assert_eq!(buffer.read_object_with::<NameLength, u8>(), Ok(2));
    assert_eq!(buffer.read_object_with::<NameLength, u128>(), Ok(3));
    assert_eq!(buffer.peek(), None);
}

/// A pool that has few blocks, and panics when it has none.
#[derive(Debug)]
struct PanickingPool(Mutex<Vec<pool::DefaultBlock>>);

impl Pool for PanickingPool {
    type Block = pool::DefaultBlock;

    fn alloc(&self, _: usize) -> Result<Self::Block, AllocError> {
        let block = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(block.expect("no block is left"))
    }

    fn max_alloc(&self) -> usize {
        1 << 20
    }

    fn stats(&self) -> PoolStats {
        PoolStats::default()
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

struct CatchingCodec;

impl Codec for CatchingCodec {
    const ID: u8 = 201;

    fn encode<T: Serialize + ?Sized>(_: &T, out: &mut RecordWriter<'_>) -> Result<(), CodecError> {
        for _ in 0..2 {
            assert!(catch_unwind(AssertUnwindSafe(|| out.push(&[1; 100_000]))).is_err());
        }
        Ok(())
    }

    fn decode<'de, T: Deserialize<'de>>(_: &'de [u8]) -> Result<T, CodecError> {
        Err(CodecError::Custom)
    }
}

#[test]
fn object_whose_pool_panicked_is_not_written() {
    let mut blocks: Vec<_> = (0..3).map(|_| pool::global().alloc(64).unwrap()).collect();
    blocks.sort_by_key(|block| block.as_ptr());
    for count in [1, 2] {
        let blocks = (0..count).filter_map(|_| blocks.pop()).rev().collect();
        let mut buffer = Buffer::new(Heap::new(256)).unwrap();
        buffer.set_pool(Arc::new(PanickingPool(Mutex::new(blocks))));
        buffer.write_object_with::<CatchingCodec, _>(&1u8).unwrap_err();
        buffer.write(&[7u8]).unwrap();
        assert_eq!(buffer.commit().view::<u8>(), Ok(&[7][..]));
    }
}

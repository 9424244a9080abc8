//! Length fields reserve, in total, no more elements than the value has bytes.

use core::cell::Cell;
use core::fmt;

use mpj_buffer::{Codec, CodecError, Fixed, Postcard};
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

thread_local! {
    static RESERVED: Cell<usize> = const { Cell::new(0) };
}

/// Nested sequences that count what a vector would reserve.
struct Nest;

impl<'de> Deserialize<'de> for Nest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;

        impl<'de> Visitor<'de> for Elements {
            type Value = Nest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Nest, A::Error> {
                RESERVED.set(RESERVED.get() + seq.size_hint().unwrap_or(0));
                while seq.next_element::<Nest>()?.is_some() {}
                Ok(Nest)
            }
        }

        deserializer.deserialize_seq(Elements)
    }
}

fn reserved<C: Codec>(bytes: &[u8]) -> (usize, Result<(), CodecError>) {
    RESERVED.set(0);
    let done = C::decode::<Nest>(bytes).map(drop);
    (RESERVED.get(), done)
}

#[test]
fn nested_false_lengths_do_not_multiply_allocation() {
    // Each level announces one element per byte of the value, but contains one.
    let bytes = 10_000u64.to_le_bytes().repeat(1250);
    let (count, done) = reserved::<Fixed>(&bytes);
    assert!(done.is_err() && count <= bytes.len(), "{count} elements for {} bytes", bytes.len());
    let bytes = [0x90, 0x4e].repeat(5000);
    let (count, done) = reserved::<Postcard>(&bytes);
    assert!(done.is_err() && count <= bytes.len(), "{count} elements for {} bytes", bytes.len());
}

#[test]
fn true_lengths_reserve_all_elements() {
    let bytes = [3u8, 3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0];
    assert_eq!(reserved::<Postcard>(&bytes), (12, Ok(())));
    let bytes: Vec<u8> = bytes.iter().flat_map(|count| u64::from(*count).to_le_bytes()).collect();
    assert_eq!(reserved::<Fixed>(&bytes), (12, Ok(())));
}

/// Bytes that reserve memory again after each element.
struct Repeated;

impl<'de> Deserialize<'de> for Repeated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;

        impl<'de> Visitor<'de> for Elements {
            type Value = Repeated;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Repeated, A::Error> {
                while seq.next_element::<u8>()?.is_some() {
                    RESERVED.set(RESERVED.get().max(seq.size_hint().unwrap_or(0)));
                }
                Ok(Repeated)
            }
        }

        deserializer.deserialize_seq(Elements)
    }
}

#[test]
fn false_length_does_not_reserve_memory_after_the_first_element() {
    fn most<C: Codec>(bytes: &[u8]) -> usize {
        RESERVED.set(0);
        assert!(C::decode::<Repeated>(bytes).is_err());
        RESERVED.get()
    }
    // A length of 2^40, and eight elements.
    let length = [0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
    assert!(most::<Postcard>(&[&length[..], &[7; 8]].concat()) <= 14);
    assert!(most::<Fixed>(&[&(1u64 << 40).to_le_bytes()[..], &[7; 8]].concat()) <= 16);
}

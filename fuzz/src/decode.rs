use std::collections::{BTreeMap, VecDeque};

use mpj_buffer::codec::{MAX_DEPTH, MAX_ZERO_SIZED};
use mpj_buffer::{Buffer, Codec, CodecError, Fixed, Postcard, RawVec};
use serde::{Deserialize, Serialize};

use crate::input::Input;
use crate::peak_memory;

#[derive(Serialize, Deserialize)]
enum Shape {
    Dot,
    Circle(f32),
    Line((i8, i16), (i128, u128)),
    Text { at: [u8; 2], text: Option<String>, letter: char },
}

#[derive(Serialize, Deserialize)]
struct AllTypes {
    numbers: (u8, i8, u16, i16, u32, i32, u64, i64, f64),
    flag: bool,
    shapes: Vec<Shape>,
    queue: VecDeque<i64>,
    nothing: (),
    #[serde(with = "mpj_buffer::raw")]
    plain: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct Nested(Vec<Nested>);

#[derive(Serialize, Deserialize)]
enum Chain {
    End,
    Link(Box<Chain>),
    Two { left: Box<Chain>, right: Option<Box<Chain>> },
}

/// Decodes bytes as a value of a chosen type. Checks that the peak memory is bounded, and that a decoded value survives
/// a round trip.
pub fn decode(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let fixed = input.flag();
    let shape = input.below(16);
    let bytes = input.rest();
    if fixed { decode_shape::<Fixed>(shape, bytes) } else { decode_shape::<Postcard>(shape, bytes) }
}

fn decode_shape<C: Codec>(shape: usize, bytes: &[u8]) {
    match shape {
        0 => check::<C, Vec<u64>>(bytes),
        1 => check::<C, String>(bytes),
        2 => check::<C, BTreeMap<String, Option<f32>>>(bytes),
        3 => check::<C, (bool, char, [u16; 3])>(bytes),
        4 => check::<C, AllTypes>(bytes),
        5 => check::<C, Nested>(bytes),
        6 => check::<C, Chain>(bytes),
        7 => check::<C, Vec<()>>(bytes),
        8 => check::<C, Vec<(Vec<()>, [(); 3])>>(bytes),
        9 => check::<C, RawVec<f64>>(bytes),
        10 => check::<C, Vec<RawVec<char>>>(bytes),
        11 => check::<C, Vec<Vec<Vec<u8>>>>(bytes),
        12 => check::<C, BTreeMap<Vec<()>, ()>>(bytes),
        13 => check::<C, (u128, i128, Result<u8, String>, Option<Option<()>>)>(bytes),
        14 => check::<C, RawVec<bool>>(bytes),
        _ => check::<C, Vec<(String, Vec<Shape>)>>(bytes),
    }
}

fn check<C: Codec, T: Serialize + for<'a> Deserialize<'a>>(bytes: &[u8]) {
    let (decoded, peak) = peak_memory::measure(|| C::decode::<T>(bytes));
    // One byte can become a `Shape` of 48 bytes. While a vector doubles its capacity, both allocations exist.
    let bound = 512 * bytes.len() + (64 << 10) + 2 * MAX_ZERO_SIZED as usize;
    assert!(peak <= bound, "{peak} bytes of memory for {} bytes", bytes.len());
    let value = match decoded {
        Ok(value) => value,
        Err(CodecError::TooDeep { limit }) => return assert_eq!(limit, MAX_DEPTH),
        Err(CodecError::TooManyZeroSized { limit }) => return assert_eq!(limit, MAX_ZERO_SIZED),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let first = encoded::<C, T>(&value);
    let second = encoded::<C, T>(&C::decode(&first).expect("an encoded value decodes"));
    assert_eq!(first, second, "the decoded value differs");
    // The fixed codec has only one encoding of each value, apart from the order of a map's keys.
    if C::ID == Fixed::ID && !core::any::type_name::<T>().contains("Map") {
        assert_eq!(first, bytes);
    }
}

fn encoded<C: Codec, T: Serialize>(value: &T) -> Vec<u8> {
    let mut buffer = Buffer::with_capacity(64).expect("memory");
    buffer.write_object_with::<C, _>(value).expect("memory");
    // The value follows the message header, the headers of the section and of the dynamic part, and the record header.
    buffer.commit().to_vec().split_off(3 * 16 + 8)
}

//! Other serializers. All except `bitcode, serde` encode into memory that they reuse.

use std::hint::black_box;

use rkyv::rancor;
use rkyv::util::AlignedVec;

use super::values::{Mesh, Record};
use super::{Kind, Serializer};
use crate::perf::Failure;

/// Defines a function that returns all serializers, prepared to encode and decode `value`.
macro_rules! all {
    ($name:ident, $type:ty) => {
        pub(super) fn $name(value: &$type) -> Result<Vec<Serializer<'_>>, Failure> {
            let fixed = bincode::config::legacy();
            let varint = bincode::config::standard();
            let room = || vec![0u8; bincode::encode_to_vec(value, fixed).map_or(0, |bytes| bytes.len())];
            let mut buffers = (room(), room(), room(), room());
            let serde = bincode::serde::encode_to_vec(value, fixed)?;
            let serde_varint = bincode::serde::encode_to_vec(value, varint)?;
            let derived = bincode::encode_to_vec(value, fixed)?;
            let bitcode_serde = bitcode::serialize(value)?;
            let mut bitcode = (bitcode::Buffer::new(), bitcode::Buffer::new());
            let bitcode_derived = bitcode::encode(value);
            let archive = rkyv::to_bytes::<rancor::Error>(value)?;
            let mut archived = AlignedVec::<16>::new();
            let wincode = wincode::serialize(value)?;
            Ok(vec![
                Serializer::new(
                    "bincode 2, serde",
                    Kind::Serde,
                    serde.len(),
                    move || {
                        bincode::serde::encode_into_slice(black_box(value), &mut buffers.0, fixed)
                            .ok()
                            .map(drop)
                    },
                    move || bincode::serde::decode_from_slice::<$type, _>(&serde, fixed).ok().map(used),
                ),
                Serializer::new(
                    "bincode 2, serde, varint",
                    Kind::Serde,
                    serde_varint.len(),
                    move || {
                        bincode::serde::encode_into_slice(black_box(value), &mut buffers.1, varint)
                            .ok()
                            .map(drop)
                    },
                    move || {
                        bincode::serde::decode_from_slice::<$type, _>(&serde_varint, varint).ok().map(used)
                    },
                ),
                Serializer::new(
                    "bitcode, serde",
                    Kind::Serde,
                    bitcode_serde.len(),
                    move || bitcode::serialize(black_box(value)).ok().map(used),
                    move || bitcode::deserialize::<$type>(&bitcode_serde).ok().map(used),
                ),
                Serializer::new(
                    "bincode 2",
                    Kind::Derive,
                    derived.len(),
                    move || {
                        bincode::encode_into_slice(black_box(value), &mut buffers.2, fixed).ok().map(drop)
                    },
                    move || bincode::decode_from_slice::<$type, _>(&derived, fixed).ok().map(used),
                ),
                Serializer::new(
                    "bitcode",
                    Kind::Derive,
                    bitcode_derived.len(),
                    move || {
                        used(bitcode.0.encode(black_box(value)));
                        Some(())
                    },
                    move || bitcode.1.decode::<$type>(&bitcode_derived).ok().map(used),
                ),
                Serializer::new(
                    "rkyv",
                    Kind::Derive,
                    archive.len(),
                    move || {
                        let mut to = std::mem::take(&mut archived);
                        to.clear();
                        archived =
                            rkyv::api::high::to_bytes_in::<_, rancor::Error>(black_box(value), to).ok()?;
                        Some(())
                    },
                    move || rkyv::from_bytes::<$type, rancor::Error>(&archive).ok().map(used),
                ),
                Serializer::new(
                    "wincode",
                    Kind::Derive,
                    wincode.len(),
                    move || wincode::serialize_into(&mut buffers.3[..], black_box(value)).ok(),
                    move || wincode::deserialize::<$type>(&wincode).ok().map(used),
                ),
            ])
        }
    };
}

all!(of_numbers, Vec<f64>);
all!(of_mesh, Mesh);
all!(of_records, Vec<Record>);

fn used<T>(value: T) {
    drop(black_box(value));
}

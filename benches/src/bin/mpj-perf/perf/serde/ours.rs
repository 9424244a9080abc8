//! The codecs of this project, which encode into pool blocks and decode from an arrived message.

use std::hint::black_box;

use mpj_buffer::pool::{DefaultBlock, Pool, RawBuffer, global};
use mpj_buffer::{Buffer, Codec, Fixed, Postcard, Raw, RawVec, Reading, Writing};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Kind, Serializer};
use crate::perf::Failure;

const STATIC_BYTES: usize = 256;

pub(super) fn all<T: Serialize + DeserializeOwned + PartialEq + 'static>(
    value: &T,
) -> Result<Vec<Serializer<'_>>, Failure> {
    Ok(vec![
        serializer::<Fixed, T, T, T>("fixed", value, value, |back| back)?,
        serializer::<Postcard, T, T, T>("postcard", value, value, |back| back)?,
    ])
}

/// Returns the fixed codec with numbers that are marked as plain memory.
pub(super) fn raw<'a>(numbers: &'a Vec<f64>, marked: &'a Raw<'a, f64>) -> Result<Serializer<'a>, Failure> {
    serializer::<Fixed, Raw<'a, f64>, RawVec<f64>, Vec<f64>>("fixed, Raw", marked, numbers, |RawVec(back)| {
        back
    })
}

fn serializer<'a, C: Codec, T: Serialize, B: DeserializeOwned, V: PartialEq>(
    name: &'static str,
    value: &'a T,
    expected: &V,
    plain: impl Fn(B) -> V,
) -> Result<Serializer<'a>, Failure> {
    let sent = write::<C, T>(Buffer::with_capacity(STATIC_BYTES)?, value)?.commit();
    let bytes = sent.len();
    let mut arrived =
        Buffer::from_bytes(global().alloc(bytes)?, &sent.to_vec()).map_err(|error| error.error)?;
    if plain(arrived.read_object_with::<C, B>()?) != *expected {
        return Err(format!("{name} reads another value").into());
    }
    let mut buffer = Some(sent.clear());
    let encode = move || {
        let written = write::<C, T>(buffer.take()?, black_box(value)).ok()?;
        buffer = Some(written.commit().clear());
        Some(())
    };
    let decode = move || {
        arrived.rewind();
        read::<C, B, _>(&mut arrived)
    };
    Ok(Serializer { name, kind: Kind::Ours, bytes, encode: Box::new(encode), decode: Box::new(decode) })
}

fn write<C: Codec, T: Serialize>(
    mut buffer: Buffer<DefaultBlock, Writing>,
    value: &T,
) -> Result<Buffer<DefaultBlock, Writing>, mpj_buffer::WriteError> {
    buffer.write_object_with::<C, T>(value)?;
    Ok(buffer)
}

fn read<C: Codec, B: DeserializeOwned, R: RawBuffer>(buffer: &mut Buffer<R, Reading>) -> Option<()> {
    black_box(buffer.read_object_with::<C, B>().ok()?);
    Some(())
}

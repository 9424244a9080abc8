//! The fast codec: every number has its full width.
//!
//! ```text
//! bool u8: 0 or 1          string, bytes  length u64, bytes        seq  length u64, elements
//! i8…i128, u8…u128         option         u8: 0, or 1 and value    map  length u64, then key, value, key, value…
//! f32, f64: IEEE 754       char           UTF-8, 1 to 4 bytes      enum index u32, then its fields
//! unit, unit struct: no bytes             struct, tuple, newtype: the fields in order
//! ```
//! All in little endian, whatever the byte order of the message. These are the bytes of bincode's fixed-width form (the
//! default of bincode 1, `legacy` in bincode 2).

mod access;
mod de;
mod ser;

use serde::{Deserialize, Serialize};

use super::{Codec, RecordWriter};
use crate::CodecError;

/// Fixed-width little-endian values without names: larger and several times faster than [`Postcard`](super::Postcard).
///
/// # Examples
/// ```
/// use mpj_buffer::{Buffer, Fixed};
///
/// let mesh = vec![vec![1.0f64, 2.0], vec![], vec![3.0]];
/// let mut buffer = Buffer::with_capacity(256)?;
/// buffer.write_object_with::<Fixed, _>(&mesh)?;
/// assert_eq!(buffer.commit().read_object_with::<Fixed, Vec<Vec<f64>>>()?, mesh);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fixed;

impl Codec for Fixed {
    const ID: u8 = 2;

    fn encode<T: Serialize + ?Sized>(value: &T, out: &mut RecordWriter<'_>) -> Result<(), CodecError> {
        value.serialize(ser::Writer::new(out))
    }

    fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, CodecError> {
        let mut reader = de::Reader::new(bytes);
        let value = T::deserialize(&mut reader)?;
        match reader.remaining() {
            0 => Ok(value),
            left => Err(CodecError::Trailing { left }),
        }
    }
}

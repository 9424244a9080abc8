//! The default codec: compact, the same bytes on every machine, specified at <https://postcard.jamesmunns.com>.

use postcard::Error;
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

use super::guard::LimitGuard;
use super::limits::Limits;
use super::{Codec, RecordWriter};
use crate::CodecError;

/// Variable-length integers, no field names: both sides must agree on the type.
#[derive(Clone, Copy, Debug)]
pub struct Postcard;

impl Codec for Postcard {
    const ID: u8 = 1;

    fn encode<T: Serialize + ?Sized>(value: &T, out: &mut RecordWriter<'_>) -> Result<(), CodecError> {
        postcard::serialize_with_flavor(value, RecordFlavor(out)).map_err(from_postcard)
    }

    fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, CodecError> {
        let limits = Limits::new(bytes.len());
        let mut reader = postcard::Deserializer::from_bytes(bytes);
        let value = T::deserialize(LimitGuard::new(&mut reader, &limits))
            .map_err(|error| limits.failure().unwrap_or(from_postcard(error)))?;
        match reader.finalize().map_err(from_postcard)? {
            [] => Ok(value),
            rest => Err(CodecError::Trailing { left: rest.len() }),
        }
    }
}

struct RecordFlavor<'a, 'b>(&'a mut RecordWriter<'b>);

impl Flavor for RecordFlavor<'_, '_> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.push(data).map_err(|_| Error::SerializeBufferFull)
    }

    #[inline]
    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push_array([data]).map_err(|_| Error::SerializeBufferFull)
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

fn from_postcard(error: Error) -> CodecError {
    match error {
        Error::SerializeBufferFull => CodecError::NoMemory,
        Error::SerdeSerCustom | Error::SerdeDeCustom | Error::CollectStrError => CodecError::Custom,
        Error::DeserializeUnexpectedEnd => CodecError::Truncated,
        Error::WontImplement | Error::NotYetImplemented | Error::SerializeSeqLengthUnknown => {
            CodecError::Unsupported
        }
        _ => CodecError::Malformed,
    }
}

//! Messages of serde values, each in the dynamic section of a [`Buffer`].

use std::any::type_name;
use std::fmt;

use mpj_buffer::{Buffer, CodecError, Reading, WriteError};
use mpj_collectives::Operation;
use mpj_devices::Mode;
use mpj_pool::DefaultBlock;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Communicator, Intracomm, buffer_collectives, buffer_p2p};
use crate::address::{IntoDest, IntoSource, Tag};
use crate::error::{Error, ErrorClass, Result};
use crate::raw;
use crate::status::Status;
use crate::types::SendBuf;

/// The capacity in bytes of the static part of an object's message, which holds only headers.
const HEADER_CAPACITY: usize = 256;

impl<K> Communicator<K> {
    /// Sends a serde value (mpiJava's `MPI.OBJECT`).
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// let table = std::collections::BTreeMap::from([("alpha".to_string(), vec![1u8, 2]), ("beta".to_string(), vec![])]);
    /// if world.rank() == 0 {
    ///     world.send_object(&table, 1, 0)?;
    /// } else {
    ///     let (got, _status) = world.recv_object(0, 0)?;
    ///     assert_eq!(table, got);
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send); [`ErrorClass::Buffer`] if the value cannot be serialized; [`ErrorClass::NoMem`] if
    /// the pool has no block for the message.
    pub fn send_object<T: Serialize + ?Sized>(&self, value: &T, dest: impl IntoDest, tag: i32) -> Result<()> {
        const CALL: &str = "send_object";
        let message = encode(CALL, value).map_err(|error| self.as_raw().named(error))?;
        // SAFETY: the message is ours until the call returns.
        unsafe {
            raw::send_as(
                self.as_raw(),
                CALL,
                message.send_buf(),
                dest.into_dest().number(),
                tag,
                Mode::Standard,
            )
        }
    }

    /// Receives a value.
    ///
    /// # Errors
    /// As [`recv_buffer`](Self::recv_buffer); [`ErrorClass::Buffer`] if the message is not a value of this type. The
    /// source [`PROC_NULL`](crate::PROC_NULL) is rejected, because there would be no value to return.
    pub fn recv_object<T: DeserializeOwned>(
        &self,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<(T, Status)> {
        const CALL: &str = "recv_object";
        let (source, tag) = (source.into_source().number(), tag.into().number());
        let (mut message, status) = buffer_p2p::recv(self.as_raw(), CALL, source, tag)?;
        let invalid = |e| self.as_raw().named(decode_error::<T>(CALL, status.source_rank(), &e));
        Ok((message.read_object().map_err(invalid)?, status))
    }
}

impl Intracomm {
    /// Broadcasts the value of `root`; the values of other ranks are ignored.
    ///
    /// # Errors
    /// As [`bcast_buffer`](Self::bcast_buffer); [`ErrorClass::Buffer`] on all ranks if the value cannot be serialized,
    /// and on this rank alone if the message is not a value of this type.
    pub fn bcast_object<T: Serialize + DeserializeOwned>(&self, value: T, root: usize) -> Result<T> {
        const CALL: &str = "bcast_object";
        let mine = || encode(CALL, &value);
        match buffer_collectives::bcast(self.as_raw(), CALL, Operation::BcastObject, root, mine)? {
            Some(mut message) => {
                message.read_object().map_err(|e| self.as_raw().named(decode_error::<T>(CALL, root, &e)))
            }
            None => Ok(value),
        }
    }
}

fn buffer_error(call: &'static str, error: impl fmt::Display) -> Error {
    Error::new(ErrorClass::Buffer, call, error.to_string())
}

pub(super) fn decode_error<T>(call: &'static str, rank: usize, why: &dyn fmt::Display) -> Error {
    buffer_error(call, format!("cannot decode a {} from the message of rank {rank}: {why}", type_name::<T>()))
}

pub(super) fn encode<T: Serialize + ?Sized>(
    call: &'static str,
    value: &T,
) -> Result<Buffer<DefaultBlock, Reading>> {
    let mut message = Buffer::with_capacity(HEADER_CAPACITY)
        .map_err(|e| Error::new(ErrorClass::NoMem, call, e.to_string()))?;
    message.write_object(value).map_err(|e| write_error(call, e))?;
    Ok(message.commit())
}

fn write_error(call: &'static str, error: WriteError) -> Error {
    match error {
        WriteError::Alloc(_) | WriteError::Codec(CodecError::NoMemory) => {
            Error::new(ErrorClass::NoMem, call, error.to_string())
        }
        _ => buffer_error(call, error),
    }
}

#[cfg(test)]
mod tests {
    use mpj_pool::{Buddy, Growth, Heap, Pool};

    use super::*;

    #[test]
    fn write_errors_have_the_class_of_their_cause() {
        let none = Buddy::growing(Growth::default().limit(0), Heap::create).alloc(1).unwrap_err();
        for error in [WriteError::Alloc(none), WriteError::Codec(CodecError::NoMemory)] {
            assert_eq!(write_error("send_object", error).class(), ErrorClass::NoMem);
        }
        let unsupported = WriteError::Codec(CodecError::Unsupported);
        assert_eq!(write_error("send_object", unsupported).class(), ErrorClass::Buffer);
    }
}

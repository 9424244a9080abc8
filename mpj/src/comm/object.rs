//! Values of any serde type as messages: the dynamic part of a [`Buffer`].

use mpj_buffer::Buffer;
use mpj_datatypes::Primitive;
use mpj_devices::{Mode, Shape};
use mpj_pool::{DefaultBlock, Pool, RawBuffer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Intracomm;
use crate::endpoint::{Dest, Source, Tag, number};
use crate::error::{Class, Error, Result};
use crate::raw::{self, Items};
use crate::status::Status;

/// The static part of an object's message: its headers.
const STATIC: usize = 256;

impl Intracomm {
    /// Sends a value (mpiJava's `MPI.OBJECT`).
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
    /// As [`send`](Self::send); [`Class::Buffer`] if the value cannot be serialized.
    pub fn send_object<T: Serialize + ?Sized>(
        &self,
        value: &T,
        dest: impl Into<Dest>,
        tag: i32,
    ) -> Result<()> {
        let bytes = encode("send_object", value)?;
        let shape = Shape::Flat(Primitive::Packed);
        let dest = dest.into().number();
        // SAFETY: the bytes are ours until the call returns.
        unsafe {
            raw::send_shape(
                self.as_raw(),
                "send_object",
                bytes.as_ptr(),
                bytes.len(),
                shape,
                dest,
                tag,
                Mode::Standard,
            )
        }
    }

    /// Receives a value.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`Class::Buffer`] if the message is not such a value.
    pub fn recv_object<T: DeserializeOwned>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<(T, Status)> {
        const CALL: &str = "recv_object";
        let message = raw::mprobe(self.as_raw(), source.into().number(), tag.into().number())?;
        let bytes = message.envelope().bytes;
        let block = room(CALL, bytes)?;
        let packed = mpj_datatypes::Datatype::primitive(Primitive::Packed);
        // SAFETY: the block is ours, holds `bytes` bytes, and is touched by nobody else until the call returns.
        let status = unsafe { raw::mrecv(self.as_raw(), block.as_ptr().as_ptr(), bytes, &packed, message)? };
        // SAFETY: the receive has filled the first `bytes` bytes of the block.
        let buffer = unsafe { Buffer::from_block(block, 0, status.bytes()) };
        let mut buffer = buffer.map_err(|e| malformed(CALL, e.error))?;
        Ok((buffer.read_object().map_err(|e| malformed(CALL, e))?, status))
    }

    /// Gives every rank the value of `root`; the others' value is not looked at.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast) and [`recv_object`](Self::recv_object).
    pub fn bcast_object<T: Serialize + DeserializeOwned>(&self, value: T, root: usize) -> Result<T> {
        const CALL: &str = "bcast_object";
        let is_root = self.rank() == root;
        let sent = if is_root { encode(CALL, &value)? } else { Vec::new() };
        let mut len = [sent.len()];
        self.bcast(&mut len, root)?;
        let [len] = len;
        let shape = Shape::Flat(Primitive::Packed);
        if is_root {
            let items = Items { base: sent.as_ptr().cast_mut(), count: len, shape };
            // SAFETY: the root only reads, and `sent` lives until the call returns.
            unsafe { raw::bcast(self.as_raw(), &items, number(root))? };
            return Ok(value);
        }
        let block = room(CALL, len)?;
        let items = Items { base: block.as_ptr().as_ptr(), count: len, shape };
        // SAFETY: the block is ours, holds `len` bytes, and is touched by nobody else until the call returns.
        unsafe { raw::bcast(self.as_raw(), &items, number(root))? };
        // SAFETY: the broadcast has filled the first `len` bytes of the block.
        let buffer = unsafe { Buffer::from_block(block, 0, len) };
        let mut buffer = buffer.map_err(|e| malformed(CALL, e.error))?;
        buffer.read_object().map_err(|e| malformed(CALL, e))
    }
}

fn malformed(call: &'static str, error: impl std::fmt::Display) -> Error {
    Error::new(Class::Buffer, call, error.to_string())
}

fn room(call: &'static str, bytes: usize) -> Result<DefaultBlock> {
    mpj_pool::global().alloc(bytes).map_err(|e| Error::new(Class::NoMem, call, e.to_string()))
}

/// Returns the value as one message of a [`Buffer`].
fn encode<T: Serialize + ?Sized>(call: &'static str, value: &T) -> Result<Vec<u8>> {
    let mut buffer = Buffer::new(room(call, STATIC)?).map_err(|e| malformed(call, e.error))?;
    buffer.write_object(value).map_err(|e| malformed(call, e))?;
    Ok(buffer.commit().to_vec())
}

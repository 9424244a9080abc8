//! Values of any serde type as messages: the dynamic part of a [`Buffer`].

use std::any::type_name;
use std::fmt;

use mpj_buffer::Buffer;
use mpj_datatypes::Primitive;
use mpj_devices::Mode;
use mpj_pool::{DefaultBlock, Pool};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Intracomm;
use crate::collective::label::{Label, Operation};
use crate::collective::turn::collective;
use crate::endpoint::{Dest, Source, Tag, number};
use crate::error::{Class, Error, Result};
use crate::raw::{self, Buf};
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
        let buf = Buf::read_only(bytes.as_ptr(), bytes.len(), Primitive::Packed);
        // SAFETY: the bytes are ours until the call returns.
        unsafe { raw::send(self.as_raw(), buf, dest.into().number(), tag, Mode::Standard) }
            .map_err(|error| error.within("send_object"))
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
        let comm = self.as_raw();
        let message = raw::mprobe_as(comm, CALL, source.into().number(), tag.into().number())?;
        let bytes = message.envelope().bytes;
        let block = match room(CALL, bytes) {
            Ok(block) => block,
            // Its sender may be waiting to hear of it.
            Err(error) => {
                raw::discard(comm, message);
                return Err(error);
            }
        };
        let buf = Buf::in_block(&block, 0, bytes, Primitive::Packed);
        // SAFETY: the block is ours, holds `bytes` bytes, and is touched by nobody else until the call returns.
        let status = unsafe { raw::mrecv(comm, buf, message) }.map_err(|error| error.within(CALL))?;
        // SAFETY: the receive has filled the first `status.bytes()` bytes of the block.
        let buffer = unsafe { Buffer::from_block(block, 0, status.bytes()) };
        let other = |why: &dyn fmt::Display| {
            let (tag, what) = (status.tag(), type_name::<T>());
            malformed(CALL, format!("what rank {} sent with tag {tag} is no {what}: {why}", status.rank()))
        };
        let mut buffer = buffer.map_err(|e| other(&e.error))?;
        Ok((buffer.read_object().map_err(|e| other(&e))?, status))
    }

    /// Gives every rank the value of `root`; the others' value is not looked at.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast) and [`recv_object`](Self::recv_object). A value that cannot be serialized is an error on
    /// all ranks; one that cannot be made of what came, on that rank alone.
    pub fn bcast_object<T: Serialize + DeserializeOwned>(&self, value: T, root: usize) -> Result<T> {
        const CALL: &str = "bcast_object";
        let got = collective(self.as_raw(), CALL, |turn| {
            let root = turn.comm().member(CALL, Class::Root, number(root))?;
            let label = Label::new(Operation::BcastObject, root as usize);
            let is_root = turn.comm().rank() == root;
            let sent = if is_root { encode(CALL, &value)? } else { Vec::new() };
            let mut len = [sent.len() as u64];
            turn.bcast_words(label, &mut len, root)?;
            let len = usize::try_from(len[0]).map_err(|_| raw::too_large(CALL, usize::MAX))?;
            if is_root {
                let items = Buf::read_only(sent.as_ptr(), len, Primitive::Packed);
                // SAFETY: the root only reads, and `sent` lives until the call returns.
                unsafe { turn.bcast(label, &items, root)? };
                return Ok(None);
            }
            let block = room(CALL, len)?;
            let items = Buf::in_block(&block, 0, len, Primitive::Packed);
            // SAFETY: the block is ours, holds `len` bytes, and is touched by nobody else until the call returns.
            unsafe { turn.bcast(label, &items, root)? };
            Ok(Some((block, len)))
        })?;
        let Some((block, len)) = got else { return Ok(value) };
        // SAFETY: the broadcast has filled the first `len` bytes of the block: a message of another length is an error.
        let buffer = unsafe { Buffer::from_block(block, 0, len) };
        let other = |why: &dyn fmt::Display| {
            malformed(CALL, format!("what rank {root} sent is no {}: {why}", type_name::<T>()))
        };
        let mut buffer = buffer.map_err(|e| other(&e.error))?;
        buffer.read_object().map_err(|e| other(&e))
    }
}

fn malformed(call: &'static str, error: impl fmt::Display) -> Error {
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

//! Non-blocking messages of serde values.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use mpj_buffer::{Buffer, Reading};
use mpj_devices::{BlockSlot, Mode};
use mpj_pool::DefaultBlock;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Communicator;
use super::buffer_p2p::parse;
use super::object::{decode_error, encode};
use crate::address::{IntoDest, IntoSource, Tag};
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{self, KeepAlive};
use crate::request::{OwnedCell, Request, RequestRef, Waitable};
use crate::status::Status;

const RECV: &str = "irecv_object";

impl<K> Communicator<K> {
    /// Serializes a value, and starts to send it. The value can be changed when the call has returned. Receive it with
    /// [`recv_object`](Self::recv_object) or [`irecv_object`](Self::irecv_object).
    ///
    /// # Errors
    /// As [`send_object`](Self::send_object).
    pub fn isend_object<T: Serialize + ?Sized>(
        &self,
        value: &T,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<Request<()>> {
        const CALL: &str = "isend_object";
        let cell = OwnedCell::shared(encode(CALL, value).map_err(|error| self.as_raw().named(error))?);
        let (buf, dest) = (cell.send_buf(), dest.into_dest().number());
        let keep: KeepAlive = cell;
        // SAFETY: the operation keeps the message, which nobody writes to.
        let raw = unsafe { raw::isend_as(self.as_raw(), CALL, buf, dest, tag, Mode::Standard, Some(keep))? };
        Ok(Request::new(raw, OwnedCell::shared(()), false))
    }

    /// Starts to receive a value of any length.
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// let other = 1 - world.rank();
    /// let mine = vec![format!("rank {}", world.rank()); 3];
    /// let receiving = world.irecv_object::<Vec<String>>(other, 0)?;
    /// let sending = world.isend_object(&mine, other, 0)?;
    /// let (theirs, _status) = receiving.wait()?;
    /// assert_eq!(theirs[2], format!("rank {other}"));
    /// sending.wait()?;
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv). The source [`PROC_NULL`](crate::PROC_NULL) is rejected, because there would be no value
    /// to return.
    pub fn irecv_object<T: DeserializeOwned>(
        &self,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<ObjectRequest<T>> {
        let (source, tag) = (source.into_source().number(), tag.into().number());
        let (raw, slot) = raw::irecv_any_length(self.as_raw(), RECV, source, tag)?;
        let request = Request::new(raw, OwnedCell::shared(()), true);
        Ok(ObjectRequest { request, slot, comm: self.as_raw().clone(), value: PhantomData })
    }
}

/// A pending receive of a value: see [`Communicator::irecv_object`]. Dropping it cancels the receive if it has not matched.
#[must_use = "wait for the request, or drop it explicitly"]
pub struct ObjectRequest<T> {
    request: Request<()>,
    slot: Arc<BlockSlot>,
    /// For its name in errors.
    comm: raw::Comm,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> ObjectRequest<T> {
    /// Waits for the message, and returns the value.
    ///
    /// # Errors
    /// The error of the receive; [`ErrorClass::Buffer`] if the message is not a value of this type.
    pub fn wait(self) -> Result<(T, Status)> {
        let ((), status) = self.request.wait().map_err(Error::from)?;
        decode(self.slot, status).map_err(|error| self.comm.named(error))
    }

    /// Makes progress once if the receive is pending; returns the value if its message has arrived (MPI_Test).
    ///
    /// # Errors
    /// As [`wait`](Self::wait). [`ErrorClass::Request`] if an earlier call has returned the outcome.
    pub fn test(&mut self) -> Option<Result<(T, Status)>> {
        let outcome = self.request.test()?.map_err(Error::from);
        let value = outcome.and_then(|((), status)| decode(std::mem::take(&mut self.slot), status));
        Some(value.map_err(|error| self.comm.named(error)))
    }

    /// Waits as [`wait`](Self::wait) does, but at most for `limit`. If it returns `None`, the receive is still pending.
    ///
    /// # Errors
    /// As [`test`](Self::test).
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Result<(T, Status)>> {
        Waitable::wait_timeout(self, limit)
    }

    /// Cancels the receive if it has not matched, and returns whether it was cancelled. Waiting for it then fails with
    /// [`ErrorClass::Request`].
    pub fn cancel(&self) -> bool {
        self.request.cancel()
    }
}

impl<T: DeserializeOwned> Waitable for ObjectRequest<T> {
    type Outcome = Result<(T, Status)>;

    fn wait(self) -> Self::Outcome {
        ObjectRequest::wait(self)
    }

    fn test(&mut self) -> Option<Self::Outcome> {
        ObjectRequest::test(self)
    }

    fn request_ref(&self) -> RequestRef<'_> {
        self.request.request_ref()
    }
}

impl<T> fmt::Debug for ObjectRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectRequest").field(&self.request).finish()
    }
}

fn decode<T: DeserializeOwned>(slot: Arc<BlockSlot>, status: Status) -> Result<(T, Status)> {
    let from = status.source_rank();
    // The operation dropped its reference before it reported completion.
    let Some(block) = Arc::into_inner(slot).and_then(BlockSlot::into_block) else {
        return Err(Error::new(ErrorClass::Buffer, RECV, format!("the message of rank {from} is empty")));
    };
    // SAFETY: the receive has filled the first bytes of the block.
    let parsed = unsafe { parse(RECV, block, from as u32, status.bytes()) };
    let mut message: Buffer<DefaultBlock, Reading> = parsed?;
    let value = message.read_object().map_err(|error| decode_error::<T>(RECV, from, &error))?;
    Ok((value, status))
}

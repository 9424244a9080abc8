//! Receives of messages of unknown length into a new `Vec`.

use std::mem::MaybeUninit;

use mpj_datatypes::Receivable;
use mpj_devices::MatchedMessage;

use super::{Communicator, Message};
use crate::address::{IntoSource, Source, Tag};
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{self, Buf};
use crate::status::Status;

const CALL: &str = "recv_vec";

impl<K> Communicator<K> {
    /// Receives a message of any length into a new `Vec`.
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// if world.rank() == 0 {
    ///     world.send(&[1.5, 2.5, 3.5], 1, 0)?;
    /// } else {
    ///     let (numbers, status) = world.recv_vec::<f64>(mpj::ANY_SOURCE, 0)?;
    ///     assert_eq!((numbers, status.source_rank()), (vec![1.5, 2.5, 3.5], 0));
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but the `Vec` is never too short; [`ErrorClass::Type`] if the message does not consist
    /// of whole `T`s; [`ErrorClass::NoMem`] if memory is exhausted. Both errors consume the message: its send
    /// completes.
    pub fn recv_vec<T: Receivable>(
        &self,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<(Vec<T>, Status)> {
        let (comm, source) = (self.as_raw(), source.into_source());
        if source == Source::Null {
            return comm.check_not_freed(CALL).map(|()| (Vec::new(), Status::empty()));
        }
        receive(comm, raw::mprobe_as(comm, CALL, source.number(), tag.into().number())?)
    }
}

impl Message {
    /// Receives the message as [`Communicator::recv_vec`] does, with the same errors.
    pub fn recv_vec<T: Receivable>(self) -> Result<(Vec<T>, Status)> {
        let (comm, message) = self.into_parts(CALL)?;
        receive(&comm, message)
    }
}

fn receive<T: Receivable>(comm: &raw::Comm, message: MatchedMessage) -> Result<(Vec<T>, Status)> {
    let datatype = T::datatype();
    let mut items = match allocate(&message, &datatype) {
        Ok(items) => items,
        // The sender might wait for the match.
        Err(error) => {
            raw::mdiscard(message);
            return Err(comm.named(error));
        }
    };
    let room: &mut [MaybeUninit<T>] = items.spare_capacity_mut();
    let count = message.envelope().bytes.checked_div(datatype.size()).unwrap_or(0);
    let buf = Buf::new(room.as_mut_ptr().cast(), count, datatype);
    // SAFETY: the capacity of the `Vec`, which is ours, is at least `count` items.
    let status = unsafe { raw::mrecv(comm, buf, message) }.map_err(|error| error.with_call(CALL))?;
    // SAFETY: the message consists of `count` items, and the bytes that a `Receivable` receives make a valid value.
    unsafe { items.set_len(count) };
    Ok((items, status))
}

/// Allocates space for the items of a message.
fn allocate<T: Receivable>(message: &MatchedMessage, datatype: &mpj_datatypes::Datatype) -> Result<Vec<T>> {
    let envelope = message.envelope();
    let count = envelope.items_of(datatype).map_err(|fault| Error::from_fault(CALL, fault))?;
    let mut items = Vec::new();
    items.try_reserve_exact(count).map_err(|error| {
        let why = format!("no memory for the {} bytes of rank {}: {error}", envelope.bytes, envelope.source);
        Error::new(ErrorClass::NoMem, CALL, why)
    })?;
    Ok(items)
}

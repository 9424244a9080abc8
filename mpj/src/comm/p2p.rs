//! Messages from rank to rank, typed.

use std::sync::Arc;

use mpj_devices::{MatchedMessage, Mode};

use super::Intracomm;
use crate::address::{Dest, IntoDest, IntoSource, Tag};
use crate::error::{Error, ErrorClass, Result};
use crate::raw;
use crate::request::{OwnedCell, Request, Scope};
use crate::status::Status;
use crate::types::{RecvBuf, SendBuf};

impl Intracomm {
    /// Sends a buffer and returns when it can be used again (MPI_Send).
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// if world.rank() == 0 {
    ///     world.send(&[1.5, 2.5], 1, 42)?;
    /// } else {
    ///     let mut got = [0.0; 8];
    ///     let status = world.recv(&mut got, mpj::ANY_SOURCE, mpj::ANY_TAG)?;
    ///     assert_eq!((status.source_rank(), status.tag(), status.bytes()), (0, 42, 16));
    ///     assert_eq!(got[..2], [1.5, 2.5]);
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// A rank outside the communicator, a negative tag, a freed communicator, a dead or departed rank.
    #[inline]
    pub fn send<B: SendBuf + ?Sized>(&self, buf: &B, dest: impl IntoDest, tag: i32) -> Result<()> {
        // SAFETY: `buf` is borrowed until we return, and `SendBuf` vouches for what it describes.
        unsafe { raw::send(self.as_raw(), buf.send_buf(), dest.into_dest().number(), tag, Mode::Standard) }
    }

    /// Sends a buffer and returns when the message has been matched (MPI_Ssend).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn ssend<B: SendBuf + ?Sized>(&self, buf: &B, dest: impl IntoDest, tag: i32) -> Result<()> {
        // SAFETY: as in `send`.
        unsafe { raw::send(self.as_raw(), buf.send_buf(), dest.into_dest().number(), tag, Mode::Synchronous) }
    }

    /// Receives a message into a buffer that is long enough for it (MPI_Recv).
    ///
    /// A receive from any source depends on the other ranks: it fails when all of them have exited, even though this
    /// rank could still send to itself.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`ErrorClass::Truncate`](crate::ErrorClass::Truncate) if the message is longer than the
    /// buffer and [`ErrorClass::Type`](crate::ErrorClass::Type) if it is made of other elements; then nothing was
    /// written.
    #[inline]
    pub fn recv<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        let (source, tag) = (source.into_source().number(), tag.into().number());
        // SAFETY: `buf` is borrowed mutably until we return, and `RecvBuf` vouches for what it describes.
        unsafe { raw::recv(self.as_raw(), buf.recv_buf(), source, tag) }
    }

    /// Sends and receives at once, so that ranks can exchange without an order between them (MPI_Sendrecv).
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`recv`](Self::recv).
    pub fn sendrecv<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        send: &S,
        dest: impl IntoDest,
        send_tag: i32,
        recv: &mut R,
        source: impl IntoSource,
        recv_tag: impl Into<Tag>,
    ) -> Result<Status> {
        let (send, recv) = (send.send_buf(), recv.recv_buf());
        let (dest, source, recv_tag) =
            (dest.into_dest().number(), source.into_source().number(), recv_tag.into().number());
        // SAFETY: both buffers are borrowed until we return, one of them mutably: they do not overlap.
        unsafe { raw::sendrecv(self.as_raw(), send, dest, send_tag, recv, source, recv_tag) }
    }

    /// Starts a send of a buffer that the operation owns until it is complete; borrowed buffers go in a
    /// [`scope`](Self::scope) (MPI_Isend).
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// let other = 1 - world.rank();
    /// let sending = world.isend(vec![world.rank() as u64; 100_000], other, 0)?;
    /// let receiving = world.irecv(vec![0u64; 100_000], other, 0)?;
    /// let (got, _status) = receiving.wait()?;
    /// assert!(got.iter().all(|x| *x == other as u64));
    /// let (_buffer, _) = sending.wait()?; // and the buffer is ours again
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn isend<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<Request<B>> {
        self.isend_as(buf, dest.into_dest(), tag, Mode::Standard)
    }

    /// Starts a send that completes when the message has been matched (MPI_Issend).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn issend<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<Request<B>> {
        self.isend_as(buf, dest.into_dest(), tag, Mode::Synchronous)
    }

    fn isend_as<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: Dest,
        tag: i32,
        mode: Mode,
    ) -> Result<Request<B>> {
        let cell = Arc::new(OwnedCell::new(buf));
        let buf = cell.send_buf();
        let keep: raw::KeepAlive = cell.clone();
        // SAFETY: the operation keeps the cell, in which the buffer neither moves nor is accessed until the operation
        // is complete.
        let raw = unsafe { raw::isend(self.as_raw(), buf, dest.number(), tag, mode, Some(keep))? };
        Ok(Request::new(raw, cell, false))
    }

    /// Starts a receive into a buffer that the operation owns until it is complete; borrowed buffers go in a
    /// [`scope`](Self::scope) (MPI_Irecv). Dropping the request
    /// before a message has matched takes the receive back.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn irecv<B: RecvBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<Request<B>> {
        let cell = Arc::new(OwnedCell::new(buf));
        let buf = cell.recv_buf();
        let keep: raw::KeepAlive = cell.clone();
        let (source, tag) = (source.into_source().number(), tag.into().number());
        // SAFETY: as in `isend_as`, and no other code reads or writes the buffer.
        let raw = unsafe { raw::irecv(self.as_raw(), buf, source, tag, Some(keep))? };
        Ok(Request::new(raw, cell, true))
    }

    /// Opens a scope in which operations can borrow buffers; every operation is complete when it returns.
    ///
    /// Returns the result of the closure. If the closure ends in `Ok(())`, name its error type (E0283), as here:
    /// ```
    /// # mpj::threads(2, |world| {
    /// let other = 1 - world.rank();
    /// let (mine, mut theirs) = ([world.rank() as i32; 4], [0i32; 4]);
    /// world.scope(|s| {
    ///     let receiving = s.irecv(&mut theirs, other, 0)?;
    ///     s.isend(&mine, other, 0)?;
    ///     let (got, _status) = receiving.wait()?; // gives the borrow back
    ///     assert_eq!(got[0], other as i32);
    ///     Ok::<(), mpj::Error>(())
    /// })?;
    /// assert_eq!(theirs, [other as i32; 4]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// A buffer cannot be touched while an operation holds it, also when the request is forgotten:
    /// ```compile_fail,E0503
    /// # fn f(world: &mpj::Intracomm) -> Result<(), mpj::Error> {
    /// let mut buf = [0i32; 4];
    /// world.scope(|s| {
    ///     std::mem::forget(s.irecv(&mut buf, 0, 0)?);
    ///     buf[0] = 1;
    ///     Ok::<(), mpj::Error>(())
    /// })
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the closure panics, with its panic, after every operation is complete.
    pub fn scope<'env, F, R>(&'env self, f: F) -> R
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    {
        Scope::enter(self, f)
    }

    /// Waits for a message and returns the status that a receive would return, without receiving it (MPI_Probe).
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn probe(&self, source: impl IntoSource, tag: impl Into<Tag>) -> Result<Status> {
        raw::probe(self.as_raw(), source.into_source().number(), tag.into().number())
    }

    /// Looks for such a message once (MPI_Iprobe).
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn iprobe(&self, source: impl IntoSource, tag: impl Into<Tag>) -> Result<Option<Status>> {
        raw::iprobe(self.as_raw(), source.into_source().number(), tag.into().number())
    }

    /// Waits for a message and removes it from matching, so that no other receive gets it (MPI_Mprobe).
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// if world.rank() == 0 {
    ///     world.send(&[1u16, 2, 3], 1, 0)?;
    /// } else {
    ///     let message = world.mprobe(0, mpj::ANY_TAG)?;
    ///     let mut exactly = vec![0u16; message.status().bytes() / 2];
    ///     message.recv(&mut exactly)?;
    ///     assert_eq!(exactly, [1, 2, 3]);
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv); a source of [`PROC_NULL`](crate::PROC_NULL) is rejected.
    pub fn mprobe(&self, source: impl IntoSource, tag: impl Into<Tag>) -> Result<Message> {
        let message = raw::mprobe(self.as_raw(), source.into_source().number(), tag.into().number())?;
        Ok(Message { comm: self.clone(), message: Some(message) })
    }

    /// Looks for such a message once and takes it (MPI_Improbe).
    ///
    /// # Errors
    /// As [`mprobe`](Self::mprobe).
    pub fn improbe(&self, source: impl IntoSource, tag: impl Into<Tag>) -> Result<Option<Message>> {
        let message = raw::improbe(self.as_raw(), source.into_source().number(), tag.into().number())?;
        Ok(message.map(|message| Message { comm: self.clone(), message: Some(message) }))
    }
}

/// A message that only its holder can receive: see [`Intracomm::mprobe`].
#[derive(Debug)]
#[must_use = "a message that was taken is lost if it is not received"]
pub struct Message {
    comm: Intracomm,
    /// Until it is received.
    message: Option<MatchedMessage>,
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            raw::discard(self.comm.as_raw(), message);
        }
    }
}

impl Message {
    /// Gives out what it is made of.
    pub(super) fn into_parts(mut self, call: &'static str) -> Result<(Intracomm, MatchedMessage)> {
        // It has its message as long as it lives.
        let spent = || Error::new(ErrorClass::Intern, call, "the message has been received");
        Ok((self.comm.clone(), self.message.take().ok_or_else(spent)?))
    }

    /// Returns its sender, tag and length.
    pub fn status(&self) -> Status {
        self.message.as_ref().map_or_else(Status::empty, |message| Status::of(message.envelope()))
    }

    /// Receives it.
    ///
    /// # Errors
    /// As [`Intracomm::recv`].
    pub fn recv<B: RecvBuf + ?Sized>(mut self, buf: &mut B) -> Result<Status> {
        let Some(message) = self.message.take() else { return Ok(Status::empty()) };
        // SAFETY: `buf` is borrowed mutably until we return, and `RecvBuf` vouches for what it describes.
        unsafe { raw::mrecv(self.comm.as_raw(), buf.recv_buf(), message) }
    }
}

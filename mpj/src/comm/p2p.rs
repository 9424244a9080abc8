//! Typed point-to-point messages.

use mpj_devices::{MatchedMessage, Mode};

use super::Communicator;
use crate::address::{Dest, IntoDest, IntoSource, Tag};
use crate::error::{Error, ErrorClass, Result};
use crate::raw;
use crate::request::{OwnedCell, Request, Scope};
use crate::status::Status;
use crate::types::{RecvBuf, SendBuf};

impl<K> Communicator<K> {
    /// Sends a buffer, and returns when it can be reused (MPI_Send).
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
    /// The rank is out of range, the tag is negative, the [buffer](raw::BufError) is invalid, the communicator was
    /// freed, one of its ranks has died, the receiver has exited, cannot be reached or refuses the message, or memory
    /// is exhausted.
    #[inline]
    pub fn send<B: SendBuf + ?Sized>(&self, buf: &B, dest: impl IntoDest, tag: i32) -> Result<()> {
        // SAFETY: `buf` is borrowed until we return, and `SendBuf` guarantees a valid description.
        unsafe { raw::send(self.as_raw(), buf.send_buf(), dest.into_dest().number(), tag, Mode::Standard) }
    }

    /// Sends a buffer, and returns when it can be reused and the message was matched (MPI_Ssend).
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
    /// As [`send`](Self::send), for the sender; [`ErrorClass::Truncate`](crate::ErrorClass::Truncate) if the message is
    /// longer than the buffer, [`ErrorClass::Type`](crate::ErrorClass::Type) if its type differs or items of the buffer
    /// overlap (the buffer is unchanged), or if a `bool` or `char` is invalid (`false` or `'\0'` replaces it).
    #[inline]
    pub fn recv<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        let (source, tag) = (source.into_source().number(), tag.into().number());
        // SAFETY: `buf` is borrowed mutably until we return, and `RecvBuf` guarantees a valid description.
        unsafe { raw::recv(self.as_raw(), buf.recv_buf(), source, tag) }
    }

    /// Sends and receives at the same time, so that ranks can exchange messages without deadlock (MPI_Sendrecv).
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
        // SAFETY: both buffers are borrowed until we return, one of them mutably, so they do not overlap.
        unsafe { raw::sendrecv(self.as_raw(), send, dest, send_tag, recv, source, recv_tag) }
    }

    /// Starts a send of an owned buffer (MPI_Isend). To send a borrowed buffer, use [`scope`](Self::scope).
    ///
    /// The operation owns the buffer until it has completed.
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// let other = 1 - world.rank();
    /// let sending = world.isend(vec![world.rank() as u64; 100_000], other, 0)?;
    /// let receiving = world.irecv(vec![0u64; 100_000], other, 0)?;
    /// let (got, _status) = receiving.wait()?;
    /// assert!(got.iter().all(|x| *x == other as u64));
    /// let (_buffer, _) = sending.wait()?;
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
        self.isend_as("isend", buf, dest.into_dest(), tag, Mode::Standard)
    }

    /// Starts a send of an owned buffer that completes when the message was matched (MPI_Issend). To send a borrowed
    /// buffer, use [`scope`](Self::scope).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn issend<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<Request<B>> {
        self.isend_as("issend", buf, dest.into_dest(), tag, Mode::Synchronous)
    }

    pub(super) fn isend_as<B: SendBuf + Send + Sync + 'static>(
        &self,
        call: &'static str,
        buf: B,
        dest: Dest,
        tag: i32,
        mode: Mode,
    ) -> Result<Request<B>> {
        let (comm, dest) = (self.as_raw(), dest.number());
        if mode == Mode::Standard {
            // SAFETY: the buffer is neither moved nor accessed before the call returns.
            let sent = unsafe { raw::try_isend(comm, call, || buf.send_buf(), dest, tag)? };
            if let Some(raw) = sent {
                return Ok(Request::returned(raw, buf));
            }
        }
        let cell = OwnedCell::shared(buf);
        let (buf, keep) = (cell.send_buf(), cell.clone());
        // SAFETY: the operation keeps the cell alive, in which the buffer is neither moved nor accessed until the
        // operation has completed.
        let raw = unsafe { raw::isend_as(comm, call, buf, dest, tag, mode, Some(keep))? };
        Ok(Request::new(raw, cell, false))
    }

    /// Starts a receive into an owned buffer (MPI_Irecv). To receive into a borrowed one, use [`scope`](Self::scope).
    ///
    /// The operation owns the buffer until it has completed. Dropping the request cancels the receive if it has not
    /// matched.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn irecv<B: RecvBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<Request<B>> {
        let (source, tag) = (source.into_source().number(), tag.into().number());
        // SAFETY: the request neither moves nor accesses the buffer until the operation has completed.
        Request::receive(buf, |cell| unsafe {
            raw::irecv_as(self.as_raw(), "irecv", || cell.recv_buf(), source, tag, None)
        })
    }

    /// Calls `f` with a scope, in which operations can borrow buffers. Returns the result of `f` when all operations
    /// have completed. If the closure ends in `Ok(())`, write its error type (E0283):
    /// ```
    /// # mpj::threads(2, |world| {
    /// let other = 1 - world.rank();
    /// let (mine, mut theirs) = ([world.rank() as i32; 4], [0i32; 4]);
    /// world.scope(|s| {
    ///     let receiving = s.irecv(&mut theirs, other, 0)?;
    ///     s.isend(&mine, other, 0)?;
    ///     let (got, _status) = receiving.wait()?; // returns the borrowed buffer
    ///     assert_eq!(got[0], other as i32);
    ///     Ok::<(), mpj::Error>(())
    /// })?;
    /// assert_eq!(theirs, [other as i32; 4]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// The scope waits for all its sends, even if `f` returns an error: until their messages are received, or their
    /// receivers leave. Only the request returns the error of a send, so wait for it if the error matters.
    ///
    /// A buffer cannot be accessed while an operation borrows it, even if the request is forgotten:
    /// ```compile_fail,E0506
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
    /// If `f` panics: unmatched operations are cancelled, and the panic is resumed after the others have completed.
    pub fn scope<'env, F, R>(&'env self, f: F) -> R
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    {
        Scope::enter(self.as_raw(), f)
    }

    /// Waits for a message, and returns the status that a receive would return, without receiving it (MPI_Probe).
    ///
    /// # Errors
    /// The rank or the tag is invalid, the communicator was freed, one of its ranks has died, or the sender has exited.
    pub fn probe(&self, source: impl IntoSource, tag: impl Into<Tag>) -> Result<Status> {
        raw::probe(self.as_raw(), source.into_source().number(), tag.into().number())
    }

    /// Probes as [`probe`](Self::probe) does, but makes progress once instead of waiting (MPI_Iprobe).
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn iprobe(&self, source: impl IntoSource, tag: impl Into<Tag>) -> Result<Option<Status>> {
        raw::iprobe(self.as_raw(), source.into_source().number(), tag.into().number())
    }

    /// Waits for a message, and extracts it, so that no other receive gets it (MPI_Mprobe).
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
    /// As [`probe`](Self::probe); the source [`PROC_NULL`](crate::PROC_NULL) is rejected.
    pub fn mprobe(&self, source: impl IntoSource, tag: impl Into<Tag>) -> Result<Message> {
        let message = raw::mprobe(self.as_raw(), source.into_source().number(), tag.into().number())?;
        Ok(Message { comm: self.as_raw().clone(), message: Some(message) })
    }

    /// Extracts a message as [`mprobe`](Self::mprobe) does, but makes progress once instead of waiting (MPI_Improbe).
    ///
    /// # Errors
    /// As [`mprobe`](Self::mprobe).
    pub fn improbe(&self, source: impl IntoSource, tag: impl Into<Tag>) -> Result<Option<Message>> {
        let message = raw::improbe(self.as_raw(), source.into_source().number(), tag.into().number())?;
        Ok(message.map(|message| Message { comm: self.as_raw().clone(), message: Some(message) }))
    }
}

/// A message that was extracted by [`Communicator::mprobe`] or [`Communicator::improbe`]: only this handle can receive it.
#[derive(Debug)]
#[must_use = "an extracted message is lost if it is not received"]
pub struct Message {
    comm: raw::Comm,
    message: Option<MatchedMessage>,
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            raw::mdiscard(message);
        }
    }
}

impl Message {
    pub(super) fn into_parts(mut self, call: &'static str) -> Result<(raw::Comm, MatchedMessage)> {
        let consumed = || Error::new(ErrorClass::Intern, call, "the message was already received");
        Ok((self.comm.clone(), self.message.take().ok_or_else(consumed)?))
    }

    /// Returns the sender, the tag and the length.
    pub fn status(&self) -> Status {
        self.message.as_ref().map_or_else(Status::empty, |message| Status::of(message.envelope()))
    }

    /// Receives the message (MPI_Mrecv).
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    pub fn recv<B: RecvBuf + ?Sized>(mut self, buf: &mut B) -> Result<Status> {
        let Some(message) = self.message.take() else { return Ok(Status::empty()) };
        // SAFETY: `buf` is borrowed mutably until we return, and `RecvBuf` guarantees a valid description.
        unsafe { raw::mrecv(&self.comm, buf.recv_buf(), message) }
    }
}

//! Buffered and ready sends, and the exchange in one buffer.

use std::fmt;

use mpj_devices::Mode;

use super::Communicator;
use crate::address::{IntoDest, IntoSource, Tag};
use crate::error::Result;
use crate::raw;
use crate::request::Request;
use crate::status::Status;
use crate::types::{RecvBuf, SendBuf};

impl<K> Communicator<K> {
    /// Attaches a buffer of `bytes` bytes for [`bsend`](Self::bsend), until the guard is dropped (MPI_Buffer_attach).
    /// The buffer of the world is also that of every communicator without one.
    ///
    /// A message uses its packed size and [`BSEND_OVERHEAD`](raw::BSEND_OVERHEAD) bytes until it was sent. Several
    /// messages can be pending. A buffer of `usize::MAX` bytes has no limit.
    ///
    /// ```
    /// use mpj::raw::BSEND_OVERHEAD;
    ///
    /// # mpj::threads(2, |world| {
    /// let other = 1 - world.rank();
    /// let mine = vec![world.rank() as u64; 100_000];
    /// let buffer = world.attach(2 * (800_000 + BSEND_OVERHEAD))?;
    /// world.bsend(&mine, other, 0)?; // returns before the other rank receives
    /// world.bsend(&mine, other, 1)?;
    /// let (theirs, _) = world.recv_vec::<u64>(other, 1)?;
    /// assert_eq!(theirs, vec![other as u64; 100_000]);
    /// world.recv_vec::<u64>(other, 0)?;
    /// buffer.detach()?; // waits until both messages were sent
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The communicator was freed; [`ErrorClass::Buffer`](crate::ErrorClass::Buffer) if it has a buffer already.
    pub fn attach(&self, bytes: usize) -> Result<AttachedBuffer> {
        raw::attach(self.as_raw(), bytes).map(|()| AttachedBuffer { comm: Some(self.as_raw().clone()) })
    }

    /// Sends a copy of a buffer, and returns as soon as it is made (MPI_Bsend). See [`attach`](Self::attach).
    ///
    /// # Errors
    /// As [`send`](Self::send), but an error after this call has returned is returned by [`AttachedBuffer::flush`] or
    /// [`AttachedBuffer::detach`]; [`ErrorClass::Buffer`](crate::ErrorClass::Buffer) if no buffer is attached, or it
    /// has too little space; [`ErrorClass::NoMem`](crate::ErrorClass::NoMem) if the pool has no block for the copy.
    pub fn bsend<B: SendBuf + ?Sized>(&self, buf: &B, dest: impl IntoDest, tag: i32) -> Result<()> {
        // SAFETY: `buf` is borrowed until we return, and `SendBuf` guarantees a valid description.
        unsafe { raw::bsend(self.as_raw(), buf.send_buf(), dest.into_dest().number(), tag) }
    }

    /// Sends a copy of an owned buffer as [`bsend`](Self::bsend) does (MPI_Ibsend). To send a borrowed buffer, use
    /// [`bsend`](Self::bsend), which does not wait for the receiver either.
    ///
    /// The returned request is complete.
    ///
    /// # Errors
    /// As [`bsend`](Self::bsend).
    pub fn ibsend<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<Request<B>> {
        let dest = dest.into_dest().number();
        // SAFETY: `buf` is neither moved nor accessed before the call returns.
        unsafe { raw::bsend_as(self.as_raw(), "ibsend", &buf.send_buf(), dest, tag)? };
        Ok(Request::returned(raw::Request::done(Status::empty()), buf))
    }

    /// Sends a buffer as [`send`](Self::send) does (MPI_Rsend). MPI allows it only if the receive is posted already;
    /// this library makes no use of that, and accepts the message in any case.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn rsend<B: SendBuf + ?Sized>(&self, buf: &B, dest: impl IntoDest, tag: i32) -> Result<()> {
        // SAFETY: as in `bsend`.
        unsafe { raw::rsend(self.as_raw(), buf.send_buf(), dest.into_dest().number(), tag) }
    }

    /// Starts a send of an owned buffer as [`isend`](Self::isend) does (MPI_Irsend). To send a borrowed buffer, use
    /// [`scope`](Self::scope), whose [`isend`](crate::Scope::isend) sends in the same way. See [`rsend`](Self::rsend).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn irsend<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<Request<B>> {
        self.isend_as("irsend", buf, dest.into_dest(), tag, Mode::Standard)
    }

    /// Sends the contents of a buffer, and receives another message into it at the same time (MPI_Sendrecv_replace).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let (right, left) = ((world.rank() + 1) % 3, (world.rank() + 2) % 3);
    /// let mut item = [world.rank()];
    /// world.sendrecv_replace(&mut item, right, 0, left, 0)?;
    /// assert_eq!(item, [left]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`sendrecv`](Self::sendrecv); [`ErrorClass::NoMem`](crate::ErrorClass::NoMem) if the pool has no block for a
    /// copy of the contents. If the receive fails, the contents may be overwritten in part.
    pub fn sendrecv_replace<B: RecvBuf + ?Sized>(
        &self,
        buf: &mut B,
        dest: impl IntoDest,
        send_tag: i32,
        source: impl IntoSource,
        recv_tag: impl Into<Tag>,
    ) -> Result<Status> {
        let (dest, source, recv_tag) =
            (dest.into_dest().number(), source.into_source().number(), recv_tag.into().number());
        // SAFETY: `buf` is borrowed mutably until we return, and `RecvBuf` guarantees a valid description.
        unsafe { raw::sendrecv_replace(self.as_raw(), buf.recv_buf(), dest, send_tag, source, recv_tag) }
    }
}

/// A buffer for buffered sends, attached to a communicator by [`Communicator::attach`].
///
/// Dropping it detaches the buffer and waits until its messages were sent, unless the thread panics. A forgotten guard
/// leaves the buffer attached.
#[must_use = "the buffer is detached when this guard is dropped"]
pub struct AttachedBuffer {
    /// Present until the buffer is detached.
    comm: Option<raw::Comm>,
}

impl AttachedBuffer {
    /// Waits until all messages in the buffer were sent (MPI_Buffer_flush).
    ///
    /// # Errors
    /// The first error of a send that was pending when its call returned, for example because its receiver has died.
    pub fn flush(&self) -> Result<()> {
        self.comm.as_ref().map_or(Ok(()), raw::flush_buffer)
    }

    /// Detaches the buffer as a drop does, and returns the error of a send (MPI_Buffer_detach).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn detach(mut self) -> Result<()> {
        self.comm.take().map_or(Ok(()), |comm| raw::detach(&comm).map(drop))
    }
}

impl Drop for AttachedBuffer {
    fn drop(&mut self) {
        match self.comm.take() {
            // The receivers might wait for this rank, whose thread unwinds.
            Some(comm) if std::thread::panicking() => raw::abandon_buffer(&comm),
            // A drop cannot return the error of a send; `detach` does.
            Some(comm) => drop(raw::detach(&comm)),
            None => (),
        }
    }
}

impl fmt::Debug for AttachedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AttachedBuffer")
    }
}

//! Persistent messages.

use std::sync::Arc;

use mpj_devices::Mode;

use super::Communicator;
use crate::address::{IntoDest, IntoSource, Tag};
use crate::error::Result;
use crate::raw::{self, Buf, KeepAlive};
use crate::request::{MessageStartFn, OwnedCell, PersistentRequest, StartFn};
use crate::types::{RecvBuf, SendBuf};

impl<K> Communicator<K> {
    /// Creates a persistent send of an owned buffer (MPI_Send_init). To send a borrowed buffer, use
    /// [`scope`](Self::scope) for each message.
    ///
    /// Each [`start`](PersistentRequest::start) sends the current contents, as [`isend`](Self::isend) does.
    /// [`buffers_mut`](PersistentRequest::buffers_mut) gives access to the buffer between two starts.
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// let other = 1 - world.rank();
    /// let mut send = world.send_init(vec![0.0; 1000], other, 0)?;
    /// let mut recv = world.recv_init(vec![0.0; 1000], other, 0)?;
    /// for step in 0..3 {
    ///     send.buffers_mut().fill(f64::from(step) + other as f64);
    ///     let (sending, receiving) = (send.start()?, recv.start()?);
    ///     assert_eq!(receiving.wait()?[999], f64::from(step) + world.rank() as f64);
    ///     sending.wait()?;
    /// }
    /// assert_eq!(recv.status().source(), Some(other));
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The rank is out of range, the tag is negative, or the communicator was freed.
    pub fn send_init<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<PersistentRequest<B>> {
        self.owned_send(buf, dest, tag, |comm, buf, dest, tag, keep| {
            raw::send_init(comm, buf, dest, tag, Mode::Standard, keep)
        })
    }

    /// Creates a persistent send whose starts send as [`issend`](Self::issend) does (MPI_Ssend_init).
    ///
    /// # Errors
    /// As [`send_init`](Self::send_init).
    pub fn ssend_init<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<PersistentRequest<B>> {
        self.owned_send(buf, dest, tag, |comm, buf, dest, tag, keep| {
            raw::send_init(comm, buf, dest, tag, Mode::Synchronous, keep)
        })
    }

    /// Creates a persistent send whose starts send as [`bsend`](Self::bsend) does, with its errors (MPI_Bsend_init).
    ///
    /// # Errors
    /// As [`send_init`](Self::send_init).
    pub fn bsend_init<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<PersistentRequest<B>> {
        self.owned_send(buf, dest, tag, raw::bsend_init)
    }

    /// Creates a persistent send whose starts send as [`irsend`](Self::irsend) does (MPI_Rsend_init).
    ///
    /// # Errors
    /// As [`send_init`](Self::send_init).
    pub fn rsend_init<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<PersistentRequest<B>> {
        self.owned_send(buf, dest, tag, raw::rsend_init)
    }

    /// Creates a persistent receive into an owned buffer (MPI_Recv_init). To receive into a borrowed buffer, use
    /// [`scope`](Self::scope) for each message.
    ///
    /// Each [`start`](PersistentRequest::start) receives as [`irecv`](Self::irecv) does, and
    /// [`status`](PersistentRequest::status) describes the message. See the example of [`send_init`](Self::send_init).
    ///
    /// # Errors
    /// As [`send_init`](Self::send_init).
    pub fn recv_init<B: RecvBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<PersistentRequest<B>> {
        let (source, tag) = (source.into_source().number(), tag.into().number());
        owned_request(
            buf,
            // SAFETY: the contract of the caller.
            |raw, cell| unsafe { raw.start_message(|| cell.recv_buf()) },
            |keep| raw::recv_init(self.as_raw(), Buf::empty(), source, tag, Some(keep)),
        )
    }

    fn owned_send<B: SendBuf + Send + Sync + 'static>(
        &self,
        buf: B,
        dest: impl IntoDest,
        tag: i32,
        init: SendInit,
    ) -> Result<PersistentRequest<B>> {
        let dest = dest.into_dest().number();
        owned_request(
            buf,
            // SAFETY: the contract of the caller.
            |raw, cell| unsafe { raw.start_message(|| cell.send_buf()) },
            |keep| init(self.as_raw(), Buf::empty(), dest, tag, Some(keep)),
        )
    }
}

type SendInit = fn(&raw::Comm, Buf, i32, i32, Option<KeepAlive>) -> Result<raw::PersistentOperation>;

/// Creates a persistent request that owns its buffer. `start` reads the buffer's address and datatype again.
fn owned_request<B: Send + Sync + 'static>(
    buf: B,
    start: MessageStartFn<B>,
    init: impl FnOnce(KeepAlive) -> Result<raw::PersistentOperation>,
) -> Result<PersistentRequest<B>> {
    let cell = OwnedCell::shared(buf);
    let keep: KeepAlive = Arc::<OwnedCell<B>>::clone(&cell);
    Ok(PersistentRequest::new(init(keep)?, cell, StartFn::Message(start)))
}

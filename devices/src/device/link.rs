//! The sending end to one peer.

use std::fmt;

use super::{Body, MemoryPart, OpStatus, OpToken, PostError, RemoteKey, View};

/// The sending end to one peer.
pub trait Endpoint: Send + fmt::Debug {
    /// Sends one frame; on `Ok` head and body may be reused.
    ///
    /// # Errors
    /// [`PostError::Again`] if there is no room now, and the body was not [written](super::PackedBody::write). The rank tries again
    /// whenever it polls, and once more after it has raised the flag of its doorbell: if that is refused, too, room must ring it.
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError>;

    /// Returns the longest body of a frame that the peer takes, in bytes, if it may be shorter than the
    /// [longest](super::Caps::max_send_size) that this rank sends. It is asked for once, before the first frame.
    fn takes(&self) -> Option<usize> {
        None
    }

    /// Sends one frame as [`post`](Self::post) does, of a caller that may have more to send at once: where a frame alone
    /// costs much, the device may keep it back to send several together.
    ///
    /// What is kept back [is staged](Self::has_unflushed), and leaves with the next frame that is posted or by
    /// [`flush`](Self::flush), whichever is first; without either it leaves within [`MAX_COALESCE_DELAY`](super::MAX_COALESCE_DELAY) all the same where there is
    /// room for it, as the thread that started it may compute for long.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    #[inline]
    fn post_more(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.post(head, body)
    }

    /// Sends one frame whose body stays where it is until the device is done with it.
    ///
    /// The order among frames is that of the calls, as for [`post`](Self::post).
    ///
    /// # Errors
    /// As [`post`](Self::post).
    ///
    /// # Safety
    /// The bytes of `body` stay as they are until this has answered [`OpStatus::Done`] or an error, or
    /// [`Sink::completed`](super::Sink::completed) has been called with `op`; or until the device is dropped.
    #[expect(unsafe_code, reason = "the device reads the memory later")]
    unsafe fn post_zcopy(
        &mut self,
        _head: &[u8],
        _body: &[MemoryPart<'_>],
        _op: OpToken,
    ) -> Result<OpStatus, PostError> {
        Err(PostError::Unsupported)
    }

    /// Moves bytes from the peer's memory that `key` names, beginning with its byte `at`, to all of `to`.
    ///
    /// # Errors
    /// [`PostError::Again`] if there is no room now, [`PostError::Revoked`] if the peer has taken the memory back,
    /// [`PostError::Broken`] if the key makes no sense.
    ///
    /// # Safety
    /// `to` stays writable, and nobody else reads or writes it, until this has answered [`OpStatus::Done`] or an error, or
    /// [`Sink::completed`](super::Sink::completed) has been called with `op`; or until the device is dropped.
    #[expect(unsafe_code, reason = "the device writes the memory later")]
    unsafe fn get(
        &mut self,
        _key: &RemoteKey,
        _at: u64,
        _to: MemoryPart<'_>,
        _op: OpToken,
    ) -> Result<OpStatus, PostError> {
        Err(PostError::Unsupported)
    }

    /// Looks at `len` bytes that the peer has [lent](super::Device::export), all that `key` names.
    ///
    /// # Errors
    /// [`PostError::Unsupported`] if the key names memory that is not lent; otherwise as [`get`](Self::get).
    fn view(&mut self, _key: &RemoteKey, _len: usize) -> Result<View, PostError> {
        Err(PostError::Unsupported)
    }

    /// Moves all of `from` to the peer's memory that `key` names, beginning with its byte `at`. When it has ended the
    /// bytes are in the peer's memory, before any frame that is posted then.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// As [`post_zcopy`](Self::post_zcopy), of `from`.
    #[expect(unsafe_code, reason = "the device reads the memory later")]
    unsafe fn put(
        &mut self,
        _key: &RemoteKey,
        _at: u64,
        _from: MemoryPart<'_>,
        _op: OpToken,
    ) -> Result<OpStatus, PostError> {
        Err(PostError::Unsupported)
    }

    /// Moves bytes that `post` took but could not yet write out, or was asked to keep back; returns whether any are left.
    ///
    /// # Errors
    /// [`PostError::Broken`].
    fn flush(&mut self) -> Result<bool, PostError> {
        Ok(false)
    }

    /// Returns whether [`post`](Self::post) has taken bytes that are not written out: [`flush`](Self::flush) has work.
    fn has_unflushed(&self) -> bool {
        false
    }

    /// Checks that memory which others can write still holds what this end has written there. A rank that waits calls it about
    /// once a second: what was overwritten might else leave it waiting for ever.
    ///
    /// # Errors
    /// [`PostError::Broken`].
    fn verify(&mut self) -> Result<(), PostError> {
        Ok(())
    }

    /// Takes note that the peer has left or died: nothing more is posted, a connection that does not stand yet is not
    /// tried again, and what the peer holds of this rank's comes back as soon as it cannot touch it any more. Moves that
    /// have been started end all the same, as failed.
    fn peer_gone(&mut self) {}

    /// Returns whether all that `post` took has reached the peer's host, for a device that does not deliver at once.
    /// A rank says that it has left only then.
    fn is_drained(&mut self) -> bool {
        true
    }
}

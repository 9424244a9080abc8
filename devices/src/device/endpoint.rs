//! The trait of the sending end.

use std::fmt;

use super::{Body, MemoryPart, OpStatus, OpToken, PostError, RemoteKey, View};

/// The sending end to one peer.
pub trait Endpoint: Send + fmt::Debug {
    /// Sends one frame; on `Ok` head and body may be reused.
    ///
    /// # Errors
    /// [`PostError::Again`] if the device is full; the body was not [written](super::PackedBody::write) then. The rank
    /// retries at each poll, and once more after it has set the flag of its doorbell. If that try fails, too, the
    /// device must ring the doorbell when there is space.
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError>;

    /// Returns the longest body of a frame that the peer accepts, in bytes, if it may be shorter than the
    /// [longest](super::Caps::max_send_size) that this rank sends. The engine calls it once, before the first frame.
    fn takes(&self) -> Option<usize> {
        None
    }

    /// Sends one frame as [`post`](Self::post) does, for a caller that may send more frames at once. If a single frame
    /// is costly, the device may delay it to coalesce it with others.
    ///
    /// [`has_unflushed`](Self::has_unflushed) reports a delayed frame. It is sent with the next frame that is posted or
    /// by [`flush`](Self::flush), whichever comes first. Without either it is sent within
    /// [`MAX_COALESCE_DELAY`](super::MAX_COALESCE_DELAY), if there is space for it, as the thread that posted it may
    /// compute for a long time.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    #[inline]
    fn post_more(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.post(head, body)
    }

    /// Sends one frame whose body stays in place until the device no longer needs it. Frames keep the order of the
    /// calls, as for [`post`](Self::post).
    ///
    /// # Errors
    /// As [`post`](Self::post).
    ///
    /// # Safety
    /// The bytes of `body` are not changed until this has returned [`OpStatus::Done`] or an error, or
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

    /// Copies bytes of the peer's memory that `key` names, from its byte `at` on, to all of `to`.
    ///
    /// # Errors
    /// [`PostError::Again`] if the device is full, [`PostError::Revoked`] if the peer has revoked the key,
    /// [`PostError::Broken`] if the key is invalid.
    ///
    /// # Safety
    /// `to` stays writable and is not accessed otherwise until this has returned [`OpStatus::Done`] or an error, or
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

    /// Opens a view of `len` bytes that the peer has [exported](super::Device::export): all of the memory that `key`
    /// names.
    ///
    /// # Errors
    /// [`PostError::Unsupported`] if the key names memory that is not exported; otherwise as [`get`](Self::get).
    fn view(&mut self, _key: &RemoteKey, _len: usize) -> Result<View, PostError> {
        Err(PostError::Unsupported)
    }

    /// Copies all of `from` to the peer's memory that `key` names, from its byte `at` on. When the operation is
    /// complete, the bytes are in the peer's memory before any frame that is posted afterwards.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// As [`post_zcopy`](Self::post_zcopy), for `from`.
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

    /// Sends bytes that `post` accepted and could not write, or that were delayed; returns whether any remain.
    ///
    /// # Errors
    /// [`PostError::Broken`].
    fn flush(&mut self) -> Result<bool, PostError> {
        Ok(false)
    }

    /// Returns whether [`flush`](Self::flush) has bytes to write that [`post`](Self::post) has accepted.
    fn has_unflushed(&self) -> bool {
        false
    }

    /// Checks that memory which other processes can write still holds the values that this end has written there. A
    /// waiting rank calls it about once a second: otherwise overwritten values could leave it waiting for ever.
    ///
    /// # Errors
    /// [`PostError::Broken`].
    fn verify(&mut self) -> Result<(), PostError> {
        Ok(())
    }

    /// Releases the resources for a peer that has exited or died. Nothing more is posted, a pending connection is not
    /// retried, and memory that the peer accessed is released as soon as the peer can no longer touch it. Operations
    /// that have been started still complete, as failed.
    fn peer_gone(&mut self) {}

    /// Returns whether all frames that `post` accepted have reached the peer's host, for a device that does not deliver
    /// at once. A rank announces its exit only then.
    fn is_drained(&mut self) -> bool {
        true
    }
}

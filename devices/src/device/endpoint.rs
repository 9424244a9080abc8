use std::fmt;

use super::{Body, MemoryPart, OpStatus, OpToken, PostError, RemoteKey, View};

/// The sending end to one peer.
pub trait Endpoint: Send + fmt::Debug {
    /// Sends one frame. After `Ok`, the caller may reuse the memory of head and body.
    ///
    /// # Errors
    /// * [`PostError::Again`] if the device is full; nothing was sent then. The rank retries at each poll, and again
    ///   after it has set the flag of its doorbell. If that try fails, too, the device must wake the rank when it has
    ///   space.
    /// * [`PostError::Broken`] if the connection is broken; [`PostError::Unsupported`] if the frame is too long.
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError>;

    /// Returns the longest body of a frame that the peer accepts, in bytes, if that limit might be lower than
    /// [`Caps::max_send_size`](super::Caps::max_send_size). The engine calls it once, before the first frame.
    fn peer_max_body(&self) -> Option<usize> {
        None
    }

    /// Sends one frame as [`post`](Self::post) does, for a caller that might soon send more. If a single frame is
    /// costly, the device may delay it to coalesce it with others.
    ///
    /// [`has_unflushed`](Self::has_unflushed) reports delayed frames. A call of [`post`](Self::post) or
    /// [`flush`](Self::flush) also sends the delayed frames. Without either, the device sends them within
    /// [`MAX_COALESCE_DELAY`](super::MAX_COALESCE_DELAY), if there is space for them, because the posting thread might
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
    /// As [`post`](Self::post); [`PostError::Unsupported`].
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

    /// Fills all of `to` with bytes of the peer's memory that `key` names, from byte `at` of that memory on.
    ///
    /// # Errors
    /// [`PostError::Again`] if the device is full, [`PostError::Revoked`] if the peer has revoked the key,
    /// [`PostError::Broken`] if the key is invalid or the connection is broken, [`PostError::Unsupported`].
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
    /// [`PostError::Unsupported`] if the key names memory that is not exported or not contiguous; otherwise as
    /// [`get`](Self::get).
    ///
    /// # Safety
    /// The peer has sent this key for a message of `len` bytes to this rank. The device does not check that the key
    /// names one whole exported block.
    #[expect(unsafe_code, reason = "the view reads the memory later")]
    unsafe fn view(&mut self, _key: &RemoteKey, _len: usize) -> Result<View, PostError> {
        Err(PostError::Unsupported)
    }

    /// Copies all of `from` to the peer's memory that `key` names, from byte `at` of that memory on. The peer receives
    /// frames that are posted after the completion only when the bytes are in its memory.
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

    /// Sends the bytes that `post` or `post_more` has accepted and not written yet; returns whether any remain.
    ///
    /// # Errors
    /// [`PostError::Broken`].
    fn flush(&mut self) -> Result<bool, PostError> {
        Ok(false)
    }

    /// Returns whether there might be bytes for [`flush`](Self::flush) to send.
    fn has_unflushed(&self) -> bool {
        false
    }

    /// Checks that memory which other processes can write still holds the values that this end has written there. A
    /// rank calls it about once a second in a long wait: overwritten values could make it wait for ever.
    ///
    /// # Errors
    /// [`PostError::Broken`].
    fn verify(&mut self) -> Result<(), PostError> {
        Ok(())
    }

    /// Releases the resources for a peer that has exited or died. The engine posts nothing more. The device does not
    /// retry a pending connection, and releases memory as soon as the peer can no longer access it. Operations in
    /// progress still complete, possibly with an error.
    fn peer_gone(&mut self) {}

    /// Returns whether all accepted frames have reached the peer's host, or never will. A rank that closes waits for
    /// this before it reports that it is closing.
    fn is_drained(&mut self) -> bool {
        true
    }
}

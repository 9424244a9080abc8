//! The sending end: the ring of the pair, and copies out of the peer's memory.

use super::bell::Bell;
use super::single::Window;
use crate::device::{Body, Link, Moved, Part, PostError, RemoteKey, Token};
use crate::ring::RingLink;

/// The sending end to one peer.
#[derive(Debug)]
pub(super) struct ShmLink {
    pub(super) ring: RingLink<Bell>,
    /// The peer's memory, where the system lets this process read it.
    pub(super) window: Option<Window>,
}

impl Link for ShmLink {
    #[inline]
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.ring.post(head, body)
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        self.ring.flush()
    }

    #[inline]
    fn is_staged(&self) -> bool {
        self.ring.is_staged()
    }

    fn forget(&mut self) {
        self.ring.forget();
    }

    fn is_settled(&mut self) -> bool {
        self.ring.is_settled()
    }

    #[expect(unsafe_code, reason = "the trait's contract is passed on")]
    unsafe fn get(&mut self, key: &RemoteKey, at: u64, to: Part<'_>, _op: Token) -> Result<Moved, PostError> {
        let window = self.window.ok_or(PostError::Unsupported)?;
        // SAFETY: the caller's promise.
        unsafe { window.copy(key, at, to) }
    }
}

//! The sending end: the ring of the pair, what the peer lends, and copies out of its memory.

use std::sync::Arc;

use super::bell::Bell;
use super::shelf::Shelf;
use super::single::Window;
use super::together::{Copies, Together};
use crate::device::{Body, Link, Moved, Part, PostError, RemoteKey, Token, View};
use crate::ring::RingLink;

/// The sending end to one peer.
#[derive(Debug)]
pub(super) struct ShmLink {
    pub(super) ring: RingLink<Bell>,
    /// The peer's memory, where the system lets this process read it.
    pub(super) window: Option<Window>,
    pub(super) shelf: Shelf,
    pub(super) together: Arc<Together>,
    pub(super) copies: Arc<Copies>,
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
    unsafe fn get(&mut self, key: &RemoteKey, at: u64, to: Part<'_>, op: Token) -> Result<Moved, PostError> {
        if Shelf::knows(key) {
            let run = to.run().ok_or(PostError::Unsupported)?;
            // SAFETY: the caller's promise: it is all of `to`.
            return unsafe { self.shelf.copy(key, at, run, to.len) };
        }
        let window = self.window.ok_or(PostError::Unsupported)?;
        let ShmLink { ring, together, copies, .. } = self;
        // SAFETY: the caller's promise.
        unsafe { together.copy(window, copies, (key, at), to, op, || ring.call()) }
    }

    fn view(&mut self, key: &RemoteKey, len: usize) -> Result<View, PostError> {
        match Shelf::knows(key) {
            true => self.shelf.view(key, len),
            false => Err(PostError::Unsupported),
        }
    }
}

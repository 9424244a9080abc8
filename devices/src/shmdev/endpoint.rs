//! The sending side: the ring of the pair, and the peer's exported blocks.

use super::imports::PeerBlocks;
use super::notify::ShmNotifier;
use super::segment_layout::RingLocation;
use crate::device::{Body, Endpoint, PostError, RemoteKey, View};
use crate::ring::RingEndpoint;

#[derive(Debug)]
pub(super) struct ShmEndpoint {
    pub(super) ring: RingEndpoint<ShmNotifier>,
    pub(super) peer_blocks: PeerBlocks,
    pub(super) location: RingLocation,
}

impl Endpoint for ShmEndpoint {
    #[inline]
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.ring.post(head, body)
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        self.ring.flush()
    }

    #[inline]
    fn has_unflushed(&self) -> bool {
        self.ring.has_unflushed()
    }

    fn verify(&mut self) -> Result<(), PostError> {
        self.peer_blocks
            .segment
            .verify_location(self.peer_blocks.reader.index, self.peer_blocks.index, self.location)
            .map_err(PostError::Broken)?;
        self.ring.verify()
    }

    fn peer_gone(&mut self) {
        self.ring.peer_gone();
    }

    fn is_drained(&mut self) -> bool {
        self.ring.is_drained()
    }

    #[expect(unsafe_code, reason = "the trait's contract is passed on")]
    unsafe fn view(&mut self, key: &RemoteKey, len: usize) -> Result<View, PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.peer_blocks.view(key, len) }
    }
}

//! The sending side: the ring to the peer, and copies out of the peer's memory.

use std::sync::Arc;

use super::Hub;
use super::notify::SmNotifier;
use crate::device::{Body, Endpoint, MemoryPart, OpStatus, OpToken, PostError, RemoteKey, View};
use crate::ring::{MemoryKey, RingEndpoint};

#[derive(Debug)]
pub(super) struct SmEndpoint {
    pub(super) ring: RingEndpoint<SmNotifier>,
    pub(super) hub: Arc<Hub>,
}

/// Returns the number of the entry in the exposed table, and the offset in the entry of byte `at` of the key's memory.
fn unpack(key: &RemoteKey, at: u64) -> Result<(u64, usize), PostError> {
    let unpacked = MemoryKey::unpack(key)
        .and_then(|key| Some((key.number, usize::try_from(key.offset.checked_add(at)?).ok()?)));
    unpacked.ok_or_else(|| PostError::Broken(format!("it sent a malformed smdev key: {key:?}")))
}

impl Endpoint for SmEndpoint {
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

    fn peer_gone(&mut self) {
        self.ring.peer_gone();
    }

    fn is_drained(&mut self) -> bool {
        self.ring.is_drained()
    }

    #[expect(unsafe_code, reason = "the trait's contract is passed on")]
    unsafe fn get(
        &mut self,
        key: &RemoteKey,
        at: u64,
        to: MemoryPart<'_>,
        _op: OpToken,
    ) -> Result<OpStatus, PostError> {
        let (number, at) = unpack(key, at)?;
        // SAFETY: the caller's promise.
        unsafe { self.hub.exposed().get(number, at, to) }?;
        Ok(OpStatus::Done)
    }

    #[expect(unsafe_code, reason = "the trait's signature; the table checks the key")]
    unsafe fn view(&mut self, key: &RemoteKey, len: usize) -> Result<View, PostError> {
        let (number, at) = unpack(key, 0)?;
        self.hub.exposed().view(number, at, len)
    }
}

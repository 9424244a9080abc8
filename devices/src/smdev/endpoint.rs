//! The sending side: the ring to the peer, and copies out of the peer's memory.

use std::sync::Arc;

use super::Hub;
use super::notify::SmNotifier;
use crate::device::{Body, Endpoint, MemoryPart, OpStatus, OpToken, PostError, RemoteKey, View};
use crate::ring::RingEndpoint;

#[derive(Debug)]
pub(super) struct SmEndpoint {
    pub(super) ring: RingEndpoint<SmNotifier>,
    pub(super) hub: Arc<Hub>,
}

/// The remote key of exposed memory: the number of its entry in the exposed table, and the offset in the entry at which
/// the memory of the key begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExposedKey {
    pub(super) number: u64,
    pub(super) at: u64,
}

impl ExposedKey {
    /// Packs the key: the number and the offset, in little-endian order.
    pub(super) fn pack(self) -> Option<RemoteKey> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.at.to_le_bytes());
        RemoteKey::new(&bytes)
    }

    /// Returns the number of the entry, and the offset in the entry of byte `at` of the key's memory.
    fn read(key: &RemoteKey, at: u64) -> Result<(u64, usize), PostError> {
        let read = || {
            let (number, first) = key.as_bytes().split_first_chunk::<8>()?;
            let first = u64::from_le_bytes(first.try_into().ok()?);
            Some((u64::from_le_bytes(*number), usize::try_from(first.checked_add(at)?).ok()?))
        };
        read().ok_or_else(|| PostError::Broken(format!("it sent a malformed smdev key: {key:?}")))
    }
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
        let (number, at) = ExposedKey::read(key, at)?;
        // SAFETY: the caller's promise.
        unsafe { self.hub.exposed().get(number, at, to) }?;
        Ok(OpStatus::Done)
    }

    fn view(&mut self, key: &RemoteKey, len: usize) -> Result<View, PostError> {
        let (number, at) = ExposedKey::read(key, 0)?;
        self.hub.exposed().view(number, at, len)
    }
}

//! The sending end: the ring of the pair, and copies out of the peer's memory.

use std::sync::Arc;

use super::Hub;
use super::bell::LateBell;
use crate::device::{Body, Link, Moved, Part, PostError, RemoteKey, Token};
use crate::ring::RingLink;

/// The sending end to one peer.
#[derive(Debug)]
pub(super) struct SmLink {
    pub(super) ring: RingLink<LateBell>,
    pub(super) hub: Arc<Hub>,
}

/// What names an offer to a peer: its number, and the byte that counts as the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) number: u64,
    pub(super) at: u64,
}

impl Key {
    /// As short as it is, a key shares the cell of its announcement.
    pub(super) fn pack(self) -> Option<RemoteKey> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.at.to_le_bytes());
        RemoteKey::new(&bytes)
    }

    fn unpack(key: &RemoteKey) -> Option<Self> {
        let (number, at) = key.as_bytes().split_first_chunk::<8>()?;
        Some(Key { number: u64::from_le_bytes(*number), at: u64::from_le_bytes(at.try_into().ok()?) })
    }
}

impl Link for SmLink {
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
        let garbage = || PostError::Broken(format!("it sent a key that is none of smdev: {key:?}"));
        let key = Key::unpack(key).ok_or_else(garbage)?;
        let at = key.at.checked_add(at).and_then(|at| usize::try_from(at).ok()).ok_or_else(garbage)?;
        // SAFETY: the caller's promise.
        unsafe { self.hub.offers().get(key.number, at, to) }?;
        Ok(Moved::Done)
    }
}

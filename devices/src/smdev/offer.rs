//! Memory lent to a peer for one copy.

use std::collections::HashMap;
use std::sync::PoisonError;

use crate::device::{PostError, RemoteKey};
use crate::sync::{Condvar, Mutex, lock};

#[cfg(all(test, loom))]
mod model;

/// The offers of one process.
///
/// # Invariants
/// 1. While an offer is in the table with `readers > 0`, its bytes are readable: [`revoke`](Self::revoke) takes it out
///    of the table and returns only when `readers` is 0.
#[derive(Debug, Default)]
pub(super) struct Offers {
    table: Mutex<Table>,
    quiet: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    offers: HashMap<u64, Offer>,
}

#[derive(Debug)]
struct Offer {
    from: usize,
    len: usize,
    readers: u32,
    revoked: bool,
}

impl Offers {
    /// Lends `len` bytes at `from`.
    ///
    /// # Safety
    /// The bytes stay readable and unchanged until [`revoke`](Self::revoke) has returned.
    pub(super) unsafe fn offer(&self, from: *const u8, len: usize) -> RemoteKey {
        let mut table = lock(&self.table);
        table.next += 1;
        let key = table.next;
        table.offers.insert(key, Offer { from: from.expose_provenance(), len, readers: 0, revoked: false });
        RemoteKey(key)
    }

    /// Takes an offer back, after the copy that may have begun.
    pub(super) fn revoke(&self, key: RemoteKey) {
        let mut table = lock(&self.table);
        while let Some(offer) = table.offers.get_mut(&key.0) {
            offer.revoked = true;
            if offer.readers == 0 {
                table.offers.remove(&key.0);
                return;
            }
            table = self.quiet.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Copies `len` bytes of an offer to `to`.
    ///
    /// # Safety
    /// `to` is valid for writes of `len` bytes.
    pub(super) unsafe fn get(&self, key: RemoteKey, to: *mut u8, len: usize) -> Result<(), PostError> {
        let from = {
            let mut table = lock(&self.table);
            match table.offers.get_mut(&key.0) {
                Some(offer) if !offer.revoked && offer.len >= len => {
                    offer.readers += 1;
                    offer.from
                }
                _ => return Err(PostError::Broken("the sender has taken its message back".into())),
            }
        };
        let from = std::ptr::with_exposed_provenance::<u8>(from);
        // SAFETY: invariant 1 keeps the source readable while we count as a reader; the caller vouches for `to`. The
        // two belong to different ranks' buffers; should a program make them overlap, `copy` allows it.
        unsafe { std::ptr::copy(from, to, len) };
        let mut table = lock(&self.table);
        if let Some(offer) = table.offers.get_mut(&key.0) {
            offer.readers -= 1;
            if offer.revoked {
                self.quiet.notify_all();
            }
        }
        Ok(())
    }
}

//! Memory that a rank exposes to a peer, which copies it or, if it is exported, views it.

use std::collections::HashMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use crate::buf::ChainRange;
use crate::device::{KeepAlive, MemoryDesc, MemoryPart, PostError, QuiesceStatus, View};
use crate::sync::{Condvar, Mutex, lock};

#[cfg(all(test, loom))]
mod model;

/// The exposed memory of the ranks of one process.
///
/// # Invariants
/// 1. While an entry has `readers > 0`, its bytes are readable: [`revoke`](Self::revoke) returns only when `readers` is
///    0 and the entry is no longer in the table.
/// 2. An entry that is `revoked` gets no more readers.
#[derive(Debug, Default)]
pub(super) struct SmExposedTable {
    table: Mutex<Table>,
    no_readers: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    entries: HashMap<u64, Exposed>,
}

struct Exposed {
    memory: MemoryDesc,
    /// Keeps the memory alive; `None` if the memory must not be viewed.
    keep: Option<KeepAlive>,
    is_viewed: bool,
    /// Number of bytes of the copies that were completed before the entry was revoked.
    copied: usize,
    readers: u32,
    revoked: bool,
    /// The last reader of a revoked entry calls this.
    on_quiesced: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exposed({} B, {} readers)", self.memory.bytes(), self.readers)
    }
}

impl Table {
    /// Returns an entry that is not revoked and has the bytes `at..at + len`.
    fn find(&mut self, number: u64, at: usize, len: usize) -> Result<&mut Exposed, PostError> {
        if number == 0 || number > self.last {
            return Err(PostError::Broken("it sent a key that was never issued".into()));
        }
        let entry = self.entries.get_mut(&number).filter(|entry| !entry.revoked);
        let entry = entry.ok_or(PostError::Revoked)?;
        let bytes = entry.memory.bytes();
        if at.checked_add(len).is_none_or(|end| end > bytes) {
            let why =
                format!("its key covers {bytes} bytes, and {len} bytes from byte {at} on were requested");
            return Err(PostError::Broken(why));
        }
        Ok(entry)
    }
}

impl SmExposedTable {
    /// Exposes memory; returns its number, which is never used again.
    ///
    /// # Safety
    /// The bytes stay readable and unchanged until [`revoke`](Self::revoke) has returned, or [`quiesce`](Self::quiesce)
    /// has returned `Done` or called `then`. With a `keep`, they also stay so as long as a clone of it exists.
    pub(super) unsafe fn expose(&self, memory: MemoryDesc, keep: Option<KeepAlive>) -> u64 {
        let mut table = lock(&self.table);
        table.last += 1;
        let number = table.last;
        let entry = Exposed {
            memory,
            keep,
            is_viewed: false,
            copied: 0,
            readers: 0,
            revoked: false,
            on_quiesced: None,
        };
        table.entries.insert(number, entry);
        number
    }

    /// Views `len` bytes of an entry from its byte `at` on.
    pub(super) fn view(&self, number: u64, at: usize, len: usize) -> Result<View, PostError> {
        let mut table = lock(&self.table);
        let entry = table.find(number, at, len)?;
        let (Some(run), Some(keep)) = (entry.memory.contiguous(), &entry.keep) else {
            return Err(PostError::Unsupported);
        };
        let base = NonNull::new(run.wrapping_add(at)).ok_or(PostError::Unsupported)?;
        let keep = Arc::clone(keep);
        entry.is_viewed = true;
        // SAFETY: the promise made to `expose`; `find` has checked the length.
        Ok(unsafe { View::new(base, len, keep) })
    }

    /// Returns whether an entry has been viewed or completely copied, so that its receiver has the message.
    pub(super) fn is_received(&self, number: u64) -> bool {
        let is_copied = |entry: &Exposed| entry.copied > 0 && entry.copied >= entry.memory.bytes();
        let is_received = |entry: &Exposed| entry.is_viewed || is_copied(entry);
        lock(&self.table).entries.get(&number).is_some_and(is_received)
    }

    /// Waits for the readers of an entry, and removes it from the table.
    pub(super) fn revoke(&self, number: u64) {
        let mut table = lock(&self.table);
        while let Some(entry) = table.entries.get_mut(&number) {
            entry.revoked = true;
            if entry.readers == 0 {
                let removed = table.entries.remove(&number);
                // The drop of `keep` may run code of the user, so drop it after the lock is released.
                drop(table);
                return drop(removed);
            }
            table = self.no_readers.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Revokes an entry. If the entry has readers, the last one calls `then` when its copy has ended.
    pub(super) fn quiesce(&self, number: u64, then: impl FnOnce() + Send + 'static) -> QuiesceStatus {
        match lock(&self.table).entries.get_mut(&number) {
            Some(entry) => {
                entry.revoked = true;
                if entry.readers == 0 {
                    return QuiesceStatus::Done;
                }
                entry.on_quiesced = Some(Box::new(then));
                QuiesceStatus::InProgress
            }
            None => QuiesceStatus::Done,
        }
    }

    /// Copies bytes of an entry, from its byte `at` on, to all of `to`.
    ///
    /// # Safety
    /// `to` is writable, and nobody else uses it.
    pub(super) unsafe fn get(&self, number: u64, at: usize, to: MemoryPart<'_>) -> Result<(), PostError> {
        let from = self.add_reader(number, at, to.len)?;
        // SAFETY: invariant 1 keeps the source readable while this thread counts as a reader. `add_reader` has checked
        // the length. The caller vouches for `to`.
        let copied = unsafe { copy(from.part(at, to.len, None), to) };
        let len = if copied.is_ok() { to.len } else { 0 };
        if self.remove_reader(number, len) { copied } else { Err(PostError::Revoked) }
    }

    fn add_reader(&self, number: u64, at: usize, len: usize) -> Result<MemoryDesc, PostError> {
        let mut table = lock(&self.table);
        let entry = table.find(number, at, len)?;
        entry.readers += 1;
        Ok(entry.memory.clone())
    }

    /// Ends a read that has copied `len` bytes; returns whether the entry is still valid. If it was revoked meanwhile,
    /// its owner might already have reported that the message was not received.
    fn remove_reader(&self, number: u64, len: usize) -> bool {
        let mut table = lock(&self.table);
        let Some(entry) = table.entries.get_mut(&number) else { return false };
        entry.readers -= 1;
        if !entry.revoked {
            entry.copied += len;
        }
        if entry.readers > 0 || !entry.revoked {
            return !entry.revoked;
        }
        let then = entry.on_quiesced.take();
        drop(table);
        self.no_readers.notify_all();
        if let Some(then) = then {
            then();
        }
        false
    }
}

/// Copies from one layout to the other without a buffer in between, or returns `Unsupported`.
///
/// # Safety
/// `from` is readable and does not change; `to` is writable and nobody else uses it; both have the same length.
unsafe fn copy(from: MemoryPart<'_>, to: MemoryPart<'_>) -> Result<(), PostError> {
    if let (Some(src), Some(dst)) = (from.contiguous(), to.contiguous()) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy(src, dst, to.len) };
        return Ok(());
    }
    if let Some(chain) = from.memory.chain() {
        // SAFETY: the caller's promise.
        unsafe { copy_chain(chain.range(from.at, to.len), to) };
        return Ok(());
    }
    // `transpack` takes one range of packed bytes for both sides.
    if from.at != to.at {
        return Err(PostError::Unsupported);
    }
    let (mine, theirs) = (to.memory, from.memory);
    let src = theirs.base().cast_const();
    let packed = to.at..to.at + to.len;
    let (into, dst, into_count) = (mine.datatype(), mine.base(), mine.count());
    // SAFETY: the caller's promise; the two are buffers of different ranks, of which one is written and the other read.
    unsafe { theirs.datatype().transpack(src, theirs.count(), into, dst, into_count, packed) };
    Ok(())
}

/// Copies the pieces of a chain, one after the other.
///
/// # Safety
/// As for [`copy`].
unsafe fn copy_chain(pieces: ChainRange<'_>, to: MemoryPart<'_>) {
    let (mine, mut at) = (to.memory, to.at);
    for piece in pieces {
        let src = piece.base;
        match mine.contiguous() {
            // SAFETY: as for `copy`; the pieces are together no longer than `to`.
            Some(run) => unsafe { std::ptr::copy(src, run.wrapping_add(at), piece.len) },
            None => {
                // SAFETY: the caller's promise.
                let bytes = unsafe { std::slice::from_raw_parts(src, piece.len) };
                // SAFETY: the caller's promise.
                unsafe { mine.datatype().unpack(mine.base(), mine.count(), at, bytes) };
            }
        }
        at += piece.len;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use mpj_datatypes::Primitive;

    use super::*;

    #[test]
    fn completely_copied_memory_has_been_received() {
        let (mut from, mut to) = ([7u8; 100], [0u8; 100]);
        let memory = |bytes: &mut [u8]| {
            MemoryDesc::new(bytes.as_mut_ptr(), bytes.len(), Primitive::Byte.into()).unwrap()
        };
        let (from, to) = (memory(&mut from), memory(&mut to));
        let entries = SmExposedTable::default();
        let get = |number, at, len| {
            // SAFETY: nobody else uses `to`.
            unsafe { entries.get(number, at, to.part(at, len, None)) }
        };
        // SAFETY: `from` lives until the test ends.
        let [whole, half] = [(); 2].map(|()| unsafe { entries.expose(from.clone(), None) });
        for number in [whole, half] {
            assert_eq!((get(number, 0, 60), entries.is_received(number)), (Ok(()), false));
        }
        assert_eq!((get(whole, 60, 40), entries.is_received(whole)), (Ok(()), true));
        for (number, is_received) in [(whole, true), (half, false)] {
            assert_eq!(entries.quiesce(number, || ()), QuiesceStatus::Done);
            assert_eq!(get(number, 60, 40), Err(PostError::Revoked));
            assert_eq!(entries.is_received(number), is_received);
        }
    }
}

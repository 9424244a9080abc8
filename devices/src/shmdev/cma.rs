//! Single copies (cross memory attach): the kernel copies a message out of the sender's memory for the receiver.
//!
//! A sender *exposes* memory under a number, which is in the sender's table for as long as the memory may be read. The
//! receiver copies the memory and then the number. If the number was still in the table, the copy is the message.
//! Otherwise the sender has revoked the memory meanwhile, and may have written to it. So a sender that revokes memory
//! never waits for a reader.
//!
//! If another process has got the process id of a dead rank, it has other numbers, or no table.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::slot_ids::{SLOTS, SlotIds, slot_of};
use crate::device::{MemoryDesc, MemoryPart, OpStatus, PostError, Registration, RemoteKey};
use crate::sys::{self, RemoteIov};

#[derive(Debug)]
pub(super) struct ShmExposedTable {
    /// Each word except the last holds the number of the memory that is exposed in this slot, or the checksum of a
    /// cooperative copy, or 0. The last word is a hazard pointer: the number under which another rank has exposed the
    /// memory that this rank is writing to, or 0.
    slots: Box<[AtomicU64]>,
    numbers: SlotIds,
}

/// The record of exposed memory in its registration.
#[derive(Debug)]
pub(super) struct ShmExposure {
    exposed: Arc<ShmExposedTable>,
    number: u64,
    base: u64,
    bytes: usize,
}

impl ShmExposedTable {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(ShmExposedTable {
            slots: (0..=SLOTS).map(|_| AtomicU64::new(0)).collect(),
            numbers: SlotIds::new(RandomState::new().hash_one(sys::own_pid())),
        })
    }

    /// Exposes memory. Returns `None` if the memory is not contiguous, or if all slots are in use.
    pub(super) fn expose(self: &Arc<Self>, memory: &MemoryDesc) -> Option<ShmExposure> {
        let base = memory.contiguous()?.expose_provenance() as u64;
        let number = self.numbers.alloc()?;
        // Release: the writes to the memory come before the number.
        self.slots.get(slot_of(number))?.store(number, Ordering::Release);
        Some(ShmExposure { exposed: Arc::clone(self), number, base, bytes: memory.bytes() })
    }

    /// Announces, during `write`, that this rank writes to memory that another rank has exposed under `number`. `write`
    /// must first check that the memory is still exposed.
    pub(super) fn with_hazard<T>(&self, number: u64, write: impl FnOnce() -> T) -> T {
        let writing = &self.slots[SLOTS];
        writing.store(number, Ordering::Relaxed);
        // Either this rank sees that the other has revoked the memory, or the other sees that this rank writes.
        fence(Ordering::SeqCst);
        let written = write();
        writing.store(0, Ordering::Release);
        written
    }

    /// Returns whether memory is still exposed under a number. If so, the bytes that were read before are those that
    /// were exposed.
    pub(super) fn is_exposed(&self, number: u64) -> bool {
        fence(Ordering::Acquire);
        let there = self.slots.get(slot_of(number)).map(|slot| slot.load(Ordering::Acquire));
        number != 0 && there == Some(number)
    }

    #[cfg(test)]
    pub(super) fn writing(&self) -> &AtomicU64 {
        &self.slots[SLOTS]
    }

    fn address(&self) -> u64 {
        self.slots.as_ptr().expose_provenance() as u64
    }
}

impl ShmExposure {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Replaces the number in the slot, which no peer knows yet, by the checksum of `what` and the number. Returns
    /// `what` and the number.
    pub(super) fn publish_checksum(&self, what: [u64; 4]) -> [u64; 5] {
        let [a, b, c, d] = what;
        let words = [a, b, c, d, self.number];
        if let Some(slot) = self.exposed.slots.get(slot_of(self.number)) {
            slot.store(sum(words), Ordering::Release);
        }
        words
    }

    pub(super) fn register(self) -> Registration {
        let bytes = self.bytes;
        Registration::new(self, bytes)
    }

    /// Revokes the memory: a receiver whose read ends after this call detects that.
    pub(super) fn revoke(&self) {
        if let Some(slot) = self.exposed.slots.get(slot_of(self.number)) {
            slot.store(0, Ordering::Relaxed);
            // Writes to the memory that follow come after the number was removed.
            fence(Ordering::SeqCst);
        }
    }

    pub(super) fn key(&self, at: usize, len: usize) -> Option<RemoteKey> {
        at.checked_add(len).filter(|end| *end <= self.bytes)?;
        CmaKey { number: self.number, address: self.base + at as u64 }.pack()
    }
}

impl Drop for ShmExposure {
    fn drop(&mut self) {
        self.revoke();
        self.exposed.numbers.free(self.number);
    }
}

/// Returns a checksum of the words, which is never 0.
fn sum(words: [u64; 5]) -> u64 {
    let mix = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    words.into_iter().fold(1, mix) | 1
}

/// The remote key of exposed memory. It is short enough to share the cell of the RTS.
#[derive(Clone, Copy, Debug)]
pub(super) struct CmaKey {
    pub(super) number: u64,
    pub(super) address: u64,
}

impl CmaKey {
    fn pack(self) -> Option<RemoteKey> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.address.to_le_bytes());
        RemoteKey::new(&bytes)
    }

    fn unpack(key: &RemoteKey) -> Option<Self> {
        let (number, address) = key.as_bytes().split_first_chunk::<8>()?;
        let address = u64::from_le_bytes(address.try_into().ok()?);
        Some(CmaKey { number: u64::from_le_bytes(*number), address }).filter(|key| key.number != 0)
    }

    pub(super) fn read(key: &RemoteKey) -> Result<Self, PostError> {
        CmaKey::unpack(key).ok_or_else(|| CmaKey::garbage(key))
    }

    pub(super) fn garbage(key: &RemoteKey) -> PostError {
        PostError::Broken(format!("it sent a malformed shmdev key: {key:?}"))
    }
}

/// Access to the memory of another process, as its card describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeerMemory {
    process: u32,
    /// The address of the words of its [`ShmExposedTable`].
    table: u64,
}

impl PeerMemory {
    /// Bytes of a `PeerMemory` in a card.
    const CARD: usize = 12;

    /// Returns the access to the memory of this process.
    pub(super) fn own(exposed: &ShmExposedTable) -> Self {
        PeerMemory { process: sys::own_pid(), table: exposed.address() }
    }

    pub(super) fn to_card(self) -> [u8; Self::CARD] {
        let mut card = [0; Self::CARD];
        card[..4].copy_from_slice(&self.process.to_le_bytes());
        card[4..].copy_from_slice(&self.table.to_le_bytes());
        card
    }

    pub(super) fn from_card(card: &[u8]) -> Option<Self> {
        let (process, table) = card.split_first_chunk::<4>()?;
        let table = u64::from_le_bytes(table.try_into().ok()?);
        Some(PeerMemory { process: u32::from_le_bytes(*process), table })
    }

    /// Returns whether the system lets this process read the memory of the other.
    pub(super) fn is_readable(&self) -> bool {
        let mut read = [0u64; 2];
        let to = read.as_mut_ptr();
        let piece = |at: usize| RemoteIov { to: to.wrapping_add(at).cast(), from: self.table, len: 8 };
        // SAFETY: each piece is a word of `read`.
        let copied = unsafe { sys::read_process(self.process, &[piece(0), piece(1)]) };
        copied == Ok(16)
    }

    fn slot_address(&self, number: u64) -> u64 {
        self.table.wrapping_add(8 * slot_of(number) as u64)
    }

    fn word(&self, from: u64) -> Result<u64, sys::Errno> {
        let mut found = 0u64;
        let piece = RemoteIov { to: (&raw mut found).cast(), from, len: 8 };
        // SAFETY: the piece is `found`.
        match unsafe { sys::read_process(self.process, &[piece]) }? {
            8 => Ok(found),
            _ => Err(sys::Errno::FAULT),
        }
    }

    /// Returns whether the other process has published the checksum of these words, of which the last is the number of
    /// its exposure.
    pub(super) fn checksum_matches(&self, words: [u64; 5]) -> bool {
        self.word(self.slot_address(words[4])) == Ok(sum(words))
    }

    pub(super) fn peer_exposes(&self, key: &RemoteKey) -> bool {
        CmaKey::unpack(key)
            .is_some_and(|CmaKey { number, .. }| self.word(self.slot_address(number)) == Ok(number))
    }

    pub(super) fn process(&self) -> Option<sys::Process> {
        sys::Process::open(self.process)
    }

    /// Returns whether the other process may be writing to memory that this process has exposed under a number and
    /// revoked.
    pub(super) fn has_hazard(&self, number: u64, process: Option<&sys::Process>) -> bool {
        match self.word(self.table.wrapping_add(8 * SLOTS as u64)) {
            Ok(writing) => writing == number,
            // The table exists for as long as the rank writes. So the rank does not write any more, even if its process
            // id now belongs to another process.
            Err(sys::Errno::FAULT) => false,
            Err(_) => process.is_some_and(sys::Process::is_running),
        }
    }

    /// Writes `len` bytes at address `from` of this process to address `to` of the other one. Returns `None` if not all
    /// were written, for example because an address is not mapped.
    ///
    /// # Safety
    /// The other process expects them there.
    pub(super) unsafe fn write(&self, to: u64, from: u64, len: usize) -> Option<()> {
        // SAFETY: the caller's promise.
        let written = unsafe { sys::write_process(self.process, from, to, len) };
        (written == Ok(len)).then_some(())
    }

    /// Copies bytes that the other process exposes, from byte `at` of the key's range on.
    ///
    /// # Safety
    /// `to` is writable, and nobody else uses it.
    pub(super) unsafe fn copy(
        &self,
        key: &RemoteKey,
        at: u64,
        to: MemoryPart<'_>,
    ) -> Result<OpStatus, PostError> {
        let CmaKey { number, address } = CmaKey::read(key)?;
        let from = address.checked_add(at).ok_or_else(|| CmaKey::garbage(key))?;
        let slot = self.slot_address(number);
        let run = to.contiguous().ok_or(PostError::Unsupported)?;
        let mut found = 0u64;
        let pieces = [
            RemoteIov { to: run, from, len: to.len },
            RemoteIov { to: (&raw mut found).cast(), from: slot, len: 8 },
        ];
        // SAFETY: the first piece is all of `to`, by the caller's promise; the second is `found`.
        match unsafe { sys::read_process(self.process, &pieces) } {
            Ok(copied) if copied == to.len + 8 && found == number => Ok(OpStatus::Done),
            Ok(copied) if copied == to.len + 8 => Err(PostError::Revoked),
            // Some of the memory is not mapped, or the system denies access. The engine then requests the message in
            // frames.
            Ok(_) | Err(_) => Err(PostError::Unsupported),
        }
    }
}

#[cfg(all(test, target_os = "linux", not(mpj_portable), not(miri)))]
mod tests {
    use mpj_datatypes::Primitive;

    use super::*;

    fn memory(bytes: &mut [u8]) -> MemoryDesc {
        MemoryDesc::new(bytes.as_mut_ptr(), bytes.len(), Primitive::Byte.into()).unwrap()
    }

    fn copy(peer_memory: PeerMemory, key: &RemoteKey, at: u64, to: &mut [u8]) -> Result<OpStatus, PostError> {
        let memory = memory(to);
        let part = memory.part(0, memory.bytes(), None);
        // SAFETY: it is all of `to`, which is borrowed.
        unsafe { peer_memory.copy(key, at, part) }
    }

    #[test]
    fn exposed_memory_can_be_copied_in_ranges_until_it_is_revoked() {
        let exposed = ShmExposedTable::new();
        let peer_memory = PeerMemory::from_card(&PeerMemory::own(&exposed).to_card()).unwrap();
        assert!(peer_memory.is_readable());
        let mut source: Vec<u8> = (0..200).collect();
        let record = exposed.expose(&memory(&mut source)).unwrap();
        assert!(record.key(100, 101).is_none());
        let key = record.key(100, 100).unwrap();
        let mut to = [0u8; 50];
        assert_eq!(copy(peer_memory, &key, 50, &mut to), Ok(OpStatus::Done));
        assert_eq!(to[..], source[150..]);
        record.revoke();
        assert_eq!(copy(peer_memory, &key, 0, &mut to), Err(PostError::Revoked));
        drop(record);
        // The slot is used again, with another number.
        let _again = exposed.expose(&memory(&mut source)).unwrap();
        assert_eq!(copy(peer_memory, &key, 0, &mut to), Err(PostError::Revoked));
    }

    #[test]
    fn invalid_keys_and_processes_are_refused() {
        let exposed = ShmExposedTable::new();
        let peer_memory = PeerMemory::own(&exposed);
        let mut to = [0u8; 8];
        for garbage in [&[1u8; 15][..], &[1; 17], &[0; 16]] {
            let key = RemoteKey::new(garbage).unwrap();
            assert!(matches!(copy(peer_memory, &key, 0, &mut to), Err(PostError::Broken(_))), "{garbage:?}");
        }
        let nowhere = CmaKey { number: SLOTS as u64, address: 8 }.pack().unwrap();
        assert_eq!(copy(peer_memory, &nowhere, 0, &mut to), Err(PostError::Unsupported));
        assert!(matches!(copy(peer_memory, &nowhere, u64::MAX, &mut to), Err(PostError::Broken(_))));
        for away in [PeerMemory { process: u32::MAX, ..peer_memory }, PeerMemory { table: 8, ..peer_memory }]
        {
            assert!(!away.is_readable());
            assert_eq!(copy(away, &nowhere, 0, &mut to), Err(PostError::Unsupported));
        }
        assert_eq!(PeerMemory::from_card(&[0; 11]), None);
    }

    #[test]
    fn exposures_beyond_the_slots_are_refused() {
        let exposed = ShmExposedTable::new();
        let mut byte = [0u8];
        let all: Vec<_> = (0..SLOTS).map(|_| exposed.expose(&memory(&mut byte)).unwrap()).collect();
        assert!(exposed.expose(&memory(&mut byte)).is_none());
        drop(all);
        assert!(exposed.expose(&memory(&mut byte)).is_some());
    }
}

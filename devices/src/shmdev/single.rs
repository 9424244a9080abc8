//! Single copies: a receiver has the kernel copy a message out of the memory of its sender.
//!
//! A sender *shows* memory under a number, which stands in its table as long as the memory may be read. The receiver copies
//! the memory and then the number, in one call. Only if the number still stood there is the copy a message: otherwise the
//! sender has taken the memory back meanwhile, and may have written to it. So taking back never waits for a reader.
//!
//! A process that has taken the place of one that died has other numbers, or none.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::numbers::{PLACES, SlotIds, place};
use crate::device::{MemoryDesc, MemoryPart, OpStatus, PostError, Registration, RemoteKey};
use crate::sys::{self, RemotePiece};

/// The memory that one rank shows.
#[derive(Debug)]
pub(super) struct ExposedTable {
    /// Each holds the number of what is shown there, or 0; the last the number under which another rank has shown what this one
    /// writes to, or 0.
    places: Box<[AtomicU64]>,
    numbers: SlotIds,
}

/// One piece of memory that is shown, as the operation keeps it that the memory belongs to.
#[derive(Debug)]
pub(super) struct Exposure {
    shown: Arc<ExposedTable>,
    number: u64,
    base: u64,
    bytes: usize,
}

impl ExposedTable {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(ExposedTable {
            places: (0..=PLACES).map(|_| AtomicU64::new(0)).collect(),
            numbers: SlotIds::new(RandomState::new().hash_one(sys::own_process())),
        })
    }

    /// Shows memory of one run; `None` if it is none, or too much is shown.
    pub(super) fn show(self: &Arc<Self>, memory: &MemoryDesc) -> Option<Exposure> {
        let base = memory.run()?.expose_provenance() as u64;
        let number = self.numbers.take()?;
        // What was written to the memory was written before the number was.
        self.places.get(place(number))?.store(number, Ordering::Release);
        Some(Exposure { shown: Arc::clone(self), number, base, bytes: memory.bytes() })
    }

    /// Says that this rank writes to what another one has shown under a number, as long as `write` takes, which looks first
    /// whether it still stands.
    pub(super) fn with_hazard<T>(&self, number: u64, write: impl FnOnce() -> T) -> T {
        let writing = &self.places[PLACES];
        writing.store(number, Ordering::Relaxed);
        // Either we see that the other has taken it back, or it sees that we write.
        fence(Ordering::SeqCst);
        let written = write();
        writing.store(0, Ordering::Release);
        written
    }

    /// Whether memory is still shown under a number; what was read of it before is as it was shown, then.
    pub(super) fn is_exposed(&self, number: u64) -> bool {
        fence(Ordering::Acquire);
        let there = self.places.get(place(number)).map(|place| place.load(Ordering::Acquire));
        number != 0 && there == Some(number)
    }

    /// What says to which memory this rank writes.
    #[cfg(test)]
    pub(super) fn writing(&self) -> &AtomicU64 {
        &self.places[PLACES]
    }

    /// Where others find the numbers.
    fn address(&self) -> u64 {
        self.places.as_ptr().expose_provenance() as u64
    }
}

impl Exposure {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Stands for these words from now on, where the number stood that nobody was told; returns them and that number.
    pub(super) fn publish_checksum(&self, what: [u64; 4]) -> [u64; 5] {
        let [a, b, c, d] = what;
        let words = [a, b, c, d, self.number];
        if let Some(place) = self.shown.places.get(place(self.number)) {
            place.store(sum(words), Ordering::Release);
        }
        words
    }

    /// Keeps it with an operation.
    pub(super) fn register(self) -> Registration {
        let bytes = self.bytes;
        Registration::new(self, bytes)
    }

    /// Shows it no longer: whoever reads it from now on finds that out.
    pub(super) fn revoke(&self) {
        if let Some(place) = self.shown.places.get(place(self.number)) {
            place.store(0, Ordering::Relaxed);
            // What is written to the memory from now on is written after the number is gone.
            fence(Ordering::SeqCst);
        }
    }

    pub(super) fn key(&self, at: usize, len: usize) -> Option<RemoteKey> {
        at.checked_add(len).filter(|end| *end <= self.bytes)?;
        Key { number: self.number, address: self.base + at as u64 }.pack()
    }
}

impl Drop for Exposure {
    fn drop(&mut self) {
        self.revoke();
        self.shown.numbers.give(self.number);
    }
}

/// Returns a number that others than these words hardly have, and that is not 0.
fn sum(words: [u64; 5]) -> u64 {
    let mix = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    words.into_iter().fold(1, mix) | 1
}

/// What names memory that is shown. As short as it is, it shares the cell of its announcement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) number: u64,
    pub(super) address: u64,
}

impl Key {
    fn pack(self) -> Option<RemoteKey> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.address.to_le_bytes());
        RemoteKey::new(&bytes)
    }

    fn unpack(key: &RemoteKey) -> Option<Self> {
        let (number, address) = key.as_bytes().split_first_chunk::<8>()?;
        let address = u64::from_le_bytes(address.try_into().ok()?);
        Some(Key { number: u64::from_le_bytes(*number), address }).filter(|key| key.number != 0)
    }

    pub(super) fn read(key: &RemoteKey) -> Result<Self, PostError> {
        Key::unpack(key).ok_or_else(|| Key::garbage(key))
    }

    pub(super) fn garbage(key: &RemoteKey) -> PostError {
        PostError::Broken(format!("it sent a key that is none of shmdev: {key:?}"))
    }
}

/// The memory of another process, as its card names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeerMemory {
    process: u32,
    numbers: u64,
}

impl PeerMemory {
    /// Bytes of a window in a card.
    const CARD: usize = 12;

    /// Returns what others need to look into the memory of this process.
    pub(super) fn own(shown: &ExposedTable) -> Self {
        PeerMemory { process: sys::own_process(), numbers: shown.address() }
    }

    pub(super) fn to_card(self) -> [u8; Self::CARD] {
        let mut card = [0; Self::CARD];
        card[..4].copy_from_slice(&self.process.to_le_bytes());
        card[4..].copy_from_slice(&self.numbers.to_le_bytes());
        card
    }

    pub(super) fn from_card(card: &[u8]) -> Option<Self> {
        let (process, numbers) = card.split_first_chunk::<4>()?;
        let numbers = u64::from_le_bytes(numbers.try_into().ok()?);
        Some(PeerMemory { process: u32::from_le_bytes(*process), numbers })
    }

    /// Whether the system lets this process look through it.
    pub(super) fn is_open(&self) -> bool {
        let mut read = [0u64; 2];
        let to = read.as_mut_ptr();
        let piece = |at: usize| RemotePiece { to: to.wrapping_add(at).cast(), from: self.numbers, len: 8 };
        // SAFETY: each piece is a word of `read`.
        let copied = unsafe { sys::read_process(self.process, &[piece(0), piece(1)]) };
        copied == Ok(16)
    }

    /// Where the other process has a number, as long as it shows something under it.
    fn mark(&self, number: u64) -> u64 {
        self.numbers.wrapping_add(8 * place(number) as u64)
    }

    /// Reads a word of the other process.
    fn word(&self, from: u64) -> Result<u64, sys::Errno> {
        let mut found = 0u64;
        let piece = RemotePiece { to: (&raw mut found).cast(), from, len: 8 };
        // SAFETY: the piece is `note_hit`.
        match unsafe { sys::read_process(self.process, &[piece]) }? {
            8 => Ok(found),
            _ => Err(sys::Errno::FAULT),
        }
    }

    /// Whether the other process vouches for these words, of which the last is its number.
    pub(super) fn vouches_for(&self, words: [u64; 5]) -> bool {
        self.word(self.mark(words[4])) == Ok(sum(words))
    }

    /// Whether the other process still shows what a key names.
    pub(super) fn shows(&self, key: &RemoteKey) -> bool {
        Key::unpack(key).is_some_and(|Key { number, .. }| self.word(self.mark(number)) == Ok(number))
    }

    /// Returns the other process, if there is one.
    pub(super) fn process(&self) -> Option<sys::Process> {
        sys::Process::find(self.process)
    }

    /// Whether the other process may be writing to what this one has shown under a number, and has hidden.
    pub(super) fn is_writing(&self, number: u64, process: Option<&sys::Process>) -> bool {
        match self.word(self.numbers.wrapping_add(8 * PLACES as u64)) {
            Ok(writing) => writing == number,
            // The table is there while anybody writes: the rank is gone, and be it that its process has become another.
            Err(sys::Errno::FAULT) => false,
            Err(_) => process.is_some_and(sys::Process::runs),
        }
    }

    /// Writes `len` bytes of this process, if they are there, to address `to` of the other one; `None` if not all were written.
    ///
    /// # Safety
    /// The other process wants them written there.
    pub(super) unsafe fn write(&self, to: u64, from: u64, len: usize) -> Option<()> {
        // SAFETY: the caller's promise.
        let written = unsafe { sys::write_process(self.process, from, to, len) };
        (written == Ok(len)).then_some(())
    }

    /// Copies bytes that the other process shows, beginning with byte `at` of what the key names.
    ///
    /// # Safety
    /// `to` is writable, and nobody else uses it.
    pub(super) unsafe fn copy(
        &self,
        key: &RemoteKey,
        at: u64,
        to: MemoryPart<'_>,
    ) -> Result<OpStatus, PostError> {
        let Key { number, address } = Key::read(key)?;
        let from = address.checked_add(at).ok_or_else(|| Key::garbage(key))?;
        let mark = self.mark(number);
        let run = to.run().ok_or(PostError::Unsupported)?;
        let mut found = 0u64;
        let pieces = [
            RemotePiece { to: run, from, len: to.len },
            RemotePiece { to: (&raw mut found).cast(), from: mark, len: 8 },
        ];
        // SAFETY: the first piece is all of `to`, by the caller's promise; the second is `note_hit`.
        match unsafe { sys::read_process(self.process, &pieces) } {
            Ok(copied) if copied == to.len + 8 && found == number => Ok(OpStatus::Done),
            Ok(copied) if copied == to.len + 8 => Err(PostError::Revoked),
            // Some of the memory is not there, or the system does not let us: the sender is asked to send it.
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

    fn copy(window: PeerMemory, key: &RemoteKey, at: u64, to: &mut [u8]) -> Result<OpStatus, PostError> {
        let memory = memory(to);
        let part = memory.part(0, memory.bytes(), None);
        // SAFETY: it is all of `to`, which is borrowed.
        unsafe { window.copy(key, at, part) }
    }

    #[test]
    fn what_is_shown_can_be_copied_in_parts_until_it_is_hidden() {
        let shown = ExposedTable::new();
        let window = PeerMemory::from_card(&PeerMemory::own(&shown).to_card()).unwrap();
        assert!(window.is_open());
        let mut source: Vec<u8> = (0..200).collect();
        let record = shown.show(&memory(&mut source)).unwrap();
        assert!(record.key(100, 101).is_none());
        let key = record.key(100, 100).unwrap();
        let mut to = [0u8; 50];
        assert_eq!(copy(window, &key, 50, &mut to), Ok(OpStatus::Done));
        assert_eq!(to[..], source[150..]);
        record.revoke();
        assert_eq!(copy(window, &key, 0, &mut to), Err(PostError::Revoked));
        drop(record);
        // The place is used again, by another number.
        let _again = shown.show(&memory(&mut source)).unwrap();
        assert_eq!(copy(window, &key, 0, &mut to), Err(PostError::Revoked));
    }

    #[test]
    fn keys_windows_and_processes_that_make_no_sense_are_refused() {
        let shown = ExposedTable::new();
        let window = PeerMemory::own(&shown);
        let mut to = [0u8; 8];
        for garbage in [&[1u8; 15][..], &[1; 17], &[0; 16]] {
            let key = RemoteKey::new(garbage).unwrap();
            assert!(matches!(copy(window, &key, 0, &mut to), Err(PostError::Broken(_))), "{garbage:?}");
        }
        let nowhere = Key { number: PLACES as u64, address: 8 }.pack().unwrap();
        assert_eq!(copy(window, &nowhere, 0, &mut to), Err(PostError::Unsupported));
        assert!(matches!(copy(window, &nowhere, u64::MAX, &mut to), Err(PostError::Broken(_))));
        for away in [PeerMemory { process: u32::MAX, ..window }, PeerMemory { numbers: 8, ..window }] {
            assert!(!away.is_open());
            assert_eq!(copy(away, &nowhere, 0, &mut to), Err(PostError::Unsupported));
        }
        assert_eq!(PeerMemory::from_card(&[0; 11]), None);
    }

    #[test]
    fn more_than_there_are_places_is_not_shown() {
        let shown = ExposedTable::new();
        let mut byte = [0u8];
        let all: Vec<_> = (0..PLACES).map(|_| shown.show(&memory(&mut byte)).unwrap()).collect();
        assert!(shown.show(&memory(&mut byte)).is_none());
        drop(all);
        assert!(shown.show(&memory(&mut byte)).is_some());
    }
}

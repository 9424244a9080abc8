use core::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::StorageError;

pub(crate) const HEADER: usize = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"MPJPOOL\0");
const VERSION: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) size: u64,
    pub(crate) epoch: u64,
}

impl Header {
    pub(crate) const LEN: usize = 32;

    pub(crate) fn encode(&self) -> [u8; Header::LEN] {
        let mut bytes = [0; Header::LEN];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(HEADER as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes
    }

    /// Decodes a header, without a check of `size`.
    pub(crate) fn decode(bytes: &[u8; Header::LEN]) -> Result<Header, StorageError> {
        let magic = word(bytes, 0);
        if magic == 0 {
            return Err(StorageError::Unfinished);
        }
        if magic != MAGIC {
            return Err(StorageError::Magic { found: magic });
        }
        let (version, length) = (word(bytes, 8) as u32, word(bytes, 8) >> 32);
        if version != VERSION {
            return Err(StorageError::Version { needed: VERSION, found: version });
        }
        if length != HEADER as u64 {
            return Err(StorageError::Short { needed: HEADER as u64, found: length });
        }
        Ok(Header { size: word(bytes, 16), epoch: word(bytes, 24) })
    }
}

fn word(bytes: &[u8; Header::LEN], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Returns an epoch that other segments of this host are very unlikely to have: the time in nanoseconds, combined with
/// process and count, and mixed so that successive epochs differ in many bits.
pub(crate) fn new_epoch() -> u64 {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    // Relaxed: each call only needs a different number.
    let count = COUNT.fetch_add(1, Ordering::Relaxed) as u64;
    let seed = time ^ (u64::from(std::process::id()) << 32) ^ count.rotate_right(16);
    // The finaliser of splitmix64, a bijection.
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips() {
        let header = Header { size: 1 << 40, epoch: 7 };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn header_bytes_match_the_documentation() {
        let bytes = Header { size: 0x1000, epoch: 0x0102 }.encode();
        assert_eq!(bytes, *b"MPJPOOL\0\x01\0\0\0\x00\x10\0\0\x00\x10\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0");
    }

    #[test]
    fn wrong_fields_are_rejected() {
        let good = Header { size: 4096, epoch: 7 }.encode();
        let with = |at: usize| {
            let mut bytes = good;
            bytes[at] ^= 0x80;
            Header::decode(&bytes)
        };
        assert!(matches!(with(3), Err(StorageError::Magic { .. })));
        assert!(matches!(with(8), Err(StorageError::Version { needed: 1, found: 129 })));
        assert!(matches!(with(12), Err(StorageError::Short { .. })));
    }

    #[test]
    fn epochs_differ() {
        let epochs: std::collections::HashSet<u64> = (0..1000).map(|_| new_epoch()).collect();
        assert_eq!(epochs.len(), 1000);
    }
}

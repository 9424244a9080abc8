//! The keys of exposed memory in the devices with rings.

use super::INLINE;
use crate::device::{HEAD_MAX, RemoteKey};

/// The remote key of a part of exposed memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryKey {
    /// The number of the exposure. A key whose number is outdated is refused, so all 64 bits are sent.
    pub(crate) number: u64,
    /// The offset of the first byte; the device defines its origin.
    pub(crate) offset: u64,
}

/// The bytes of a key with an offset below 4 GiB, and of any other key.
const SHORT: usize = 12;
const LONG: usize = 16;
// An RTS with a short key fits in one cell.
const _: () = assert!(HEAD_MAX + SHORT <= INLINE);

impl MemoryKey {
    /// Packs the key: the number, and the offset in 4 bytes or, if it needs more, in 8; all little-endian.
    pub(crate) fn pack(self) -> Option<RemoteKey> {
        let mut bytes = [0; LONG];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        let is_short = self.offset <= u64::from(u32::MAX);
        RemoteKey::new(&bytes[..if is_short { SHORT } else { LONG }])
    }

    /// Unpacks a key; returns `None` if its length is neither [`SHORT`] nor [`LONG`].
    pub(crate) fn unpack(key: &RemoteKey) -> Option<Self> {
        let (number, rest) = key.as_bytes().split_first_chunk()?;
        let offset = match rest.len() {
            4 => u32::from_le_bytes(rest.try_into().ok()?).into(),
            _ => u64::from_le_bytes(rest.try_into().ok()?),
        };
        Some(MemoryKey { number: u64::from_le_bytes(*number), offset })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn key_with_an_offset_below_4_gib_is_short() {
        let last_short = u64::from(u32::MAX);
        for (offset, len) in [(0, SHORT), (last_short, SHORT), (last_short + 1, LONG), (u64::MAX, LONG)] {
            let key = MemoryKey { number: u64::MAX - 5, offset };
            let packed = key.pack().unwrap();
            assert_eq!((packed.as_bytes().len(), MemoryKey::unpack(&packed)), (len, Some(key)));
        }
        for len in [1, 7, 8, 11, 13, 15, 17] {
            assert_eq!(MemoryKey::unpack(&RemoteKey::new(&vec![1; len]).unwrap()), None, "{len} bytes");
        }
    }
}

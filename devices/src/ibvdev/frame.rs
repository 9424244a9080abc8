//! The format of the messages between the two ends of a connection. Each message begins with a header; most carry
//! frames of the engine.
//!
//! ```text
//!  0      1          2              4                4 + length of the head
//!  kind   length     returned       head             body
//!  u8     u8         u16            up to 44 bytes   the rest of the message
//! ```
//! A message of kind `Batch` has an entry for each frame after its header:
//! ```text
//!  0         1         3        3 + length of the head
//!  length    length    head     body
//!  of head   of body
//!  u8        u16
//! ```
//! Integers are little-endian. `returned` is the number of receives for frames of the addressee that the sender has
//! posted again since its last message.

use crate::device::HEAD_MAX;

pub(super) const HEADER: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IbvFrameKind {
    /// One frame of the engine. It uses one of the receives that the peer has posted for this end.
    Frame = 1,
    /// Returns credit and carries nothing else. It uses a receive that is reserved for such messages.
    Credit = 2,
    /// Revokes a key; the head is the number of the key. The peer must not start another read by the key. The message
    /// uses a receive, as a frame does.
    Revoke = 3,
    /// Confirms a revocation; the head is the number of the key. The message uses a receive, too.
    RevokeAck = 4,
    /// Several frames of the engine, which together use one receive.
    Batch = 5,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IbvHeader {
    pub(super) kind: IbvFrameKind,
    pub(super) head: usize,
    pub(super) returned: u16,
}

impl IbvHeader {
    #[inline]
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let [low, high] = self.returned.to_le_bytes();
        [self.kind as u8, self.head as u8, low, high]
    }

    /// Splits a message into its header, head and body. Returns `None` if the header is invalid.
    #[inline]
    pub(super) fn parse(message: &[u8]) -> Option<(IbvHeader, &[u8], &[u8])> {
        let (&[kind, head, low, high], rest) = message.split_first_chunk()?;
        let kind = match kind {
            1 => IbvFrameKind::Frame,
            2 => IbvFrameKind::Credit,
            3 => IbvFrameKind::Revoke,
            4 => IbvFrameKind::RevokeAck,
            5 => IbvFrameKind::Batch,
            _ => return None,
        };
        let header = IbvHeader { kind, head: head.into(), returned: u16::from_le_bytes([low, high]) };
        let (head, body) = rest.split_at_checked(header.head).filter(|(head, _)| head.len() <= HEAD_MAX)?;
        Some((header, head, body))
    }
}

/// The length of the prefix of each frame in a batch.
pub(super) const ENTRY: usize = 3;

/// The lengths of one frame in a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BatchEntry {
    pub(super) head: usize,
    pub(super) body: usize,
}

impl BatchEntry {
    #[inline]
    pub(super) fn len(self) -> usize {
        ENTRY + self.head + self.body
    }

    /// Returns the prefix. Only short frames are batched, so `body` fits into 16 bits.
    pub(super) fn to_bytes(self) -> [u8; ENTRY] {
        let [low, high] = (self.body as u16).to_le_bytes();
        [self.head as u8, low, high]
    }

    /// Splits the first frame off a batch. Returns its head, its body and the remaining bytes, or `None` if the batch
    /// has no complete frame.
    #[inline]
    pub(super) fn split(batch: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
        let (&[head, low, high], rest) = batch.split_first_chunk()?;
        let (head, rest) = rest.split_at_checked(head.into()).filter(|(head, _)| head.len() <= HEAD_MAX)?;
        let (body, rest) = rest.split_at_checked(u16::from_le_bytes([low, high]).into())?;
        Some((head, body, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_headers_parse_and_invalid_ones_are_refused() {
        let header = IbvHeader { kind: IbvFrameKind::Revoke, head: 8, returned: 0x1234 };
        let message = [&header.to_bytes()[..], &[7; 8], b"body"].concat();
        assert_eq!(IbvHeader::parse(&message), Some((header, &[7u8; 8][..], &b"body"[..])));
        for cut in 0..12 {
            assert_eq!(IbvHeader::parse(&message[..cut]), None, "{cut} bytes");
        }
        for kind in (0..=255).filter(|kind| !(1..=5).contains(kind)) {
            assert_eq!(IbvHeader::parse(&[kind, 0, 0, 0]), None);
        }
        let mut long = [1u8; 300];
        long[1] = HEAD_MAX as u8;
        assert!(IbvHeader::parse(&long).is_some());
        long[1] += 1;
        assert_eq!(IbvHeader::parse(&long), None);
    }

    #[test]
    fn batches_split_into_frames_and_truncated_ones_are_refused() {
        let entries = [(&[1u8; 8][..], &b"one"[..]), (&[2; HEAD_MAX], b""), (b"", &[3; 300])];
        let mut batch = Vec::new();
        for (head, body) in entries {
            let entry = BatchEntry { head: head.len(), body: body.len() };
            batch.extend([&entry.to_bytes()[..], head, body].concat());
            assert_eq!(entry.len(), 3 + head.len() + body.len());
        }
        let mut rest = &batch[..];
        for (head, body) in entries {
            let (first, second, after) = BatchEntry::split(rest).unwrap();
            assert_eq!((first, second), (head, body));
            rest = after;
        }
        assert_eq!((rest.len(), BatchEntry::split(rest)), (0, None));
        assert!((0..14).all(|cut| BatchEntry::split(&batch[..cut]).is_none()));
        assert_eq!(BatchEntry::split(&[57; 300]), None);
    }
}

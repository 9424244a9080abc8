//! What goes from one end of a queue pair to the other: a header, and after it a frame of the engine's or nothing.
//!
//! ```text
//!  0      1          2              4                4 + length of the head
//!  kind   length     returned       head             body
//!  u8     u8         u16            up to 56 bytes   what is left of the message
//! ```
//! Little-endian. `returned` is how many receives the sender has posted anew for the peer since it has said so last.

use crate::device::HEAD_MAX;

/// The bytes of a header.
pub(super) const HEADER: usize = 4;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A frame of the engine's. It takes one of the receives that the peer has posted for this end.
    Frame = 1,
    /// Nothing but `returned`. It takes a receive that is kept for such messages.
    Credit = 2,
    /// The head is the number of a key: nothing may be got by it any more. It takes a receive as a frame does.
    Revoke = 3,
    /// The head is the number of a key that was revoked: nothing will be got by it. It takes a receive as a frame does.
    Quiet = 4,
}

/// The beginning of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// The length of the head.
    pub(super) head: usize,
    pub(super) returned: u16,
}

impl Header {
    #[inline]
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let [low, high] = self.returned.to_le_bytes();
        [self.kind as u8, self.head as u8, low, high]
    }

    /// Takes a message apart: header, head and body; `None` if it is none.
    #[inline]
    pub(super) fn parse(message: &[u8]) -> Option<(Header, &[u8], &[u8])> {
        let (&[kind, head, low, high], rest) = message.split_first_chunk()?;
        let kind = match kind {
            1 => Kind::Frame,
            2 => Kind::Credit,
            3 => Kind::Revoke,
            4 => Kind::Quiet,
            _ => return None,
        };
        let header = Header { kind, head: head.into(), returned: u16::from_le_bytes([low, high]) };
        let (head, body) = rest.split_at_checked(header.head).filter(|(head, _)| head.len() <= HEAD_MAX)?;
        Some((header, head, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_apart_or_refused_whatever_its_bytes_are() {
        let header = Header { kind: Kind::Revoke, head: 8, returned: 0x1234 };
        let message = [&header.to_bytes()[..], &[7; 8], b"body"].concat();
        assert_eq!(Header::parse(&message), Some((header, &[7u8; 8][..], &b"body"[..])));
        for cut in 0..12 {
            assert_eq!(Header::parse(&message[..cut]), None, "{cut} bytes");
        }
        for kind in (0..=255).filter(|kind| !(1..=4).contains(kind)) {
            assert_eq!(Header::parse(&[kind, 0, 0, 0]), None);
        }
        let mut long = [1u8; 300];
        long[1] = HEAD_MAX as u8;
        assert!(Header::parse(&long).is_some());
        long[1] += 1;
        assert_eq!(Header::parse(&long), None);
    }
}

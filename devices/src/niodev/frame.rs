//! The wire format of frames.
//!
//! ```text
//!  0         1        2        3        8          16
//!  length    mark     kind     zeros    length     head     body
//!  of head                              of body
//!  u8        u8       u8                u64
//! ```
//! The length of the body is little-endian.

use crate::device::HEAD_MAX;

/// The bytes before the head.
pub(super) const HEADER: usize = 16;

/// The largest body in bytes.
pub(super) const BODY_MAX: usize = 16 << 20;

/// The byte after the length of the head, which identifies this format and its version.
const MARK: u8 = 0xA1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NioFrameKind {
    /// A frame of the engine: a head and a body.
    Data,
    /// The peer sends nothing more and exits normally.
    Goodbye,
    /// The peer waits until its data is acknowledged: acknowledge it now.
    Settle,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NioHeader {
    pub(super) kind: NioFrameKind,
    /// The length of the head in bytes.
    pub(super) head: usize,
    /// The length of the body in bytes.
    pub(super) body: usize,
}

impl NioHeader {
    #[inline]
    pub(super) fn data(head: usize, body: usize) -> Self {
        NioHeader { kind: NioFrameKind::Data, head, body }
    }

    pub(super) fn bare(kind: NioFrameKind) -> Self {
        NioHeader { kind, head: 0, body: 0 }
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let kind = match self.kind {
            NioFrameKind::Data => 0,
            NioFrameKind::Goodbye => 1,
            NioFrameKind::Settle => 2,
        };
        let [a, b, c, d, e, f, g, h] = (self.body as u64).to_le_bytes();
        [self.head as u8, MARK, kind, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h]
    }

    /// Parses a header from a peer: its bytes are untrusted.
    #[inline]
    pub(super) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let [head, MARK, kind, 0, 0, 0, 0, 0, length @ ..] = *bytes else { return None };
        let kind = match kind {
            0 => NioFrameKind::Data,
            1 => NioFrameKind::Goodbye,
            2 => NioFrameKind::Settle,
            _ => return None,
        };
        let body = usize::try_from(u64::from_le_bytes(length)).ok()?;
        let header = NioHeader { kind, head: usize::from(head), body };
        let is_valid = match kind {
            NioFrameKind::Data => header.head <= HEAD_MAX && body <= BODY_MAX,
            NioFrameKind::Goodbye | NioFrameKind::Settle => header.head == 0 && body == 0,
        };
        is_valid.then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_the_documented_bytes_and_round_trip() {
        let data = NioHeader::data(40, 0x01_0203);
        let settle = NioHeader::bare(NioFrameKind::Settle);
        assert_eq!(data.to_bytes(), [40, 0xA1, 0, 0, 0, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0, 0]);
        assert_eq!(settle.to_bytes(), [0, 0xA1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for header in [data, settle] {
            assert_eq!(NioHeader::parse(&header.to_bytes()), Some(header));
        }
    }
}

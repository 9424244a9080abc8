//! The wire format of frames.
//!
//! ```text
//!  0         1        2       3..8    8..16
//!  head u8   mark u8  kind u8 zero    body u64 little-endian     then the head, then the body
//! ```

use crate::device::HEAD_MAX;

/// The length of the header, which precedes head and body.
pub(super) const HEADER: usize = 16;

/// The longest body of a frame; ranks of this version announce none that is longer.
pub(super) const BODY_MAX: usize = 16 << 20;

/// The byte after the head's length: it marks a frame and the version of this format.
const MARK: u8 = 0xA1;

/// The purpose of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A frame of the engine: a head and a body.
    Data,
    /// The peer sends nothing more and exits normally.
    Goodbye,
    /// The peer waits for the acknowledgement of all that it has sent: acknowledge it now.
    Settle,
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) head: usize,
    pub(super) body: usize,
}

impl Header {
    /// Returns the header of a frame of the engine.
    #[inline]
    pub(super) fn data(head: usize, body: usize) -> Self {
        Header { kind: Kind::Data, head, body }
    }

    /// Returns the header of a frame without head and body.
    pub(super) fn bare(kind: Kind) -> Self {
        Header { kind, head: 0, body: 0 }
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let kind = match self.kind {
            Kind::Data => 0,
            Kind::Goodbye => 1,
            Kind::Settle => 2,
        };
        let [a, b, c, d, e, f, g, h] = (self.body as u64).to_le_bytes();
        [self.head as u8, MARK, kind, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h]
    }

    /// Parses a header from a peer: its bytes are untrusted.
    #[inline]
    pub(super) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let [head, MARK, kind, 0, 0, 0, 0, 0, length @ ..] = *bytes else { return None };
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::Goodbye,
            2 => Kind::Settle,
            _ => return None,
        };
        let body = usize::try_from(u64::from_le_bytes(length)).ok()?;
        let header = Header { kind, head: usize::from(head), body };
        let sound = match kind {
            Kind::Data => header.head <= HEAD_MAX && body <= BODY_MAX,
            Kind::Goodbye | Kind::Settle => header.head == 0 && body == 0,
        };
        sound.then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Peers depend on these bytes: they must not depend on the byte order of this processor.
    #[test]
    fn headers_have_the_documented_bytes() {
        let data = Header::data(40, 0x01_0203);
        let settle = Header::bare(Kind::Settle);
        assert_eq!(data.to_bytes(), [40, 0xA1, 0, 0, 0, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0, 0]);
        assert_eq!(settle.to_bytes(), [0, 0xA1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for header in [data, settle] {
            assert_eq!(Header::parse(&header.to_bytes()), Some(header));
        }
    }
}

//! The heads of frames: the wire format of the protocols.
//!
//! ```text
//!  short, 8 B                         medium, 12 B        long, 44 B
//!  0      1      2        4           8                   12      20      28      36
//!  kind   code   channel  tag         immediate           hash    count   op      extra
//!  u8     u8     u16      i32         u32                 u64     u64     u64     u64
//! ```
//! All fields are little-endian. In frames of messages, `code` is the primitive of the message. It is 0 for a mixed
//! message, and then `hash` and `count` are its signature. An [`Eager`](FrameKind::Eager) message of one primitive has
//! a short head, so that up to 48 bytes of body share its cache line, or a medium one, for 44 bytes, if it has
//! [immediate data](crate::MessageTag). All other frames have a long head.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// Binds the sender's channel id `channel` to the context `hash`, in which the sender has rank `tag`.
    Bind = 1,
    /// An eager message with its body.
    Eager = 2,
    /// An eager message of the sender's operation `op`, which waits for [`FrameKind::Fin`] or [`FrameKind::Nack`].
    EagerSync = 3,
    /// A message of `extra` bytes whose body is at the sender, as its operation `op`. The body of the frame, if any, is
    /// the [`RemoteKey`](crate::device::RemoteKey) with which the receiver can get or view the body of the message.
    Rts = 4,
    /// Requests the body of the sender's operation `op`, in data frames for the receiver's operation `extra`.
    Cts = 5,
    /// A piece of the body for the receiver's operation `op`, at byte `extra`.
    Data = 6,
    /// The receiver has matched the message of the sender's operation `op`, and needs nothing more of it.
    Fin = 7,
    /// A transfer of `extra` bytes of credit. `op` 0: the receiver of messages grants them, for the first time or
    /// again. 1: the receiver recalls up to that number of bytes. 2: the sender of messages returns them.
    Credit = 8,
    /// Ends an operation of context `hash`. It names the context, because either side may have freed the channel.
    /// `extra` 0: the body for the receiver's operation `op` will not come. 1: the message of the sender's operation
    /// `op` will not be received. `count` is 1 + the first dead rank in the roster of this frame's sender, or 0 without
    /// a death.
    Nack = 9,
}

impl FrameKind {
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => FrameKind::Bind,
            2 => FrameKind::Eager,
            3 => FrameKind::EagerSync,
            4 => FrameKind::Rts,
            5 => FrameKind::Cts,
            6 => FrameKind::Data,
            7 => FrameKind::Fin,
            8 => FrameKind::Credit,
            9 => FrameKind::Nack,
            _ => return None,
        })
    }
}

/// The first word of every head. Its parts are stored as one word, because a load of a word waits if several narrower
/// stores have just written it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Default, Debug)]
#[repr(transparent)]
pub(crate) struct ShortHead(U64);

impl ShortHead {
    #[inline]
    pub(crate) fn new(kind: FrameKind, code: u8, channel: u16, tag: i32) -> Self {
        let tag = u64::from(tag.cast_unsigned());
        ShortHead(U64::new(kind as u64 | u64::from(code) << 8 | u64::from(channel) << 16 | tag << 32))
    }

    #[inline]
    pub(crate) fn kind(self) -> u8 {
        self.0.get() as u8
    }

    #[inline]
    pub(crate) fn code(self) -> u8 {
        (self.0.get() >> 8) as u8
    }

    #[inline]
    fn channel(self) -> u16 {
        (self.0.get() >> 16) as u16
    }

    #[inline]
    fn tag(self) -> i32 {
        ((self.0.get() >> 32) as u32).cast_signed()
    }
}

/// The medium head.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Default, Debug)]
#[repr(C)]
pub(crate) struct MediumHead {
    short: ShortHead,
    immediate: U32,
}

impl MediumHead {
    #[inline]
    pub(crate) fn new(short: ShortHead, immediate: u32) -> Self {
        MediumHead { short, immediate: U32::new(immediate) }
    }
}

/// The long head; a shorter one is read as a long one with zeros.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Default, Debug)]
#[repr(C)]
pub(crate) struct Head {
    pub(crate) short: ShortHead,
    immediate: U32,
    pub(crate) hash: U64,
    pub(crate) count: U64,
    pub(crate) op: U64,
    pub(crate) extra: U64,
}

const SHORT: usize = size_of::<ShortHead>();
const MEDIUM: usize = size_of::<MediumHead>();
const LONG: usize = size_of::<Head>();
/// The longest body that shares a cache line with a short head, and the minimum of the eager limit parameters.
pub(crate) const MAX_INLINE_BODY: usize = crate::ring::INLINE - SHORT;

const _: () = assert!(SHORT == 8 && MEDIUM == 12 && LONG == 44 && LONG <= crate::device::HEAD_MAX);

impl Head {
    pub(crate) fn new(kind: FrameKind, code: u8, channel: u16, tag: i32) -> Self {
        Head { short: ShortHead::new(kind, code, channel, tag), ..Head::default() }
    }

    pub(crate) fn with_immediate(self, immediate: u32) -> Self {
        Head { immediate: U32::new(immediate), ..self }
    }

    /// Parses a head from a peer: its bytes are untrusted.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(FrameKind, Self)> {
        let head = match bytes.len() {
            SHORT => Head { short: ShortHead::read_from_bytes(bytes).ok()?, ..Head::default() },
            MEDIUM => {
                let MediumHead { short, immediate } = MediumHead::read_from_bytes(bytes).ok()?;
                Head { short, immediate, ..Head::default() }
            }
            LONG => Head::read_from_bytes(bytes).ok()?,
            _ => return None,
        };
        Some((FrameKind::from_code(head.short.kind())?, head))
    }

    /// Returns the bytes to send: the shortest form that has the fields of this kind of frame.
    pub(crate) fn bytes(&self) -> &[u8] {
        let bytes = self.as_bytes();
        if self.short.kind() != FrameKind::Eager as u8 || self.short.code() == 0 {
            bytes
        } else if self.immediate() != 0 {
            &bytes[..MEDIUM]
        } else {
            &bytes[..SHORT]
        }
    }

    pub(crate) fn channel(&self) -> usize {
        usize::from(self.short.channel())
    }

    pub(crate) fn tag(&self) -> i32 {
        self.short.tag()
    }

    pub(crate) fn immediate(&self) -> u32 {
        self.immediate.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Peers depend on these bytes: they must not depend on the byte order of this processor.
    #[test]
    fn heads_have_the_documented_bytes() {
        let short = Head::new(FrameKind::Eager, 7, 0x0102, -2);
        assert_eq!(short.bytes(), [2, 7, 2, 1, 0xfe, 0xff, 0xff, 0xff]);
        let [hash, count, op, extra] = [0x0102, 3, 4, 5 << 32].map(U64::new);
        let long = Head { hash, count, op, extra, ..Head::new(FrameKind::Rts, 0, 6, 0x0304) };
        let medium = short.with_immediate(0x0a0b_0c0d);
        assert_eq!(medium.bytes(), [short.bytes(), &[0xd, 0xc, 0xb, 0xa]].concat());
        assert_eq!(medium.bytes(), MediumHead::new(short.short, 0x0a0b_0c0d).as_bytes());
        let long = long.with_immediate(9);
        let words = [0x0102, 3, 4, 5 << 32].map(u64::to_le_bytes);
        let start = [4, 0, 6, 0, 4, 3, 0, 0, 9, 0, 0, 0];
        assert_eq!(long.bytes(), [&start[..], words.as_flattened()].concat());
        for head in [short, medium, long] {
            let (kind, back) = Head::parse(head.bytes()).unwrap();
            assert_eq!((kind as u8, back.as_bytes()), (head.short.kind(), head.as_bytes()));
        }
    }
}

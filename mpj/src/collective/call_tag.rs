//! The tag of a collective's message: the sequence number of the call, and a digest of its arguments.
//!
//! ```text
//!   bit 31     30 ... 27   26               25 ... 19       18 ... 0
//!   0          kind        algorithm        agreed values   sequence number
//! ```
//! Messages are matched only by source, sequence number and bit 31, which marks a notice. So a message of another
//! collective matches, and the receiver detects the mismatch.

use std::fmt;

use crate::op::Op;

/// The bits of a sequence number that are sent: they distinguish two calls if fewer than 2^18 calls lie between them.
const SEQ_MASK: u32 = (1 << 19) - 1;

/// The number of calls from one resync to the next. Resyncs bound how far a rank can be ahead of another. Credit does
/// not: along a tree, each rank can be ahead of the next by the number of messages that its credit allows.
const RESYNC_INTERVAL: u32 = 1 << 17;

/// The bits of a tag that a receive compares: the sequence number and the sign bit.
pub(crate) const MATCH_MASK: i32 = i32::MIN | SEQ_MASK as i32;

pub(crate) fn wire_seq(seq: u32) -> u32 {
    seq & SEQ_MASK
}

/// Returns whether a call begins with a resync: a barrier of all ranks before anything else is sent.
#[inline]
pub(crate) fn is_resync(seq: u32) -> bool {
    seq.is_multiple_of(RESYNC_INTERVAL) && seq != 0
}

/// Returns the sequence number that is nearest to `current` and has the bits in `tag`.
pub(crate) fn decode_seq(current: u32, tag: i32) -> u32 {
    let ahead = (tag.cast_unsigned().wrapping_sub(current)) & SEQ_MASK;
    let ahead = if ahead > SEQ_MASK / 2 { ahead.wrapping_sub(SEQ_MASK + 1) } else { ahead };
    current.wrapping_add(ahead)
}

/// Returns whether call `a` comes before call `b`; sequence numbers wrap around.
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b)).cast_signed() < 0
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum CollectiveKind {
    Barrier = 0,
    Bcast = 1,
    Reduce = 2,
    Allreduce = 3,
    ReduceScatter = 4,
    Scan = 5,
    Gather = 6,
    Scatter = 7,
    Allgather = 8,
    Alltoall = 9,
    BcastObject = 10,
    Dup = 11,
    Split = 12,
    BcastBuffer = 13,
    GatherBuffers = 14,
    ScatterBuffers = 15,
}

const NAMES: [&str; 16] = [
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "reduce_scatter",
    "scan",
    "gather",
    "scatter",
    "allgather",
    "alltoall",
    "bcast_object",
    "dup",
    "split",
    "bcast_buffer",
    "gather_buffers",
    "scatter_buffers",
];

/// The largest prime below 2^7. Different values modulo this number differ in their digest.
const DIGEST_PRIME: u64 = 127;

/// The largest prime below 2^6, for a digest that leaves one bit for another purpose.
const DIGEST_PRIME_6BIT: u64 = 61;

/// A digest of the arguments that must be equal on all ranks: the kind of collective, the algorithm, and the agreed
/// values (root, number of bytes, operation).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallDigest(u16);

impl CallDigest {
    /// Returns the digest of a collective in which all ranks agree on one value: the root, a total, or 0 for no value.
    pub(crate) fn new(kind: CollectiveKind, agreed: usize) -> Self {
        let agreed = (agreed as u64 % DIGEST_PRIME) as u16;
        CallDigest((kind as u16) << 8 | agreed)
    }

    /// Returns the digest of a reduction, in which all ranks must also agree on `op`.
    pub(crate) fn reduction(kind: CollectiveKind, agreed: usize, op: &Op) -> Self {
        let agreed = agreed as u64 % DIGEST_PRIME + 11 * u64::from(op.wire_code());
        CallDigest::new(kind, agreed as usize)
    }

    /// Returns the digest of an allreduce. The linear algorithm and the others never have the same digest, whatever the
    /// lengths, because two ranks with different algorithms might each wait for a message that the other does not send.
    pub(crate) fn allreduce(bytes: usize, op: &Op, is_linear: bool) -> Self {
        let agreed = (bytes as u64 % DIGEST_PRIME_6BIT + 11 * u64::from(op.wire_code())) % DIGEST_PRIME_6BIT;
        CallDigest::new(CollectiveKind::Allreduce, (agreed | u64::from(is_linear) << 6) as usize)
    }

    pub(crate) fn with_algorithm_bit(self, bit: bool) -> Self {
        CallDigest(self.0 | u16::from(bit) << 7)
    }

    pub(crate) fn tag(self, seq: u32) -> i32 {
        (u32::from(self.0) << 19 | wire_seq(seq)).cast_signed()
    }

    pub(crate) fn of(tag: i32) -> Self {
        CallDigest((tag.cast_unsigned() >> 19) as u16 & 0xfff)
    }

    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn from_bits(bits: u16) -> Self {
        CallDigest(bits & 0xfff)
    }

    pub(crate) fn same_collective(self, other: CallDigest) -> bool {
        self.0 >> 8 == other.0 >> 8
    }

    /// Describes how a call with this digest differs from one with `mine`.
    pub(crate) fn describe_mismatch(self, mine: CallDigest) -> String {
        if self.same_collective(mine) {
            format!("called {self} with a different root, operation, length or algorithm parameter")
        } else {
            format!("called {self} instead")
        }
    }
}

impl fmt::Display for CallDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.get(usize::from(self.0 >> 8)).unwrap_or(&"an unknown collective"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_encode_sequence_number_and_digest() {
        for seq in [0, 1, SEQ_MASK, SEQ_MASK + 1, 12_345_678, u32::MAX] {
            for (kind, name) in
                [(CollectiveKind::Barrier, "barrier"), (CollectiveKind::ScatterBuffers, "scatter_buffers")]
            {
                for bit in [false, true] {
                    let digest = CallDigest::new(kind, 126).with_algorithm_bit(bit);
                    let tag = digest.tag(seq);
                    assert!(
                        tag >= 0
                            && CallDigest::of(tag) == digest
                            && CallDigest::from_bits(digest.bits()) == digest
                    );
                    assert_eq!(digest.to_string(), name);
                    for away in [0, 1, SEQ_MASK / 2] {
                        assert_eq!(decode_seq(seq.wrapping_add(away), tag), seq);
                        assert_eq!(decode_seq(seq.wrapping_sub(away), tag), seq);
                    }
                }
            }
        }
        assert!(is_before(u32::MAX, 0) && is_before(3, 4) && !is_before(4, 4) && !is_before(0, u32::MAX));
    }

    #[test]
    fn resync_precedes_sequence_wraparound() {
        const { assert!(RESYNC_INTERVAL < SEQ_MASK / 2) };
        let resyncs: Vec<u32> = (0..4 * RESYNC_INTERVAL).filter(|seq| is_resync(*seq)).collect();
        assert_eq!(resyncs, [RESYNC_INTERVAL, 2 * RESYNC_INTERVAL, 3 * RESYNC_INTERVAL]);
        assert!(is_resync(RESYNC_INTERVAL.wrapping_neg()));
    }

    #[test]
    fn allreduce_algorithms_have_different_digests() {
        let ops = [Op::Sum, Op::Prod, Op::Bxor, Op::user(false, |a: &u8, _| *a)];
        let digests = |is_linear: bool| {
            let of = move |op: &Op| {
                (0..1000).map(|bytes| CallDigest::allreduce(bytes, op, is_linear)).collect::<Vec<_>>()
            };
            ops.iter().flat_map(of).collect::<Vec<_>>()
        };
        let (linear, others) = (digests(true), digests(false));
        assert!(linear.iter().all(|digest| !others.contains(digest) && digest.to_string() == "allreduce"));
        let digest = |bytes, op| CallDigest::allreduce(bytes, op, true);
        assert!((1..61).all(|more| digest(8, &Op::Sum) != digest(8 + more, &Op::Sum)));
        assert!(ops[1..].iter().all(|op| digest(8, &Op::Sum) != digest(8, op)));
    }

    #[test]
    fn mismatch_of_the_algorithm_alone_is_described() {
        let digest = CallDigest::new(CollectiveKind::Bcast, 1);
        assert_eq!(
            digest.describe_mismatch(digest.with_algorithm_bit(true)),
            "called bcast with a different root, operation, length or algorithm parameter"
        );
        let other = CallDigest::new(CollectiveKind::Barrier, 0);
        assert_eq!(digest.describe_mismatch(other), "called bcast instead");
    }

    #[test]
    fn digests_distinguish_roots_and_operations() {
        for root in 0..127 {
            let digest = |root| CallDigest::new(CollectiveKind::Bcast, root);
            assert!((0..127).all(|other| (digest(root) == digest(other)) == (root == other)));
        }
        let reductions = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::user(true, |a: &u8, _| *a)];
        for (at, one) in reductions.iter().enumerate() {
            for (other_at, other) in reductions.iter().enumerate() {
                let digest = |op| CallDigest::reduction(CollectiveKind::Allreduce, 4000, op);
                assert_eq!(digest(one) == digest(other), at == other_at);
            }
        }
    }
}

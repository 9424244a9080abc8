//! The tag of a collective's message: the sequence number of the call, and a digest of its arguments.
//!
//! ```text
//!   bit 31     30 ... 27   26      25 ... 19   18 ... 0
//!   0          operation   longer  choice      number
//! ```
//! Messages are matched only by source, number and bit 31, which marks a notice. A message of another operation
//! therefore matches, and the receiver recognizes the mismatch.

use std::fmt;

use crate::op::Op;

/// The bits of a sequence number that are sent: two calls can be distinguished if fewer than 2^18 calls lie between
/// them.
const SEQ_MASK: u32 = (1 << 19) - 1;

/// The number of calls between two resyncs, which bound the lead of a rank over any other. Credit does not bound the
/// lead: along a tree each rank can be ahead of the next by the number of messages that its credit allows.
const RESYNC_INTERVAL: u32 = 1 << 17;

/// The bits of a tag by which messages of collectives are matched: the number, and the sign bit, which marks a notice.
pub(crate) const MATCHED: i32 = i32::MIN | SEQ_MASK as i32;

/// Returns the bits of a sequence number that are sent.
pub(crate) fn travelling(number: u32) -> u32 {
    number & SEQ_MASK
}

/// Returns whether call `number` begins with a resync: a barrier of all ranks before anything else is sent.
#[inline]
pub(crate) fn is_meeting(number: u32) -> bool {
    number.is_multiple_of(RESYNC_INTERVAL) && number != 0
}

/// Returns the sequence number that is nearest to `near` and has the bits in `tag`.
pub(crate) fn number_near(near: u32, tag: i32) -> u32 {
    let ahead = (tag.cast_unsigned().wrapping_sub(near)) & SEQ_MASK;
    let ahead = if ahead > SEQ_MASK / 2 { ahead.wrapping_sub(SEQ_MASK + 1) } else { ahead };
    near.wrapping_add(ahead)
}

/// Returns whether call `a` comes before call `b`.
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b)).cast_signed() < 0
}

/// The operation of a collective call.
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

/// The names of the operations, in the order of their codes.
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

/// The largest prime below 2^7: two choices whose difference is smaller never have the same digest.
const CHOICES: u64 = 127;

/// The largest prime below 2^6, for choices that leave one bit for another purpose.
const FEWER: u64 = 61;

/// A digest of a call: the operation, whether it uses the algorithm for long messages, and the values on which all
/// ranks must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallDigest(u16);

impl CallDigest {
    /// Returns the digest of an operation in which all ranks agree on `choice`: the root, a total or nothing.
    pub(crate) fn new(operation: CollectiveKind, choice: usize) -> Self {
        let choice = (choice as u64 % CHOICES) as u16;
        CallDigest((operation as u16) << 8 | choice)
    }

    /// Returns the digest of a reduction, in which all ranks agree on `op` as well.
    pub(crate) fn reduction(operation: CollectiveKind, choice: usize, op: &Op) -> Self {
        let choice = choice as u64 % CHOICES + 11 * u64::from(op.wire_code());
        CallDigest::new(operation, choice as usize)
    }

    /// Returns the digest of an allreduce, which has two algorithms for short messages. A linear one and another one
    /// never have the same digest, whatever the lengths: two ranks with different algorithms might each wait for a
    /// message that the other does not send.
    pub(crate) fn allreduce(bytes: usize, op: &Op, is_flat: bool) -> Self {
        let choice = (bytes as u64 % FEWER + 11 * u64::from(op.wire_code())) % FEWER;
        CallDigest::new(CollectiveKind::Allreduce, (choice | u64::from(is_flat) << 6) as usize)
    }

    /// Sets whether the call uses the algorithm for long messages.
    pub(crate) fn longer(self, is_longer: bool) -> Self {
        CallDigest(self.0 | u16::from(is_longer) << 7)
    }

    /// Returns the tag of the call's messages if its number is `number`.
    pub(crate) fn tag(self, number: u32) -> i32 {
        (u32::from(self.0) << 19 | travelling(number)).cast_signed()
    }

    /// Returns the digest in a tag.
    pub(crate) fn of(tag: i32) -> Self {
        CallDigest((tag.cast_unsigned() >> 19) as u16 & 0xfff)
    }

    /// Returns the bits, for a notice.
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// Returns the digest that was received in a notice.
    pub(crate) fn from_bits(bits: u16) -> Self {
        CallDigest(bits & 0xfff)
    }

    /// Returns whether both are digests of the same operation.
    pub(crate) fn is_like(self, other: CallDigest) -> bool {
        self.0 >> 8 == other.0 >> 8
    }

    /// Describes how the call of a rank with this digest differs from one with `mine`.
    pub(crate) fn against(self, mine: CallDigest) -> String {
        if self.is_like(mine) {
            format!("calls {self} with another root, operation or length")
        } else {
            format!("calls {self} instead")
        }
    }
}

impl fmt::Display for CallDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.get(usize::from(self.0 >> 8)).unwrap_or(&"something unknown"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_carry_number_and_label() {
        for number in [0, 1, SEQ_MASK, SEQ_MASK + 1, 12_345_678, u32::MAX] {
            for (operation, name) in
                [(CollectiveKind::Barrier, "barrier"), (CollectiveKind::ScatterBuffers, "scatter_buffers")]
            {
                for longer in [false, true] {
                    let label = CallDigest::new(operation, 126).longer(longer);
                    let tag = label.tag(number);
                    assert!(
                        tag >= 0
                            && CallDigest::of(tag) == label
                            && CallDigest::from_bits(label.bits()) == label
                    );
                    assert_eq!(label.to_string(), name);
                    for away in [0, 1, SEQ_MASK / 2] {
                        assert_eq!(number_near(number.wrapping_add(away), tag), number);
                        assert_eq!(number_near(number.wrapping_sub(away), tag), number);
                    }
                }
            }
        }
        assert!(is_before(u32::MAX, 0) && is_before(3, 4) && !is_before(4, 4) && !is_before(0, u32::MAX));
    }

    #[test]
    fn ranks_meet_before_two_calls_look_alike() {
        const { assert!(RESYNC_INTERVAL < SEQ_MASK / 2) };
        let meetings: Vec<u32> = (0..4 * RESYNC_INTERVAL).filter(|number| is_meeting(*number)).collect();
        assert_eq!(meetings, [RESYNC_INTERVAL, 2 * RESYNC_INTERVAL, 3 * RESYNC_INTERVAL]);
        // Numbers wrap around in the same way on all ranks.
        assert!(is_meeting(RESYNC_INTERVAL.wrapping_neg()));
    }

    #[test]
    fn the_ways_of_an_allreduce_are_told_apart_whatever_it_reduces() {
        let ops = [Op::Sum, Op::Prod, Op::Bxor, Op::user(false, |a: &u8, _| *a)];
        let labels = |is_flat: bool| {
            let of = move |op: &Op| {
                (0..1000).map(|bytes| CallDigest::allreduce(bytes, op, is_flat)).collect::<Vec<_>>()
            };
            ops.iter().flat_map(of).collect::<Vec<_>>()
        };
        let (flat, not) = (labels(true), labels(false));
        assert!(flat.iter().all(|label| !not.contains(label) && label.to_string() == "allreduce"));
        let label = |bytes, op| CallDigest::allreduce(bytes, op, true);
        assert!((1..61).all(|more| label(8, &Op::Sum) != label(8 + more, &Op::Sum)));
        assert!(ops[1..].iter().all(|op| label(8, &Op::Sum) != label(8, op)));
    }

    #[test]
    fn roots_and_operations_are_told_apart() {
        for root in 0..127 {
            let label = |root| CallDigest::new(CollectiveKind::Bcast, root);
            assert!((0..127).all(|other| (label(root) == label(other)) == (root == other)));
        }
        let reductions = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::user(true, |a: &u8, _| *a)];
        for (at, one) in reductions.iter().enumerate() {
            for (other_at, other) in reductions.iter().enumerate() {
                let label = |op| CallDigest::reduction(CollectiveKind::Allreduce, 4000, op);
                assert_eq!(label(one) == label(other), at == other_at);
            }
        }
    }
}

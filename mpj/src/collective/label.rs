//! What a message of a collective says of itself in its tag: the number of the call, and a label of what is called.
//!
//! ```text
//!   bit 31     30 ... 27   26      25 ... 19   18 ... 0
//!   0          operation   longer  choice      number
//! ```
//! Messages are matched by source, number and bit 31 (which marks a notice) alone, so that a message of another operation is
//! matched and recognised as what it is.

use std::fmt;

use crate::op::Op;

/// The bits of a number that travel: two calls are told apart if less than 2^18 others lie between them.
const SEQ_MASK: u32 = (1 << 19) - 1;

/// All ranks meet every so many calls, so that none is more than this ahead of another. Credit does not bound that: along
/// a tree each rank can be as far ahead of the next as its messages have room there.
const RESYNC_INTERVAL: u32 = 1 << 17;

/// The bits of a tag by which messages of collectives are matched: the number, and the sign that marks a notice.
pub(crate) const MATCHED: i32 = i32::MIN | SEQ_MASK as i32;

/// Returns the bits of a number that travel.
pub(crate) fn travelling(number: u32) -> u32 {
    number & SEQ_MASK
}

/// Whether all ranks meet in call `number`, before anything else is sent in it.
#[inline]
pub(crate) fn is_meeting(number: u32) -> bool {
    number.is_multiple_of(RESYNC_INTERVAL) && number != 0
}

/// Returns the number next to `near` that travels in a tag.
pub(crate) fn number_near(near: u32, tag: i32) -> u32 {
    let ahead = (tag.cast_unsigned().wrapping_sub(near)) & SEQ_MASK;
    let ahead = if ahead > SEQ_MASK / 2 { ahead.wrapping_sub(SEQ_MASK + 1) } else { ahead };
    near.wrapping_add(ahead)
}

/// Whether call `a` comes before call `b`.
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b)).cast_signed() < 0
}

/// What is called.
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

/// The largest prime below 2^7: choices that differ by less than it never look alike.
const CHOICES: u64 = 127;

/// The largest prime below 2^6, for choices beside which a bit travels.
const FEWER: u64 = 61;

/// An operation, whether it goes the way for long messages, and a digest of what all ranks must choose alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallDigest(u16);

impl CallDigest {
    /// Labels an operation in which all ranks choose `root`, a total, or nothing.
    pub(crate) fn new(operation: CollectiveKind, choice: usize) -> Self {
        let choice = (choice as u64 % CHOICES) as u16;
        CallDigest((operation as u16) << 8 | choice)
    }

    /// Labels a reduction: all ranks choose the operation, too.
    pub(crate) fn reduction(operation: CollectiveKind, choice: usize, op: &Op) -> Self {
        let choice = choice as u64 % CHOICES + 11 * u64::from(op.code());
        CallDigest::new(operation, choice as usize)
    }

    /// Labels an allreduce, which has two ways for short messages: one that is flat never looks like one that is not, whatever
    /// the lengths are, as of two ranks that go different ways each might wait for what the other does not send.
    pub(crate) fn allreduce(bytes: usize, op: &Op, is_flat: bool) -> Self {
        let choice = (bytes as u64 % FEWER + 11 * u64::from(op.code())) % FEWER;
        CallDigest::new(CollectiveKind::Allreduce, (choice | u64::from(is_flat) << 6) as usize)
    }

    /// Says that it goes the way for long messages.
    pub(crate) fn longer(self, is_longer: bool) -> Self {
        CallDigest(self.0 | u16::from(is_longer) << 7)
    }

    /// Returns the tag of its messages in call `number`.
    pub(crate) fn tag(self, number: u32) -> i32 {
        (u32::from(self.0) << 19 | travelling(number)).cast_signed()
    }

    /// Returns the label in a tag.
    pub(crate) fn of(tag: i32) -> Self {
        CallDigest((tag.cast_unsigned() >> 19) as u16 & 0xfff)
    }

    /// Returns the bits, for a notice.
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// Returns the label that came with a notice.
    pub(crate) fn from_bits(bits: u16) -> Self {
        CallDigest(bits & 0xfff)
    }

    /// Whether both are of one operation.
    pub(crate) fn is_like(self, other: CallDigest) -> bool {
        self.0 >> 8 == other.0 >> 8
    }

    /// Says how a rank with this label differs from one with `mine`.
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
        // Numbers wrap: those of all ranks alike.
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

//! The identity of a collective call, as its messages carry it.
//!
//! ```text
//!   tag         bit 31: 0, or 1 in a notice   30 ... 0: sequence number
//!   immediate   31 ... 16: agreed values      15 ... 8: algorithm      7 ... 0: operation
//! ```
//! A message matches a receive by its source and tag only. So a message of another collective matches, and the receiver
//! detects the mismatch by the immediate data.

use std::fmt;

use mpj_collectives::{Algorithm, Operation};
use mpj_devices::MessageTag;

/// The bits of a sequence number that are sent. They distinguish two calls if fewer than 2^30 calls lie between them.
/// Along a tree, each rank can be ahead of the next by the number of messages that its credit allows.
const SEQ_MASK: u32 = i32::MAX as u32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallId {
    pub(crate) name: &'static str,
    /// The sequence number, which is the same on every rank.
    pub(crate) seq: u32,
    pub(crate) digest: CallDigest,
    pub(crate) first_group_size: Option<u32>,
}

/// The name of a rank in errors. If the channel has two groups, the second one begins at rank `first_group_size`, and the
/// name includes the group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankName {
    pub(crate) rank: u32,
    pub(crate) first_group_size: Option<u32>,
}

impl fmt::Display for RankName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.first_group_size) {
            (rank, None) => write!(f, "rank {rank}"),
            (rank, Some(first)) if rank < first => write!(f, "rank {rank} of the first group"),
            (rank, Some(first)) => write!(f, "rank {} of the second group", rank - first),
        }
    }
}

impl CallId {
    pub(crate) fn name_of(&self, rank: u32) -> RankName {
        RankName { rank, first_group_size: self.first_group_size }
    }

    #[inline]
    pub(crate) fn tag(&self) -> MessageTag {
        MessageTag { tag: seq_tag(self.seq), immediate: self.digest.0 }
    }
}

/// Returns the tag of the messages of a call.
#[inline]
pub(crate) fn seq_tag(seq: u32) -> i32 {
    (seq & SEQ_MASK).cast_signed()
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

/// The largest prime below 2^16. Different agreed values modulo this number differ in their digest.
const DIGEST_PRIME: u64 = 65_521;

/// The values that must be equal on all ranks in one call: the operation, the algorithm, and a digest of the agreed
/// values (root, number of bytes, reduction operation).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallDigest(u32);

impl CallDigest {
    /// Returns the digest of a call in which all ranks agree on one value: a root, a number of bytes, or 0 for none.
    #[inline]
    pub(crate) fn new(operation: Operation, agreed: u64) -> Self {
        CallDigest(((agreed % DIGEST_PRIME) as u32) << 16 | operation as u32)
    }

    #[inline]
    pub(crate) fn with_algorithm(self, algorithm: &Algorithm) -> Self {
        CallDigest(self.0 | u32::from(algorithm.id) << 8)
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        CallDigest(bits)
    }

    fn operation(self) -> Option<Operation> {
        Operation::from_code(self.0 as u8)
    }

    pub(crate) fn same_operation(self, other: CallDigest) -> bool {
        self.0 as u8 == other.0 as u8
    }

    /// Describes how a call with this digest differs from one with `mine`.
    pub(crate) fn describe_mismatch(self, mine: CallDigest) -> String {
        if !self.same_operation(mine) {
            return format!("called {self} instead");
        }
        let algorithm = |digest: CallDigest| {
            let id = (digest.0 >> 8) as u8;
            let known = digest
                .operation()
                .into_iter()
                .flat_map(mpj_collectives::algorithms_of)
                .find(|it| it.id == id);
            known.map_or("another", |algorithm| algorithm.name)
        };
        let has_none = |digest: CallDigest| (digest.0 >> 8) as u8 == 0;
        match (algorithm(self), algorithm(mine)) {
            _ if has_none(self) != has_none(mine) => format!("called {self} with other blocks"),
            (theirs, ours) if theirs != ours => format!(
                "called {self} with the algorithm {theirs}, this rank with {ours}: the lengths, the operations or the \
                 rules differ (MPJ_COLL_*, dup_with_rules)"
            ),
            _ => self.describe_other_value(mine),
        }
    }

    /// Describes a call with another agreed value. A root from [`DIGEST_PRIME`] on, which only the largest jobs have, is
    /// named modulo that number.
    fn describe_other_value(self, mine: CallDigest) -> String {
        use Operation::{Allgather, Allreduce, Bcast, Exscan, Gather, Reduce, Scan, Scatter};
        use Operation::{GatherBuffers, ReduceScatter, ReduceScatterBlock, ScatterBuffers, ScatterObject};
        let what = match self.operation() {
            Some(Bcast | Gather | Scatter | GatherBuffers | ScatterBuffers | ScatterObject) => {
                return format!(
                    "called {self} with root {}, this rank with root {}",
                    self.0 >> 16,
                    mine.0 >> 16
                );
            }
            Some(Reduce) => "a different root or operation",
            Some(Allreduce | Scan | Exscan | ReduceScatter | ReduceScatterBlock) => {
                "a different operation or length"
            }
            Some(Allgather) => "a different length",
            _ => "different arguments",
        };
        format!("called {self} with {what}")
    }
}

impl fmt::Display for CallDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation().map_or("an unknown collective", Operation::name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_encodes_the_sequence_number() {
        for seq in [0, 1, SEQ_MASK, SEQ_MASK + 1, 12_345_678, u32::MAX] {
            let tag = seq_tag(seq);
            assert!(tag >= 0);
            for away in [0, 1, SEQ_MASK / 2] {
                assert_eq!(decode_seq(seq.wrapping_add(away), tag), seq);
                assert_eq!(decode_seq(seq.wrapping_sub(away), tag), seq);
            }
        }
        assert!(is_before(u32::MAX, 0) && is_before(3, 4) && !is_before(4, 4) && !is_before(0, u32::MAX));
    }

    #[test]
    fn digests_distinguish_operations_algorithms_and_agreed_values() {
        let mut digests = Vec::new();
        for operation in Operation::ALL {
            for agreed in [0, 1, 127, 65_520] {
                let digest = CallDigest::new(*operation, agreed);
                assert_eq!((digest.to_string().as_str(), digest.bits() != 0), (operation.name(), true));
                digests.push(digest);
                digests
                    .extend(mpj_collectives::algorithms_of(*operation).map(|it| digest.with_algorithm(it)));
            }
        }
        for (at, one) in digests.iter().enumerate() {
            assert!(digests[at + 1..].iter().all(|other| other != one), "{one:?} occurs twice");
            assert_eq!(CallDigest::from_bits(one.bits()), *one);
        }
    }

    #[test]
    fn rank_of_two_groups_is_named_with_its_group() {
        let names = |first_group_size| [0, 2, 3].map(|rank| RankName { rank, first_group_size }.to_string());
        assert_eq!(names(None), ["rank 0", "rank 2", "rank 3"]);
        let (first, second) = ("of the first group", "of the second group");
        let expected = [format!("rank 0 {first}"), format!("rank 0 {second}"), format!("rank 1 {second}")];
        assert_eq!(names(Some(2)), expected);
    }

    #[test]
    fn mismatch_is_described() {
        let digest = |operation, agreed, name| {
            let algorithm = mpj_collectives::algorithm_named(operation, name).expect("its name");
            CallDigest::new(operation, agreed).with_algorithm(algorithm)
        };
        let linear = digest(Operation::Bcast, 1, "linear");
        let said = |theirs: CallDigest| theirs.describe_mismatch(linear);
        assert_eq!(
            said(digest(Operation::Bcast, 2, "linear")),
            "called bcast with root 2, this rank with root 1"
        );
        let reductions = [1, 2].map(|agreed| digest(Operation::Reduce, agreed, "linear"));
        assert_eq!(
            reductions[0].describe_mismatch(reductions[1]),
            "called reduce with a different root or operation"
        );
        assert_eq!(said(digest(Operation::Barrier, 1, "linear")), "called barrier instead");
        assert_eq!(said(CallDigest::from_bits(0xff)), "called an unknown collective instead");
        let other = said(digest(Operation::Bcast, 1, "binomial"));
        assert!(
            other.starts_with("called bcast with the algorithm binomial, this rank with linear: "),
            "{other}"
        );
        let unknown = said(CallDigest::from_bits(linear.bits() | 0xff00));
        assert!(unknown.starts_with("called bcast with the algorithm another, "), "{unknown}");
    }
}

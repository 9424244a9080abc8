//! Groups: ordered sets of processes. The calls are local.
//!
//! A group is a [`Group`] of world ranks. Every call takes time of at most n·log n for groups of n processes, and a
//! result of consecutive world ranks needs no memory per process.

use mpj_devices::{Group, PeerId};

use super::{PROC_NULL, UNDEFINED};
use crate::error::{Error, ErrorClass, Result};

/// The relation of two groups, or of two communicators, the closest first. The discriminants are the constants of the
/// MPI 5.0 ABI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(i32)]
pub enum Comparison {
    /// The same processes in the same order; for communicators, the same communicator.
    Identical = 201,
    /// Different communicators with the same processes in the same order.
    Congruent = 202,
    /// The same processes in a different order.
    Similar = 203,
    /// Different processes.
    Unequal = 204,
}

/// Ranks `first`, `first + stride`, … up to `last`. A negative stride counts down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankRange {
    /// The first rank.
    pub first: i32,
    /// The bound, which need not be one of the ranks.
    pub last: i32,
    /// The difference between two successive ranks; not 0.
    pub stride: i32,
}

fn rank_error(call: &'static str, group: &Group, rank: i64) -> Error {
    let why = match group.size() {
        0 => format!("rank {rank} is out of range: the group is empty"),
        1 => format!("rank {rank} is out of range: the group has only rank 0"),
        size => format!("rank {rank} is out of range: the group has ranks 0 to {}", size - 1),
    };
    Error::new(ErrorClass::Rank, call, why)
}

fn peer_of(call: &'static str, group: &Group, rank: i32) -> Result<u32> {
    let peer = u32::try_from(rank).ok().and_then(|rank| group.peer(rank));
    peer.map(|PeerId(peer)| peer).ok_or_else(|| rank_error(call, group, rank.into()))
}

/// Returns a table that is true for each of the ranks.
fn distinct(call: &'static str, group: &Group, ranks: impl Iterator<Item = i32>) -> Result<Vec<bool>> {
    let mut is_named = vec![false; group.size() as usize];
    for rank in ranks {
        peer_of(call, group, rank)?;
        if std::mem::replace(&mut is_named[rank as usize], true) {
            let why = format!("rank {rank} occurs twice; the group has {} ranks", group.size());
            return Err(Error::new(ErrorClass::Rank, call, why));
        }
    }
    Ok(is_named)
}

/// Returns the processes with these ranks, in this order (MPI_Group_incl).
///
/// # Errors
/// [`ErrorClass::Rank`] if a rank is not in the group or occurs twice.
pub fn group_include(group: &Group, ranks: impl Iterator<Item = i32> + Clone) -> Result<Group> {
    include_as("include", group, ranks)
}

fn include_as(call: &'static str, group: &Group, ranks: impl Iterator<Item = i32> + Clone) -> Result<Group> {
    distinct(call, group, ranks.clone())?;
    ranks.map(|rank| peer_of(call, group, rank)).collect()
}

/// Returns the other processes, in their order (MPI_Group_excl).
///
/// # Errors
/// As [`group_include`].
pub fn group_exclude(group: &Group, ranks: impl Iterator<Item = i32>) -> Result<Group> {
    exclude_as("exclude", group, ranks)
}

fn exclude_as(call: &'static str, group: &Group, ranks: impl Iterator<Item = i32>) -> Result<Group> {
    let is_named = distinct(call, group, ranks)?;
    Ok(group.iter().zip(is_named).filter(|(_, is_named)| !is_named).map(|(PeerId(peer), _)| peer).collect())
}

/// Returns the processes whose ranks are in the ranges, in this order (MPI_Group_range_incl).
///
/// # Errors
/// As [`group_include`]; [`ErrorClass::Arg`] if a stride is 0 or counts away from `last`.
pub fn group_include_ranges(group: &Group, ranges: &[RankRange]) -> Result<Group> {
    const CALL: &str = "include_ranges";
    check_ranges(CALL, group, ranges)?;
    include_as(CALL, group, ranges.iter().flat_map(RankRange::ranks))
}

/// Returns the processes whose ranks are in none of the ranges, in their order (MPI_Group_range_excl).
///
/// # Errors
/// As [`group_include_ranges`].
pub fn group_exclude_ranges(group: &Group, ranges: &[RankRange]) -> Result<Group> {
    const CALL: &str = "exclude_ranges";
    check_ranges(CALL, group, ranges)?;
    exclude_as(CALL, group, ranges.iter().flat_map(RankRange::ranks))
}

impl RankRange {
    /// Returns the number of ranks, and the last of them, if the stride is valid.
    fn len(&self) -> Option<(u32, i64)> {
        let (first, stride) = (i64::from(self.first), i64::from(self.stride));
        let steps = (i64::from(self.last) - first).checked_div(stride).filter(|steps| *steps >= 0)?;
        let is_towards = self.first == self.last || (self.first < self.last) == (stride > 0);
        // `steps` is below 2^32 because the difference of two `i32` is.
        is_towards.then_some(((steps as u32).saturating_add(1), first + steps * stride))
    }

    /// Returns the ranks of a checked range.
    fn ranks(&self) -> impl Iterator<Item = i32> + Clone {
        let (first, stride) = (i64::from(self.first), i64::from(self.stride));
        let len = self.len().map_or(0, |(len, _)| len);
        (0..i64::from(len)).map(move |step| (first + step * stride) as i32)
    }
}

/// Checks each range without listing its ranks, which might be many.
fn check_ranges(call: &'static str, group: &Group, ranges: &[RankRange]) -> Result<()> {
    for range in ranges {
        let RankRange { first, last, stride } = *range;
        let Some((_, end)) = range.len() else {
            let why = format!("stride {stride} does not lead from rank {first} to rank {last}");
            return Err(Error::new(ErrorClass::Arg, call, why));
        };
        let is_member = |rank: i64| (0..i64::from(group.size())).contains(&rank);
        if let Some(rank) = [i64::from(first), end].into_iter().find(|rank| !is_member(*rank)) {
            return Err(rank_error(call, group, rank));
        }
    }
    Ok(())
}

/// Returns the processes of `one`, and then those of `two` that are not in `one` (MPI_Group_union).
pub fn group_union(one: &Group, two: &Group) -> Group {
    let others = two.iter().filter(|peer| one.rank(*peer).is_none());
    one.iter().chain(others).map(|PeerId(peer)| peer).collect()
}

/// Returns the processes of `one` that are also in `two`, in the order of `one` (MPI_Group_intersection).
pub fn group_intersection(one: &Group, two: &Group) -> Group {
    one.iter().filter(|peer| two.rank(*peer).is_some()).map(|PeerId(peer)| peer).collect()
}

/// Returns the processes of `one` that are not in `two`, in the order of `one` (MPI_Group_difference).
pub fn group_difference(one: &Group, two: &Group) -> Group {
    one.iter().filter(|peer| two.rank(*peer).is_none()).map(|PeerId(peer)| peer).collect()
}

/// Compares two groups (MPI_Group_compare); the result is never [`Congruent`](Comparison::Congruent).
pub fn group_compare(one: &Group, two: &Group) -> Comparison {
    if one == two {
        return Comparison::Identical;
    }
    let same_members = one.size() == two.size() && one.iter().all(|peer| two.rank(peer).is_some());
    if same_members { Comparison::Similar } else { Comparison::Unequal }
}

/// Returns the ranks in `to` of the processes with these ranks in `from` (MPI_Group_translate_ranks): [`UNDEFINED`] for
/// a process that is not in `to`, and [`PROC_NULL`] for [`PROC_NULL`].
///
/// # Errors
/// [`ErrorClass::Rank`] if a rank is not in `from`.
pub fn group_translate(from: &Group, ranks: impl Iterator<Item = i32>, to: &Group) -> Result<Vec<i32>> {
    let translate = |rank| {
        if rank == PROC_NULL {
            return Ok(PROC_NULL);
        }
        let peer = PeerId(peer_of("translate", from, rank)?);
        Ok(to.rank(peer).and_then(|rank| i32::try_from(rank).ok()).unwrap_or(UNDEFINED))
    };
    ranks.map(translate).collect()
}

/// Checks that the processes of `group` are members of a communicator, whose group is `parent`, each once.
pub(super) fn check_subset(call: &'static str, group: &Group, parent: &Group) -> Result<()> {
    for (rank, peer) in (0..).zip(group.iter()) {
        let world_rank = peer.0;
        let found = if parent.rank(peer).is_none() {
            "is not in the communicator"
        } else if group.rank(peer) != Some(rank) {
            "occurs twice"
        } else {
            continue;
        };
        let why =
            format!("rank {rank} of the group of {} ranks (world rank {world_rank}) {found}", group.size());
        return Err(Error::new(ErrorClass::Group, call, why));
    }
    Ok(())
}

/// Returns a number that differs, in practice, between groups with different processes or orders.
pub(super) fn group_digest(group: &Group) -> u64 {
    // FNV-1a over 32-bit words: the same on all ranks, whatever built them.
    let mix = |hash: u64, word: u32| (hash ^ u64::from(word)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash =
        group.iter().fold(mix(0xcbf2_9ce4_8422_2325, group.size()), |hash, PeerId(peer)| mix(hash, peer));
    // Spread the last words over all bits.
    (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

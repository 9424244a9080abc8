//! Groups: ordered sets of processes.

use std::fmt;

use mpj_devices::PeerId;

use crate::address::number;
use crate::error::Result;
use crate::raw::{self, Comparison, RankRange, UNDEFINED};

/// An ordered set of the job's processes (MPI_Group). The index of a process is its rank in the group.
///
/// Groups are values: operations return new groups, and need no communication. Two groups are equal if they have the
/// same processes in the same order. [`Intracomm::create`](crate::Intracomm::create) and
/// [`create_group`](crate::Intracomm::create_group) make a communicator of a group.
///
/// ```
/// # mpj::threads(4, |world| {
/// let all = world.group();
/// let odd = all.include(&[3, 1])?;
/// assert_eq!((odd.size(), odd.rank()), (2, [None, Some(1), None, Some(0)][world.rank()]));
/// let others = all.difference(&odd);
/// // The ranks that the processes of `others` have in the world.
/// assert_eq!(others.translate(&[0, 1], &all)?, [Some(0), Some(2)]);
/// assert_eq!(odd.union(&others).compare(&all), mpj::Comparison::Similar);
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Group {
    members: raw::Group,
    /// The process that created the group; `None` for the predefined empty group.
    me: Option<PeerId>,
}

impl Group {
    pub(crate) fn new(members: raw::Group, me: PeerId) -> Self {
        Group { members, me: Some(me) }
    }

    /// Returns a group without processes (MPI_GROUP_EMPTY).
    pub const fn empty() -> Self {
        Group { members: raw::Group::Range { first: 0, len: 0 }, me: None }
    }

    fn with(&self, members: raw::Group) -> Self {
        Group { members, me: self.me }
    }

    /// Returns the untyped group, whose processes are world ranks.
    pub fn as_raw(&self) -> &raw::Group {
        &self.members
    }

    /// Returns the number of processes.
    pub fn size(&self) -> usize {
        self.members.size() as usize
    }

    /// Returns whether the group has no processes.
    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// Returns the rank of this process in the group; `None` if it is not a member. This process is the one that has
    /// created the group, or the communicator that the group comes from.
    pub fn rank(&self) -> Option<usize> {
        self.members.rank(self.me?).map(|rank| rank as usize)
    }

    /// Returns the group of these ranks, in this order (MPI_Group_incl).
    ///
    /// # Errors
    /// [`ErrorClass::Rank`](crate::ErrorClass::Rank) if a rank is not in the group or occurs twice.
    pub fn include(&self, ranks: &[usize]) -> Result<Group> {
        Ok(self.with(raw::group_include(&self.members, ranks.iter().copied().map(number))?))
    }

    /// Returns the group of the other ranks, in their order (MPI_Group_excl).
    ///
    /// # Errors
    /// As [`include`](Self::include).
    pub fn exclude(&self, ranks: &[usize]) -> Result<Group> {
        Ok(self.with(raw::group_exclude(&self.members, ranks.iter().copied().map(number))?))
    }

    /// Returns the group of the ranks in some ranges, in this order (MPI_Group_range_incl). A range `(first, last,
    /// stride)` has the ranks `first`, `first + stride`, … up to `last`; with a negative stride, down to `last`.
    ///
    /// ```
    /// # mpj::threads(8, |world| {
    /// let all = world.group();
    /// let some = all.include_ranges(&[(6, 0, -3), (1, 5, 4)])?;
    /// assert_eq!(some, all.include(&[6, 3, 0, 1, 5])?);
    /// assert_eq!(all.exclude_ranges(&[(0, 7, 2)])?, all.include(&[1, 3, 5, 7])?);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`include`](Self::include); [`ErrorClass::Arg`](crate::ErrorClass::Arg) if a stride is 0 or does not lead from
    /// `first` to `last`.
    pub fn include_ranges(&self, ranges: &[(usize, usize, isize)]) -> Result<Group> {
        Ok(self.with(raw::group_include_ranges(&self.members, &rank_ranges(ranges))?))
    }

    /// Returns the group of the ranks that are in none of the ranges, in their order (MPI_Group_range_excl).
    ///
    /// # Errors
    /// As [`include_ranges`](Self::include_ranges).
    pub fn exclude_ranges(&self, ranges: &[(usize, usize, isize)]) -> Result<Group> {
        Ok(self.with(raw::group_exclude_ranges(&self.members, &rank_ranges(ranges))?))
    }

    /// Returns the processes of this group, and then those of `other` that are not in this one (MPI_Group_union).
    #[must_use]
    pub fn union(&self, other: &Group) -> Group {
        let members = raw::group_union(&self.members, &other.members);
        Group { members, me: self.me.or(other.me) }
    }

    /// Returns the processes of this group that are also in `other`, in the order of this one (MPI_Group_intersection).
    #[must_use]
    pub fn intersection(&self, other: &Group) -> Group {
        self.with(raw::group_intersection(&self.members, &other.members))
    }

    /// Returns the processes of this group that are not in `other`, in the order of this one (MPI_Group_difference).
    #[must_use]
    pub fn difference(&self, other: &Group) -> Group {
        self.with(raw::group_difference(&self.members, &other.members))
    }

    /// Returns the ranks in `to` of processes of this group; `None` for a process that is not in `to`
    /// (MPI_Group_translate_ranks).
    ///
    /// # Errors
    /// [`ErrorClass::Rank`](crate::ErrorClass::Rank) if a rank is not in this group.
    pub fn translate(&self, ranks: &[usize], to: &Group) -> Result<Vec<Option<usize>>> {
        let ranks = raw::group_translate(&self.members, ranks.iter().copied().map(number), &to.members)?;
        Ok(ranks.into_iter().map(|rank| (rank != UNDEFINED).then_some(rank as usize)).collect())
    }

    /// Compares two groups (MPI_Group_compare): [`Identical`](Comparison::Identical),
    /// [`Similar`](Comparison::Similar) or [`Unequal`](Comparison::Unequal).
    pub fn compare(&self, other: &Group) -> Comparison {
        raw::group_compare(&self.members, &other.members)
    }
}

fn rank_ranges(ranges: &[(usize, usize, isize)]) -> Vec<RankRange> {
    // An out-of-range stride becomes one that leads beyond any group, in the same direction.
    let stride = |stride: isize| stride.clamp(-i32::MAX as isize, i32::MAX as isize) as i32;
    let range = |(first, last, step): &(usize, usize, isize)| RankRange {
        first: number(*first),
        last: number(*last),
        stride: stride(*step),
    };
    ranges.iter().map(range).collect()
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.members == other.members
    }
}

impl Eq for Group {}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Group of world ranks ")?;
        f.debug_list().entries(self.members.iter().map(|PeerId(peer)| peer)).finish()
    }
}

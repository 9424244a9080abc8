//! Groups of communicators, and communicators of groups and of parts of the hardware.

use super::{Communicator, Intracomm};
use crate::error::Result;
use crate::group::Group;
use crate::info::Info;
use crate::raw::{Comparison, SplitType};

impl<K> Communicator<K> {
    /// Returns the group of the communicator's processes, in order of rank (MPI_Comm_group). In an intercommunicator,
    /// this is the group of this rank.
    pub fn group(&self) -> Group {
        Group::new(self.as_raw().group().clone(), self.as_raw().me())
    }

    /// Compares two communicators, or both groups of intercommunicators (MPI_Comm_compare). Handles of one communicator
    /// are [`Identical`](Comparison::Identical), a communicator and its duplicate [`Congruent`](Comparison::Congruent).
    ///
    /// ```
    /// use mpj::Comparison;
    /// # mpj::threads(3, |world| {
    /// assert_eq!(world.compare(&world.clone()), Comparison::Identical);
    /// assert_eq!(world.compare(&world.dup()?), Comparison::Congruent);
    /// let reversed = world.split(Some(0), -(world.rank() as i32))?.expect("every rank has a color");
    /// assert_eq!(world.compare(&reversed), Comparison::Similar);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    pub fn compare(&self, other: &Self) -> Comparison {
        self.as_raw().compare(other.as_raw())
    }

    /// Creates a communicator for each group that ranks pass (MPI_Comm_create). Returns `None` if this rank is not in
    /// its group. Collective over this communicator.
    ///
    /// The members of a group must all pass it, with the same order. A rank that is in no group passes any of them, or
    /// [`Group::empty`].
    ///
    /// Called on an [`Intercomm`](crate::Intercomm), it creates an intercommunicator: the ranks of one group pass its
    /// first group, those of the other group pass its second group. If one of them is empty, all ranks get `None`. The
    /// text of an error numbers the ranks of both groups together, those of one group first.
    ///
    /// ```
    /// # mpj::threads(4, |world| {
    /// // The even ranks in the reverse order, and the odd ranks.
    /// let (even, odd) = (world.group().include(&[2, 0])?, world.group().include(&[1, 3])?);
    /// let mine = if world.rank() % 2 == 0 { &even } else { &odd };
    /// let comm = world.create(mine)?.expect("every rank is in its group");
    /// assert_eq!(comm.rank(), [1, 0, 0, 1][world.rank()]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`ErrorClass::Group`](crate::ErrorClass::Group), on all ranks, if a member of a group has
    /// passed another one, or if a group has a process that is not in this communicator. In the first case this
    /// communicator stays usable.
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        Ok(self.as_raw().create(group.as_raw())?.map(Self::new))
    }

    /// Creates one communicator for each color, with its ranks in order of key and then of old rank (MPI_Comm_split).
    /// Collective. A rank without a color gets `None`.
    ///
    /// Called on an [`Intercomm`](crate::Intercomm), it creates intercommunicators. The ranks of both groups with the same
    /// color share one; ranks whose color does not occur in the other group get `None`.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); the color is above 2,147,483,647.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        Ok(self.as_raw().split_opt(color.map(i64::from), key)?.map(Self::new))
    }

    /// Creates one communicator for each part of the hardware that has ranks, with its ranks in order of key and then of
    /// old rank (MPI_Comm_split_type). Returns `None` if `split_type` is, or if this thread may run on several parts.
    /// Collective; all ranks pass the same type or `None`.
    ///
    /// ```
    /// # mpj::threads(4, |world| {
    /// let local = world.split_type(mpj::SplitType::Host, 0)?.expect("every rank has a host");
    /// assert_eq!(local.host_count(), 1);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`ErrorClass::Arg`](crate::ErrorClass::Arg), on all ranks, if ranks have passed different
    /// types. This communicator then stays usable.
    pub fn split_type(&self, split_type: impl Into<Option<SplitType>>, key: i32) -> Result<Option<Self>> {
        Ok(self.as_raw().split_type(split_type.into(), key)?.map(Self::new))
    }

    /// Duplicates the communicator as [`dup`](Self::dup) does, and sets the duplicate's hints (MPI_Comm_dup_with_info).
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn dup_with_info(&self, info: &Info) -> Result<Self> {
        self.as_raw().dup_with_info(info).map(Self::new)
    }
}

impl Intracomm {
    /// Creates a communicator of the processes of a group (MPI_Comm_create_group). Only its members call this function,
    /// in any order with other calls. Threads can create communicators concurrently if their tags differ.
    ///
    /// If a member does not call it, the others wait, as for a missing message. Calls with groups whose lowest ranks
    /// differ do not match.
    ///
    /// ```
    /// # mpj::threads(4, |world| {
    /// let group = world.group().include_ranges(&[(0, 3, 2)])?;
    /// if group.rank().is_some() {
    ///     let comm = world.create_group(&group, 7)?;
    ///     assert_eq!((comm.size(), comm.rank()), (2, world.rank() / 2));
    /// } // the odd ranks can do something else meanwhile
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`ErrorClass::Group`](crate::ErrorClass::Group) if this rank is not in the group, if a process of the group is
    /// not in this communicator, or if members have passed different groups with the same lowest rank;
    /// [`ErrorClass::Tag`](crate::ErrorClass::Tag) if the tag is negative; a rank of this communicator has died, or a
    /// member has exited or has too many communicators. After an error, use another tag.
    pub fn create_group(&self, group: &Group, tag: i32) -> Result<Intracomm> {
        self.as_raw().create_group(group.as_raw(), tag).map(Intracomm::new)
    }
}

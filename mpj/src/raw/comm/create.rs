//! The creation of communicators by all ranks of a parent. One rank of each new communicator allocates its context id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mpj_collectives::{Operation, Rules};
use mpj_devices::{Fault, Group, PeerId};

use super::extras::Inherited;
use super::split::NO_COLOR;
use super::{ALONE, Comm, Definition};
use crate::collective::blocking::BlockingCall;
use crate::collective::call_id::CallDigest;
use crate::error::{Error, ErrorClass, Result};
use crate::info::Info;
use crate::raw::group::{check_subset, group_digest};

/// The number of channels that are kept for the control channels of existing communicators: a rank that could not join
/// one could not refuse a call of other ranks.
const CONTROL_CHANNELS: usize = 256;

impl Comm {
    /// Returns the process of this rank.
    pub(crate) fn me(&self) -> PeerId {
        PeerId(self.engine().site().rank)
    }

    /// Returns a context id that no other rank creates, and that this rank repeats only after 2^30 ids.
    pub(in crate::raw) fn new_context_id(&self) -> u64 {
        let count = self.inner.common.id_count.fetch_add(1, Ordering::Relaxed) + 1;
        (u64::from(self.me().0) + 1) << 30 | count & ((1 << 30) - 1)
    }

    /// Checks that this rank can create another communicator, before it sends its part of the call.
    pub(in crate::raw) fn check_channel_limit(&self, call: &'static str) -> Result<()> {
        if self.engine().free_channel_count() < 2 + CONTROL_CHANNELS {
            return Err(Error::from_fault(call, Fault::TooManyChannels));
        }
        Ok(())
    }

    /// Creates the communicator of this rank alone (MPI_COMM_SELF), of which a rank has one. Sends no message.
    pub(crate) fn alone(&self) -> Result<Self> {
        let group = Group::Range { first: self.me().0, len: 1 };
        let rules = Arc::clone(self.collectives().rules());
        self.child(Definition { id: ALONE, name: "self".to_owned(), group, rank: 0, remote: None, rules })
    }

    /// Returns the definition of a communicator of the same ranks; its id is set later.
    pub(super) fn duplicate(&self, call: &'static str, rules: Arc<Rules>) -> Definition {
        let name = self.inner.names.numbered_child(call);
        let (group, rank, remote) = (self.group().clone(), self.rank(), self.inner.remote.clone());
        Definition { id: 0, name, group, rank, remote, rules }
    }

    /// Creates a communicator of the same ranks, whose messages are separate from those of this one (MPI_Comm_dup).
    /// Collective.
    ///
    /// The duplicate has the same topology and error handler, and the attributes that their keys copy. Copy hooks run
    /// on this rank after the duplicate was created.
    ///
    /// # Errors
    /// As [`barrier`](crate::raw::barrier); a rank has too many communicators. If a copy hook fails, this rank gets the
    /// error, collectives of the duplicate fail on the other ranks with that error, and this communicator stays usable.
    pub fn dup(&self) -> Result<Self> {
        self.dup_as(Arc::clone(self.collectives().rules()), None)
    }

    /// Duplicates the communicator as [`dup`](Self::dup) does, with other rules for the algorithms of the duplicate's
    /// collectives. All ranks must pass the same rules.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn dup_with_rules(&self, rules: Arc<Rules>) -> Result<Self> {
        self.dup_as(rules, None)
    }

    /// Duplicates the communicator as [`dup`](Self::dup) does, and sets the duplicate's hints (MPI_Comm_dup_with_info).
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn dup_with_info(&self, info: &Info) -> Result<Self> {
        self.dup_as(Arc::clone(self.collectives().rules()), Some(info.clone()))
    }

    fn dup_as(&self, rules: Arc<Rules>, info: Option<Info>) -> Result<Self> {
        let inherited = Inherited::of(self, info);
        let comm = self.collective_of_any("dup", |blocking| {
            let definition = self.duplicate("dup", rules);
            self.check_channel_limit("dup")?;
            let digest = CallDigest::new(Operation::Dup, 0);
            let mut id = [if blocking.rank() == 0 { self.new_context_id() } else { 0 }];
            // The barrier fails if a rank has refused the call. Without it, the root of the broadcast would not notice.
            blocking.barrier(digest)?;
            blocking.bcast_words(digest, &mut id, 0)?;
            self.child(Definition { id: id[0], ..definition })
        })?;
        inherited.pass_to("dup", self, comm)
    }

    /// Creates a communicator of the ranks `members`, in this order; `None` if this rank is not one of them. All ranks
    /// make this call, after they have agreed on its arguments.
    pub(in crate::raw) fn with_members(
        &self,
        call: &'static str,
        id: u64,
        members: &[u32],
    ) -> Result<Option<Self>> {
        let name = self.inner.names.numbered_child(call);
        let Some((rank, _)) = (0..).zip(members).find(|(_, member)| **member == self.rank()) else {
            return Ok(None);
        };
        let group = if members.iter().copied().eq(0..self.size()) {
            self.group().clone()
        } else {
            let peers = members.iter().filter_map(|member| self.group().peer(*member));
            peers.map(|PeerId(peer)| peer).collect()
        };
        let rules = Arc::clone(self.collectives().rules());
        self.child(Definition { id, name, group, rank, remote: None, rules }).map(Some)
    }

    /// Creates a communicator for each group that ranks pass (MPI_Comm_create). Returns `None` if this rank is not in
    /// its group. Collective over this communicator.
    ///
    /// The members of a group must all pass it, with the same order. A rank that is in no group passes any of them, or
    /// an empty one.
    ///
    /// Called on an intercommunicator, it creates an intercommunicator: the ranks of one group pass its first group,
    /// those of the other group pass its second group. If one of them is empty, all ranks get `None`. The text of an
    /// error numbers the ranks of both groups together, those of one group first.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`ErrorClass::Group`], on all ranks, if a member of a group has passed another one, or if
    /// a group has a process that is not in this communicator. In the first case this communicator stays usable.
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        const CALL: &str = "create";
        if self.is_inter() {
            return self.create_inter(CALL, group);
        }
        let created = self.collective(CALL, |blocking| {
            let name = self.inner.names.numbered_child(CALL);
            let rank = group.rank(self.me());
            // All ranks find the same result, so the call itself has not failed.
            let all = match self.gather_groups(CALL, blocking, group)? {
                Ok(all) => all,
                Err(error) => return Ok(Err(error)),
            };
            let Some(rank) = rank else { return Ok(Ok(None)) };
            let leader = group.peer(0).and_then(|peer| self.group().rank(peer));
            let id = leader.map_or(0, |leader| all[3 * leader as usize + 2]);
            let rules = Arc::clone(self.collectives().rules());
            let definition = Definition { id, name, group: group.clone(), rank, remote: None, rules };
            self.child(definition).map(|comm| Ok(Some(comm)))
        });
        created.flatten()
    }

    fn create_inter(&self, call: &'static str, group: &Group) -> Result<Option<Self>> {
        self.collective_of_any(call, |blocking| self.gather_groups(call, blocking, group)).flatten()?;
        let rank = group.rank(self.me());
        let color = || Ok(rank.map_or(NO_COLOR, |_| 0));
        let key = rank.map_or(0, u32::cast_signed);
        self.split_by(Operation::Create, color, key, |_| Ok(()), |_| "intercommunicator".to_owned())
    }

    /// Checks, with the same result on all ranks, that all members of each group have passed it. Returns for each rank the
    /// digest of the group that it has passed, the size of that group and whether the rank is a member, and a context id.
    fn gather_groups(
        &self,
        call: &'static str,
        blocking: &mut BlockingCall<'_>,
        group: &Group,
    ) -> Result<Result<Vec<u64>>> {
        check_subset(call, group, self.group())?;
        self.check_channel_limit(call)?;
        let (size, is_member) = (u64::from(group.size()), group.rank(self.me()).is_some());
        let mine = [group_digest(group), size << 1 | u64::from(is_member), self.new_context_id()];
        let all = blocking.allgather_words(CallDigest::new(Operation::Create, 0), &mine)?;
        let checked = check_agreement(&all).and_then(|groups| match groups {
            3.. if self.is_inter() => Err("the ranks of one group have passed different groups".to_owned()),
            _ => Ok(()),
        });
        Ok(checked.map(|()| all).map_err(|why| {
            let why = format!("{why}: all members of a new group must pass it, in the same order");
            Error::new(ErrorClass::Group, call, why)
        }))
    }
}

/// Checks that all members of each group have passed it. Returns the number of groups with members. `all` is as in
/// [`gather_groups`](Comm::gather_groups).
fn check_agreement(all: &[u64]) -> Result<usize, String> {
    /// A group, the first rank that passed it, and the number of its members that did.
    struct Passed {
        size: u64,
        first: u64,
        members: u64,
    }
    let mut groups = BTreeMap::new();
    for (words, rank) in all.chunks_exact(3).zip(0u64..) {
        let (size, is_member) = (words[1] >> 1, words[1] & 1);
        let passed = groups.entry((words[0], size)).or_insert(Passed { size, first: rank, members: 0 });
        passed.members += is_member;
    }
    let mut incomplete: Vec<&Passed> = groups.values().filter(|it| it.members != it.size).collect();
    incomplete.sort_by_key(|it| it.first);
    match incomplete.first() {
        None => Ok(groups.values().filter(|it| it.size > 0).count()),
        Some(Passed { size, first, members }) => Err(format!(
            "rank {first} passed a group of {size} ranks, of which only {members} passed the same group"
        )),
    }
}

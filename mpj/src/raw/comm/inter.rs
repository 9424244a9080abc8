//! Intercommunicators: two disjoint groups of ranks. A message goes from one group to the other.
//!
//! ```text
//!   group A, by its collectives        bridge        group B, by its collectives
//!   1 barrier ─► leader ── offer: id, world ranks ──► leader ◄─ barrier
//!               leader ◄── offer, or why it failed ── leader
//!   2 bcast  ◄─ leader: id, world ranks of B         leader ─► bcast
//! ```
//! After step 1, each rank has checked its arguments and limits. If a rank fails, its leader learns the cause by a
//! notice, and sends it to the other leader in place of an offer.

use std::sync::Arc;

use mpj_collectives::Operation;
use mpj_collectives::inter::Groups;
use mpj_devices::{Buf, Group, PeerId};

use super::control::ControlKind;
use super::{Comm, Definition};
use crate::collective::blocking::BlockingCall;
use crate::collective::call_id::CallDigest;
use crate::collective::notice::Cause;
use crate::error::{Error, ErrorClass, Result};

/// The remote group of an intercommunicator.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    pub(super) group: Group,
    /// Whether its ranks come before those of this rank's group in the channel of the collectives.
    pub(super) comes_first: bool,
}

impl Remote {
    /// Both groups must agree on the order, so the group whose rank 0 comes first in the world is the first one.
    pub(super) fn new(local: &Group, remote: Group) -> Self {
        let first = |group: &Group| group.peer(0).map(|PeerId(rank)| rank);
        Remote { comes_first: first(&remote) < first(local), group: remote }
    }

    /// Returns the number of ranks before this rank's group, and before the remote group, in a group of both.
    fn offsets(&self, local: &Group) -> (u32, u32) {
        if self.comes_first { (self.group.size(), 0) } else { (0, local.size()) }
    }

    /// Returns the number of ranks of the first group.
    pub(super) fn first_size(&self, local: &Group) -> u32 {
        if self.comes_first { self.group.size() } else { local.size() }
    }

    /// Returns the group of `local` and the remote group, if there is one, and the number there of rank `rank` of `local`.
    pub(super) fn join_groups(remote: Option<&Self>, local: &Group, rank: u32) -> (Group, u32) {
        let Some(remote) = remote else { return (local.clone(), rank) };
        let (first, second) =
            if remote.comes_first { (&remote.group, local) } else { (local, &remote.group) };
        (concat(first, second), rank + remote.offsets(local).0)
    }
}

fn world_ranks(group: &Group) -> impl Iterator<Item = u32> {
    group.iter().map(|PeerId(rank)| rank)
}

fn concat(first: &Group, second: &Group) -> Group {
    world_ranks(first).chain(world_ranks(second)).collect()
}

/// A group's part of a new intercommunicator, as its leader sends it.
struct Offer {
    /// A context id of the leader.
    id: u64,
    world_ranks: Vec<u32>,
}

/// The first word of a leader's message; after [`FAILED`] come the words of a [`Cause`].
const OFFER: u64 = 0;
const FAILED: u64 = 1;

const CREATE: &str = "create_intercomm";

impl Offer {
    fn encode(&self) -> Vec<u64> {
        let ranks = self.world_ranks.iter().map(|rank| u64::from(*rank));
        [OFFER, self.id].into_iter().chain(ranks).collect()
    }

    /// Decodes the message of the other leader, which has rank `rank` in the bridge and `world_rank` in the world.
    fn decode(rank: u32, world_rank: u32, words: &[u64]) -> Result<Self> {
        match words {
            [OFFER, id, ranks @ ..] => {
                // An invalid rank is one that no world has.
                let ranks = ranks.iter().map(|rank| u32::try_from(*rank).unwrap_or(u32::MAX));
                Ok(Offer { id: *id, world_ranks: ranks.collect() })
            }
            [FAILED, cause @ ..] => Err(Cause::from_words(rank, world_rank, cause).to_error(CREATE)),
            _ => Err(Error::new(ErrorClass::Intern, CREATE, "the other leader sent an invalid message")),
        }
    }

    /// Checks that the other group exists and is disjoint from `local`.
    fn check(&self, local: &Group, world_size: u32) -> Result<()> {
        let error = |class, why: String| Err(Error::new(class, CREATE, why));
        let mut sorted = self.world_ranks.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let is_valid =
            sorted.len() == self.world_ranks.len() && sorted.last().is_some_and(|r| *r < world_size);
        if !is_valid {
            return error(ErrorClass::Intern, "the other leader sent an invalid group".to_owned());
        }
        match sorted.iter().find(|rank| local.rank(PeerId(**rank)).is_some()) {
            Some(rank) => error(
                ErrorClass::Comm,
                format!("the groups must be disjoint, but rank {rank} of the world is in both"),
            ),
            None => Ok(()),
        }
    }
}

/// The way to the other leader, known to the leader of a group only.
#[derive(Clone, Copy)]
struct Bridge<'a> {
    comm: &'a Comm,
    /// The other leader.
    leader: u32,
    tag: i32,
}

impl<'a> Bridge<'a> {
    fn check(comm: Option<&'a Comm>, leader: i32, tag: i32) -> Result<Self> {
        let no_bridge = || Error::new(ErrorClass::Comm, CREATE, "the leader needs a bridge communicator");
        let comm = comm.ok_or_else(no_bridge)?;
        comm.check_not_freed(CREATE)?;
        comm.check_tag(CREATE, tag)?;
        Ok(Bridge { comm, leader: comm.check_rank(CREATE, ErrorClass::Rank, leader)?, tag })
    }

    /// Sends this leader's message, and returns that of the other leader.
    fn exchange(self, message: &[u64]) -> Result<Vec<u64>> {
        let Bridge { comm, leader, tag } = self;
        let id = (ControlKind::Connect, tag);
        comm.send_control(CREATE, leader, id, message)?;
        comm.recv_control(CREATE, leader, id)
    }
}

impl Comm {
    /// Returns whether this is an intercommunicator: its messages name ranks of the remote group (MPI_Comm_test_inter).
    #[inline]
    pub fn is_inter(&self) -> bool {
        self.inner.remote.is_some()
    }

    /// Returns the remote group of an intercommunicator, in order of rank.
    pub fn remote_group(&self) -> Option<&Group> {
        self.inner.remote.as_ref().map(|remote| &remote.group)
    }

    /// Returns the number of ranks of the remote group of an intercommunicator.
    pub fn remote_size(&self) -> Option<u32> {
        self.remote_group().map(Group::size)
    }

    /// Returns the groups of an intercommunicator as ranks of the channel of its collectives.
    pub(in crate::raw) fn groups(&self) -> Groups {
        let (local, remote) =
            self.inner.remote.as_ref().map_or((0, 0), |remote| remote.offsets(self.group()));
        Groups {
            rank: local + self.rank(),
            local: local..local + self.size(),
            remote: remote..remote + self.remote_size().unwrap_or(0),
        }
    }

    /// Returns the ranks to which this one can send: the members, or the remote group.
    #[inline]
    pub(in crate::raw) fn peers(&self) -> &Group {
        self.inner.remote.as_ref().map_or(&self.inner.group, |remote| &remote.group)
    }

    #[inline]
    pub(crate) fn check_intra(&self, call: &'static str) -> Result<()> {
        if self.is_inter() { Err(kind_error(call, "not defined on an intercommunicator")) } else { Ok(()) }
    }

    /// Creates an intercommunicator of the ranks of this communicator and those of another one (MPI_Intercomm_create).
    /// Collective over both communicators. Their ranks `leader` exchange internal messages with `tag` in a third
    /// communicator, the bridge, in which the other leader has rank `remote_leader`. Other ranks pass any bridge, rank and
    /// tag. Threads can connect communicators concurrently if their tags differ.
    ///
    /// # Errors
    /// As [`barrier`](crate::raw::barrier), for both groups; a rank, the tag or the bridge is invalid; a rank has too many
    /// communicators; or the groups are not disjoint. The ranks of the other group fail, too, unless a leader passes an
    /// invalid `remote_leader`, tag or bridge, the ranks of a group pass different leaders or an invalid one, or the
    /// communicator of a group was freed. In these cases, the leader of the other group waits until its remote leader
    /// exits. After a failure, later collectives on this communicator fail.
    pub fn create_intercomm(
        &self,
        leader: i32,
        bridge: Option<&Comm>,
        remote_leader: i32,
        tag: i32,
    ) -> Result<Self> {
        self.collective(CREATE, |blocking| {
            let leader = self.check_member(CREATE, ErrorClass::Root, "leader", leader)?;
            let digest = CallDigest::new(Operation::CreateIntercomm, leader.into());
            let bridge = match self.rank() == leader {
                true => Some(Bridge::check(bridge, remote_leader, tag)?),
                false => None,
            };
            let ready = self.check_channel_limit(CREATE).and_then(|()| blocking.barrier(digest));
            let offer = match bridge {
                Some(bridge) => Some(self.exchange_offers(bridge, ready)?),
                None => ready.map(|()| None)?,
            };
            let other = self.bcast_offer(blocking, digest, offer, leader)?;
            other.check(self.group(), self.engine().site().size)?;
            let Offer { id, world_ranks } = other;
            let remote = Remote::new(self.group(), world_ranks.into_iter().collect());
            let name = intercomm_name(self.group(), &remote);
            let (group, rank, remote) = (self.group().clone(), self.rank(), Some(remote));
            let rules = Arc::clone(self.collectives().rules());
            self.child(Definition { id, name, group, rank, remote, rules })
        })
    }

    /// Exchanges the leaders' offers; if the own group has failed in `ready`, sends its cause instead. Returns the offer of
    /// the other group, with the context id of the group that comes first.
    fn exchange_offers(&self, bridge: Bridge<'_>, ready: Result<()>) -> Result<Offer> {
        let (rank, site) = (self.rank(), self.engine().site());
        let own = Offer { id: self.new_context_id(), world_ranks: world_ranks(self.group()).collect() };
        let message = match &ready {
            Ok(()) => own.encode(),
            Err(error) => {
                let cause = Cause::from_error(&format!("rank {rank} of the other group"), site.rank, error);
                [&[FAILED], &*cause.to_words()].concat()
            }
        };
        let answer = bridge.exchange(&message);
        ready?;
        let PeerId(world_rank) = bridge.comm.peers().peer(bridge.leader).unwrap_or(PeerId(0));
        let mut other = Offer::decode(bridge.leader, world_rank, &answer?)?;
        if own.world_ranks.first() < other.world_ranks.first() {
            other.id = own.id;
        }
        Ok(other)
    }

    /// Broadcasts the leader's result of the exchange to its group.
    fn bcast_offer(
        &self,
        blocking: &mut BlockingCall<'_>,
        digest: CallDigest,
        offer: Option<Offer>,
        leader: u32,
    ) -> Result<Offer> {
        let mut head = offer.as_ref().map_or([0; 2], |offer| [offer.id, offer.world_ranks.len() as u64]);
        blocking.bcast_words(digest, &mut head, leader)?;
        let [id, len] = head;
        let mut world_ranks = match offer {
            Some(offer) => offer.world_ranks,
            None => vec![0; len.min(self.engine().site().size.into()) as usize],
        };
        // SAFETY: the ranks are exclusively borrowed until the call returns.
        unsafe { blocking.bcast(digest, &Buf::slice_mut(&mut world_ranks), leader) }?;
        Ok(Offer { id, world_ranks })
    }

    /// Creates a communicator of both groups of an intercommunicator (MPI_Intercomm_merge). The ranks of a group that
    /// passes `false` come before those of a group that passes `true`. If both groups pass the same value, the group
    /// whose rank 0 comes first in the world is the first one. Both groups must have the same rules for the algorithms of
    /// collectives. Collective over both groups.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); this is not an intercommunicator; or the ranks of one group pass different values.
    pub fn merge(&self, high: bool) -> Result<Self> {
        const CALL: &str = "merge";
        let Some(remote) = &self.inner.remote else {
            return Err(kind_error(CALL, "defined only on an intercommunicator"));
        };
        self.collective_of_any(CALL, |blocking| {
            let name = self.inner.names.numbered_child(CALL);
            self.check_channel_limit(CALL)?;
            let mine = [u64::from(high), self.new_context_id()];
            let all = blocking.allgather_words(CallDigest::new(Operation::Merge, 0), &mine)?;
            let (own_at, remote_at) = remote.offsets(self.group());
            let part =
                |first: u32, group: &Group| &all[2 * first as usize..2 * (first + group.size()) as usize];
            let (own, other) = (part(own_at, self.group()), part(remote_at, &remote.group));
            let remote_high = common_high(own).and_then(|_| common_high(other))?;
            let remote_is_first = if remote_high == high { remote.comes_first } else { high };
            let (first, second, id) = match remote_is_first {
                true => (&remote.group, self.group(), other[1]),
                false => (self.group(), &remote.group, own[1]),
            };
            let rank = self.rank() + if remote_is_first { remote.group.size() } else { 0 };
            let (group, rules) = (concat(first, second), Arc::clone(self.collectives().rules()));
            self.child(Definition { id, name, group, rank, remote: None, rules })
        })
    }
}

/// Returns the value of `high` of all ranks of a group.
fn common_high(words: &[u64]) -> Result<bool> {
    let mut values = words.iter().step_by(2);
    match values.position(|high| *high != words[0]) {
        None => Ok(words[0] != 0),
        Some(rank) => {
            let why = format!("rank {rank} of a group passed another value of `high` than rank 0");
            Err(Error::new(ErrorClass::Arg, "merge", why))
        }
    }
}

fn intercomm_name(local: &Group, remote: &Remote) -> String {
    let mut firsts = [local, &remote.group].map(|group| world_ranks(group).next().unwrap_or_default());
    firsts.sort_unstable();
    format!("intercomm of world ranks {} and {}", firsts[0], firsts[1])
}

#[cold]
fn kind_error(call: &'static str, why: &'static str) -> Error {
    Error::new(ErrorClass::Comm, call, why)
}

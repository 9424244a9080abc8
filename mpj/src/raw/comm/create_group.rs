//! The creation of a communicator by the members of a group only.
//!
//! ```text
//!   member ── Join: a digest of its group, or its error ──► root: the member with the lowest rank
//!   member ◄── JoinReply: the context id, or an error ───── root
//! ```
//! The root waits for every member, so all of them have called when one returns. It does so even after an error: each
//! call sends one digest and receives one outcome, and leaves no message for a later call with the same tag.
//!
//! The root might not know all members of a group that differs from its own. It asks a member with another digest for
//! the ranks of that group, and waits for them, too:
//! ```text
//!   member ◄── JoinReply: the request for its group ─────── root
//!   member ── Join: the other ranks of its group ─────────► root
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use mpj_devices::{Group, PeerId};

use super::control::ControlKind::{Join, JoinReply};
use super::{Comm, Definition};
use crate::collective::notice::Cause;
use crate::error::{Error, ErrorClass, Result};
use crate::raw::group::{check_subset, group_digest};

/// The call of one member.
struct Creation<'a> {
    parent: &'a Comm,
    call: &'static str,
    tag: i32,
    digest: u64,
    /// The other members, by their ranks in the parent.
    others: Vec<u32>,
    root: u32,
}

/// The first word of a message.
const OK: u64 = 0;
const FAILED: u64 = 1;
/// The first word of a request for the members of a group.
const LIST_GROUP: u64 = 2;

impl Comm {
    /// Creates a communicator of the processes of a group (MPI_Comm_create_group). Only its members call this function,
    /// in any order with other calls. Threads can create communicators concurrently if their tags differ.
    ///
    /// If a member does not call it, the others wait, as for a missing message. Calls with groups whose lowest ranks
    /// differ do not match.
    ///
    /// # Errors
    /// [`ErrorClass::Group`] if this rank is not in the group, if a process of the group is not in this communicator,
    /// or if members have passed different groups with the same lowest rank; [`ErrorClass::Tag`] if the tag is negative;
    /// a rank of this communicator has died, or a member has exited or has too many communicators.
    pub fn create_group(&self, group: &Group, tag: i32) -> Result<Self> {
        const CALL: &str = "create_group";
        if tag < 0 {
            return Err(Error::new(ErrorClass::Tag, CALL, format!("tag {tag} is outside 0..=2147483647")));
        }
        self.create_among(CALL, group, (tag, 0), &format!("tag {tag}"))
    }

    /// Creates a communicator of the processes of a group (MPI_Comm_create_from_group). As
    /// [`create_group`](Self::create_group), with a text instead of a number.
    ///
    /// # Errors
    /// As [`create_group`](Self::create_group).
    pub fn create_from_group(&self, group: &Group, tag: &str) -> Result<Self> {
        // Tags of texts are negative. A digest tells texts with the same tag apart.
        let digest = tag.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let number = (digest ^ digest >> 32) as i32 | i32::MIN;
        self.create_among("comm_from_group", group, (number, digest), &format!("{tag:?}"))
    }

    fn create_among(
        &self,
        call: &'static str,
        group: &Group,
        (tag, tag_digest): (i32, u64),
        what: &str,
    ) -> Result<Self> {
        self.check_not_freed(call)?;
        self.check_intra(call)?;
        let Some(rank) = group.rank(self.me()) else {
            let why = format!("this process is not in the group of {} ranks", group.size());
            return Err(Error::new(ErrorClass::Group, call, why));
        };
        let mut others: Vec<u32> = group.iter().filter_map(|peer| self.group().rank(peer)).collect();
        others.retain(|member| *member != self.rank());
        let root = others.iter().copied().min().unwrap_or(self.rank()).min(self.rank());
        let digest = group_digest(group) ^ tag_digest;
        let creation = Creation { parent: self, call, tag, digest, others, root };
        let ready = check_subset(call, group, self.group()).and_then(|()| self.check_channel_limit(call));
        let agreed = if root == self.rank() { creation.lead(ready) } else { creation.follow(ready) };
        let id = agreed.inspect_err(|error| creation.report_cause(error))?;
        let name = self.inner.names.child(call, what);
        let rules = Arc::clone(self.collectives().rules());
        self.child(Definition { id, name, group: group.clone(), rank, remote: None, rules })
    }
}

impl Creation<'_> {
    /// The part of the root: waits for all members, and sends them the id or an error.
    fn lead(&self, ready: Result<()>) -> Result<u64> {
        let mut known: BTreeSet<u32> = self.others.iter().copied().collect();
        let (mut members, mut digests) = (self.others.clone(), BTreeSet::from([self.digest]));
        let (mut outcome, mut next) = (ready, 0);
        while let Some(member) = members.get(next).copied() {
            next += 1;
            let joined = self.receive_join(member, &mut digests);
            let (joined, others) = joined.unwrap_or_else(|error| (Err(error), Vec::new()));
            members.extend(others.into_iter().filter(|other| known.insert(*other)));
            outcome = outcome.and(joined);
        }
        let agreed = outcome.map(|()| self.parent.new_context_id());
        let reply = match &agreed {
            Ok(id) => vec![OK, *id],
            Err(error) => self.encode(error),
        };
        for member in members {
            // A member that cannot be reached learns of the reason itself.
            let _ = self.reply(member, &reply);
        }
        agreed
    }

    /// Receives the digest of a member. If it is new, receives the ranks of the group as well. Returns whether the
    /// member agrees, and these ranks.
    fn receive_join(&self, member: u32, digests: &mut BTreeSet<u64>) -> Result<(Result<()>, Vec<u32>)> {
        let words = self.parent.recv_control(self.call, member, (Join, self.tag))?;
        let [status, digest, ..] = *words.as_slice() else { return Err(self.invalid(member)) };
        let joined = match status {
            FAILED => Err(self.decode(member, &words)),
            _ if digest == self.digest => Ok(()),
            _ => {
                let why = format!("rank {member} passed another group than rank {}", self.root);
                Err(Error::new(ErrorClass::Group, self.call, why))
            }
        };
        let mut others = Vec::new();
        if digests.insert(digest) {
            self.reply(member, &[LIST_GROUP])?;
            let ranks = self.parent.recv_control(self.call, member, (Join, self.tag))?;
            let valid = |rank| u32::try_from(rank).ok().filter(|rank| *rank < self.parent.size());
            others.extend(ranks.into_iter().filter_map(valid).filter(|rank| *rank != self.root));
        }
        Ok((joined, others))
    }

    /// The part of a member that is not the root.
    fn follow(&self, ready: Result<()>) -> Result<u64> {
        let join = match &ready {
            Ok(()) => vec![OK, self.digest],
            Err(error) => self.encode(error),
        };
        self.send_join(&join)?;
        loop {
            let words = self.parent.recv_control(self.call, self.root, (JoinReply, self.tag))?;
            match *words.as_slice() {
                [LIST_GROUP] => {
                    self.send_join(&self.others.iter().map(|rank| (*rank).into()).collect::<Vec<u64>>())?
                }
                [OK, id] => return ready.map(|()| id),
                [FAILED, ..] => return ready.and_then(|()| Err(self.decode(self.root, &words))),
                _ => return Err(self.invalid(self.root)),
            }
        }
    }

    fn send_join(&self, words: &[u64]) -> Result<()> {
        self.parent.send_control(self.call, self.root, (Join, self.tag), words)
    }

    fn reply(&self, member: u32, words: &[u64]) -> Result<()> {
        self.parent.send_control(self.call, member, (JoinReply, self.tag), words)
    }

    fn invalid(&self, from: u32) -> Error {
        Error::new(ErrorClass::Intern, self.call, format!("rank {from} sent an invalid message"))
    }

    fn encode(&self, error: &Error) -> Vec<u64> {
        let rank = self.parent.rank();
        let cause = Cause::from_error(&format!("rank {rank}"), self.parent.me().0, error);
        [&[FAILED, self.digest], &*cause.to_words()].concat()
    }

    fn decode(&self, from: u32, words: &[u64]) -> Error {
        let world_rank = self.parent.group().peer(from).map_or(0, |PeerId(peer)| peer);
        Cause::from_words(from, world_rank, words.get(2..).unwrap_or_default()).to_error(self.call)
    }

    /// Reports the rank whose failure is the cause of this one, as collectives do.
    fn report_cause(&self, error: &Error) {
        let site = self.parent.engine().site();
        if let Some(first) = error.origin_rank().filter(|first| *first != site.rank && *first < site.size) {
            self.parent.engine().roster().report_cause(site.rank, first);
        }
    }
}

//! The creation of a communicator by the members of a group only.
//!
//! ```text
//!   member ── Join: a digest of its group, or its error ──► root: the member with the lowest rank
//!   member ◄── JoinReply: the context id, or an error ───── root
//! ```
//! The root waits for every member, so all of them have called when one returns. A member whose group differs from that
//! of the root passes the root's error on to its own group, because the root does not know all of its members.

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

impl Comm {
    /// Creates a communicator of the processes of a group (MPI_Comm_create_group). Only its members call this function,
    /// in any order with other calls. Threads can create communicators concurrently if their tags differ.
    ///
    /// If a member does not call it, the others wait, as for a missing message. A call with a group whose member of the
    /// lowest rank is another one is another call.
    ///
    /// # Errors
    /// [`ErrorClass::Group`] if this rank is not in the group, if a process of the group is not in this communicator,
    /// or if members have passed different groups with the same lowest rank; [`ErrorClass::Tag`] if the tag is negative;
    /// a rank of this communicator has died, or a member has exited or has too many communicators. After an error, use
    /// another tag.
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
        let agreed = ready.and_then(|()| {
            for member in &self.others {
                let words = self.parent.recv_control(self.call, *member, (Join, self.tag))?;
                self.check_member(*member, &words)?;
            }
            Ok(self.parent.new_context_id())
        });
        match &agreed {
            Ok(id) => self.reply(&[OK, self.digest, *id]),
            Err(error) => self.reply(&self.encode(error)),
        }
        agreed
    }

    fn check_member(&self, member: u32, words: &[u64]) -> Result<()> {
        match words {
            [OK, digest] if *digest == self.digest => Ok(()),
            [OK, _] => {
                let why = format!("rank {member} passed another group than rank {}", self.root);
                Err(Error::new(ErrorClass::Group, self.call, why))
            }
            _ => Err(self.decode(member, words)),
        }
    }

    /// The part of a member that is not the root.
    fn follow(&self, ready: Result<()>) -> Result<u64> {
        let join = match &ready {
            Ok(()) => vec![OK, self.digest],
            Err(error) => self.encode(error),
        };
        self.parent.send_control(self.call, self.root, (Join, self.tag), &join)?;
        ready?;
        let (from, words) = self.parent.recv_any_control(self.call, self.root, (JoinReply, self.tag))?;
        match &*words {
            [OK, digest, id] if *digest == self.digest && from == self.root => Ok(*id),
            [FAILED, digest, ..] => {
                if from == self.root && *digest != self.digest {
                    self.reply(&words);
                }
                Err(self.decode(from, &words))
            }
            _ => {
                let why = format!("rank {from} sent an invalid reply");
                Err(Error::new(ErrorClass::Intern, self.call, why))
            }
        }
    }

    /// Sends words to all other members. A member that cannot be reached learns of the reason itself.
    fn reply(&self, words: &[u64]) {
        for member in self.others.iter().filter(|member| **member != self.root) {
            let _ = self.parent.send_control(self.call, *member, (JoinReply, self.tag), words);
        }
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

//! A communicator: two channels and a group, and the creation of new communicators from it.

mod extras;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use mpj_collectives::{Operation, Rules};
use mpj_devices::{
    Calls, Channel, DataPath, Engine, Fault, Group, HostId, Hosts, PeerId, WORLD as WORLD_NAME,
};

use crate::address::PROC_NULL_NUMBER;
use crate::collective::blocking::{self, BlockingCall};
use crate::collective::call_id::CallDigest;
use crate::collective::context::CollContext;
use crate::error::{Error, ErrorClass, Result};
use extras::Extras;

/// The color of a rank that does not want a communicator from a split.
pub const UNDEFINED: i32 = -32766;

/// A communicator. Clones are handles of the same communicator; each handle may select a data path for its
/// point-to-point messages.
#[derive(Clone, Debug)]
pub struct Comm {
    inner: Arc<CommInner>,
    path: Option<DataPath>,
}

#[derive(Debug)]
struct CommInner {
    engine: Arc<Engine>,
    p2p: Arc<Channel>,
    collectives: Arc<CollContext>,
    group: Group,
    rank: u32,
    freed: AtomicBool,
    name_and_counts: NameAndCounts,
    common: Arc<Common>,
    extras: OnceLock<Box<Extras>>,
}

/// The data that all communicators of a rank share.
#[derive(Debug)]
struct Common {
    /// The hosts of the world's ranks.
    hosts: Hosts,
    /// The number of context ids that this rank has allocated.
    id_count: AtomicU64,
}

/// The name of a communicator, and the numbers of its duplications, splits and topologies. All ranks count alike, so a new
/// communicator has the same name on all its ranks.
#[derive(Debug)]
struct NameAndCounts {
    name: Arc<str>,
    dups: AtomicU32,
    splits: AtomicU32,
    topologies: AtomicU32,
}

/// The maximum length of a parent's name in a derived name, in bytes. A longer name is replaced by `…`.
const MAX_PARENT_NAME: usize = 64;

impl NameAndCounts {
    fn new(name: String) -> Self {
        let [dups, splits, topologies] = Default::default();
        NameAndCounts { name: name.into(), dups, splits, topologies }
    }

    fn child(&self, call: &str, count: &AtomicU32) -> String {
        let parent = if self.name.len() > MAX_PARENT_NAME { "…" } else { &self.name };
        format!("{parent}.{call} {}", count.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Drop for CommInner {
    fn drop(&mut self) {
        self.engine.free(&self.p2p);
    }
}

/// The context id of the world. The channels of a communicator have the contexts 2·id (point-to-point) and 2·id + 1
/// (collectives).
const WORLD: u64 = 1;

impl Comm {
    pub(crate) fn world(engine: Arc<Engine>, hosts: Hosts, rules: Arc<Rules>) -> Result<Self> {
        let (rank, len) = (engine.site().rank, engine.site().size);
        let group = Group::Range { first: 0, len };
        let common = Arc::new(Common { hosts, id_count: AtomicU64::new(0) });
        Comm::create(engine, WORLD, WORLD_NAME.to_owned(), group, rank, common, rules)
    }

    fn create(
        engine: Arc<Engine>,
        id: u64,
        name: String,
        group: Group,
        rank: u32,
        common: Arc<Common>,
        rules: Arc<Rules>,
    ) -> Result<Self> {
        let join = |context| {
            engine.join(context, group.clone(), rank).map_err(|f| Error::from_fault("communicator", f))
        };
        let p2p = join(id << 1)?;
        let coll = join(id << 1 | 1).inspect_err(|_| engine.free(&p2p))?;
        let hosts: BTreeSet<HostId> =
            (0..group.size()).filter_map(|rank| common.hosts.host_of(group.peer(rank)?.0)).collect();
        let collectives = Arc::new(CollContext::new(Arc::clone(&engine), coll, hosts.len() as u32, rules));
        let (freed, name_and_counts) = (AtomicBool::new(false), NameAndCounts::new(name));
        engine.describe(&p2p, Arc::clone(&name_and_counts.name), None);
        let calls: Weak<dyn Calls> = Arc::<CollContext>::downgrade(&collectives);
        engine.describe(collectives.channel(), Arc::clone(&name_and_counts.name), Some(calls));
        let extras = OnceLock::new();
        let inner = Arc::new(CommInner {
            engine,
            p2p,
            collectives,
            group,
            rank,
            freed,
            name_and_counts,
            common,
            extras,
        });
        Ok(Comm { inner, path: None })
    }

    /// Returns a handle of the same communicator whose point-to-point messages use `path` on this rank. Collectives,
    /// and handles without a path, use that of `MPJ_DATA_PATH`.
    pub fn by_path(&self, path: DataPath) -> Self {
        Comm { inner: Arc::clone(&self.inner), path: Some(path) }
    }

    /// Returns the data path of this handle, if it has one.
    #[inline]
    pub fn path(&self) -> Option<DataPath> {
        self.path
    }

    /// Returns the number of this rank in the communicator.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.inner.rank
    }

    /// Returns the number of ranks.
    #[inline]
    pub fn size(&self) -> u32 {
        self.inner.group.size()
    }

    /// Returns the members, in order of rank.
    pub fn group(&self) -> &Group {
        &self.inner.group
    }

    /// Returns the host of a rank of the communicator; `None` if there is no such rank.
    pub fn host_of(&self, rank: u32) -> Option<HostId> {
        self.inner.common.hosts.host_of(self.inner.group.peer(rank)?.0)
    }

    /// Returns the number of hosts on which the communicator has ranks.
    pub fn host_count(&self) -> u32 {
        self.collectives().host_count()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    pub(crate) fn p2p(&self) -> &Arc<Channel> {
        &self.inner.p2p
    }

    /// As [`blocking::run_blocking`]; fails also if the communicator was freed.
    pub(crate) fn collective<T>(
        &self,
        call: &'static str,
        body: impl FnOnce(&mut BlockingCall<'_>) -> Result<T>,
    ) -> Result<T> {
        self.check_not_freed(call)?;
        blocking::run_blocking(self.collectives(), call, body)
    }

    pub(crate) fn collectives(&self) -> &Arc<CollContext> {
        &self.inner.collectives
    }

    #[inline]
    pub(crate) fn check_not_freed(&self, call: &'static str) -> Result<()> {
        if self.inner.freed.load(Ordering::Relaxed) {
            return Err(Error::from_fault(call, Fault::Freed));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn check_rank(&self, call: &'static str, class: ErrorClass, rank: i32) -> Result<u32> {
        match u32::try_from(rank) {
            Ok(member) if member < self.size() => Ok(member),
            _ => Err(self.rank_error(call, class, rank)),
        }
    }

    #[cold]
    fn rank_error(&self, call: &'static str, class: ErrorClass, rank: i32) -> Error {
        let ranks = match self.size() {
            1 => "only rank 0".to_owned(),
            size => format!("ranks 0 to {}", size - 1),
        };
        let what = if class == ErrorClass::Root { "root" } else { "rank" };
        let who = match rank {
            PROC_NULL_NUMBER => {
                return Error::new(class, call, format!("PROC_NULL is not a valid {what} here"));
            }
            // `0 - 1` as a `usize` does not fit an `i32`, and arrives here as `i32::MAX`.
            i32::MAX => format!("{what} {rank} (0 - 1?)"),
            _ => format!("{what} {rank}"),
        };
        Error::new(class, call, format!("{who} is out of range: the communicator has {ranks}"))
    }

    /// Frees the communicator on this rank: later sends, receives, probes and collectives on any of its handles fail.
    /// Dropping the last handle frees it, too; a pending request is such a handle.
    ///
    /// Pending operations complete, as MPI requires: a posted receive still gets its message, the messages that this
    /// rank has sent can still be received, and collectives complete. A message that matches no posted receive is
    /// refused: its sender fails with [`Fault::Refused`] if it waits for the match. An unmatched synchronous send of
    /// this rank to itself fails with [`Fault::Freed`].
    ///
    /// # Errors
    /// It was freed before, or it is the world.
    pub fn free(&self) -> Result<()> {
        if self.inner.p2p.context() == WORLD << 1 {
            return Err(Error::new(ErrorClass::Comm, "free", "the world cannot be freed"));
        }
        if self.inner.freed.swap(true, Ordering::Relaxed) {
            return Err(Error::from_fault("free", Fault::Freed));
        }
        // The channels are freed with the last handle, and pending operations own handles.
        self.inner.engine.begin_free(&self.inner.p2p);
        Ok(())
    }

    /// Returns a context id that no other rank creates, and that this rank repeats only after 2^30 ids.
    pub(super) fn new_context_id(&self) -> u64 {
        let count = self.inner.common.id_count.fetch_add(1, Ordering::Relaxed) + 1;
        (u64::from(self.inner.engine.site().rank) + 1) << 30 | count & ((1 << 30) - 1)
    }

    /// Creates a communicator of the same ranks, whose messages are separate from those of this one. Collective.
    ///
    /// # Errors
    /// As [`barrier`](super::barrier); a rank has too many communicators.
    pub fn dup(&self) -> Result<Self> {
        self.dup_with_rules(Arc::clone(self.collectives().rules()))
    }

    /// As [`dup`](Self::dup), with other rules for the algorithms of the new communicator's collectives. All ranks must
    /// pass the same rules.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn dup_with_rules(&self, rules: Arc<Rules>) -> Result<Self> {
        self.collective("dup", |blocking| {
            let name = self.inner.name_and_counts.child("dup", &self.inner.name_and_counts.dups);
            self.check_channel_limit("dup")?;
            let mut id = [if self.rank() == 0 { self.new_context_id() } else { 0 }];
            blocking.bcast_words(CallDigest::new(Operation::Dup, 0), &mut id, 0)?;
            let (engine, common) = (Arc::clone(&self.inner.engine), Arc::clone(&self.inner.common));
            let comm =
                Comm::create(engine, id[0], name, self.inner.group.clone(), self.rank(), common, rules)?;
            self.copy_extras_to(&comm);
            Ok(Comm { path: self.path, ..comm })
        })
    }

    /// Creates one communicator for each color, with its ranks in order of key and then of old rank; returns `None` on
    /// ranks whose color is [`UNDEFINED`]. Collective.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); the color is negative, but not [`UNDEFINED`].
    pub fn split(&self, color: i32, key: i32) -> Result<Option<Self>> {
        let color = if color == UNDEFINED { None } else { Some(i64::from(color)) };
        self.split_opt(color, key)
    }

    /// As [`split`](Self::split). `None` stands for [`UNDEFINED`], and a color out of range is an error.
    pub(crate) fn split_opt(&self, color: Option<i64>, key: i32) -> Result<Option<Self>> {
        self.collective("split", |blocking| {
            let name = self.inner.name_and_counts.child("split", &self.inner.name_and_counts.splits);
            let word = match color.map(i32::try_from) {
                None => u64::MAX,
                Some(Ok(color)) if color >= 0 => color as u64,
                Some(_) => {
                    let why = format!("color {} is outside 0..=2147483647", color.unwrap_or_default());
                    return Err(Error::new(ErrorClass::Arg, "split", why));
                }
            };
            self.check_channel_limit("split")?;
            let mine = [word, u64::from(key.cast_unsigned()), self.new_context_id()];
            let all = blocking.allgather_words(CallDigest::new(Operation::Split, 0), &mine)?;
            if color.is_none() {
                return Ok(None);
            }
            let mut members: Vec<(i32, u32, u64)> = all
                .chunks_exact(3)
                .zip(0..)
                .filter(|(words, _)| words[0] == word)
                .map(|(words, rank)| ((words[1] as u32).cast_signed(), rank, words[2]))
                .collect();
            members.sort_unstable();
            let id = members.first().map_or(0, |leader| leader.2);
            let position = members.iter().position(|m| m.1 == self.rank()).unwrap_or(0);
            let peers = members.iter().filter_map(|m| self.inner.group.peer(m.1)).map(|PeerId(peer)| peer);
            let (engine, common) = (Arc::clone(&self.inner.engine), Arc::clone(&self.inner.common));
            let name = format!("{name} color {}", word as u32);
            Comm::create(
                engine,
                id,
                name,
                peers.collect(),
                position as u32,
                common,
                Arc::clone(self.collectives().rules()),
            )
            .map(|comm| Some(Comm { path: self.path, ..comm }))
        })
    }

    /// Creates a communicator of the ranks `members`, in this order; `None` if this rank is not one of them. All ranks
    /// make this call, after they have agreed on its arguments.
    pub(super) fn with_members(&self, call: &'static str, id: u64, members: &[u32]) -> Result<Option<Self>> {
        let name = self.inner.name_and_counts.child(call, &self.inner.name_and_counts.topologies);
        let Some((position, _)) = (0..).zip(members).find(|(_, member)| **member == self.rank()) else {
            return Ok(None);
        };
        let group = if members.iter().copied().eq(0..self.size()) {
            self.inner.group.clone()
        } else {
            members
                .iter()
                .filter_map(|member| self.inner.group.peer(*member))
                .map(|PeerId(peer)| peer)
                .collect()
        };
        let (engine, common) = (Arc::clone(&self.inner.engine), Arc::clone(&self.inner.common));
        let rules = Arc::clone(self.collectives().rules());
        Comm::create(engine, id, name, group, position, common, rules)
            .map(|comm| Some(Comm { path: self.path, ..comm }))
    }

    /// Checks that this rank can create another communicator, before it sends its part of the call.
    pub(super) fn check_channel_limit(&self, call: &'static str) -> Result<()> {
        if self.inner.engine.free_channel_count() < 2 {
            return Err(Error::from_fault(call, Fault::TooManyChannels));
        }
        Ok(())
    }
}

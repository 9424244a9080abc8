//! A communicator: a group, its channels, and what a program attaches to it.

mod attributes;
mod control;
mod create;
mod create_group;
mod errors;
mod extras;
mod idup;
mod inter;
mod lazy_channel;
mod names;
mod process_sets;
mod split;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use mpj_collectives::Rules;
use mpj_devices::{
    Calls, Channel, DataPath, Engine, Fault, Group, HostId, Hosts, PeerId, WORLD as WORLD_NAME,
};

use super::buffered::BsendSlot;
use super::group::{Comparison, group_compare};
use super::part_channel::{PartRounds, PartTags};
use crate::boot::Boot;
use crate::collective::blocking::{self, BlockingCall};
use crate::collective::context::CollContext;
use crate::error::{Error, ErrorClass, Result};
pub use attributes::{Attribute, AttributeKey};
pub use extras::ErrorHandler;
use extras::Extras;
pub use idup::PendingDup;
use inter::Remote;
use lazy_channel::LazyChannel;
use names::Names;
pub use split::SplitType;

/// The color of a rank that does not want a communicator from a split.
pub const UNDEFINED: i32 = -32766;

/// A communicator, or an intercommunicator ([`is_inter`](Comm::is_inter)). Clones are handles of the same communicator;
/// each handle may select a data path for its point-to-point messages.
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
    remote: Option<Remote>,
    freed: AtomicBool,
    names: Names,
    common: Arc<Common>,
    control: LazyChannel,
    bsend_slot: BsendSlot,
    part_channel: LazyChannel,
    part_tags: PartTags,
    part_rounds: PartRounds,
    extras: OnceLock<Box<Extras>>,
}

/// The data that all communicators of a rank share.
#[derive(Debug)]
struct Common {
    boot: Arc<dyn Boot>,
    /// The hosts of the world's ranks.
    hosts: Hosts,
    /// The number of context ids that this rank has allocated.
    id_count: AtomicU64,
    world_bsend_slot: BsendSlot,
}

/// The properties of a new communicator.
#[derive(Debug)]
struct Definition {
    id: u64,
    name: String,
    group: Group,
    /// The number of this rank in the group.
    rank: u32,
    /// The other group of an intercommunicator.
    remote: Option<Remote>,
    rules: Arc<Rules>,
}

impl Drop for CommInner {
    fn drop(&mut self) {
        for channel in [&mut self.control, &mut self.part_channel] {
            channel.free(&self.engine, self.p2p.context());
        }
        self.engine.free(&self.p2p);
    }
}

/// The context ids of the predefined communicators. Those that ranks create are larger.
///
/// The channels of a communicator have the contexts 4·id (point-to-point), 4·id + 1 (collectives), 4·id + 2
/// ([`control`]) and 4·id + 3 ([`part_channel`](super::part_channel)).
const WORLD: u64 = 1;
const ALONE: u64 = 2;

const CONTROL: u64 = 2;
const PARTS: u64 = 3;

/// The context of the world's point-to-point messages.
const WORLD_P2P: u64 = WORLD << 2;

/// Joins a channel in which ranks send to the communicator's group, or in an intercommunicator to the remote group.
fn join_for_messages(
    engine: &Engine,
    context: u64,
    group: &Group,
    rank: u32,
    remote: Option<&Remote>,
) -> Result<Arc<Channel>, Fault> {
    match remote {
        None => engine.join(context, group.clone(), rank),
        Some(remote) => engine.join_inter(context, group.clone(), rank, remote.group.clone()),
    }
}

impl Comm {
    pub(crate) fn world(engine: Arc<Engine>, boot: Arc<dyn Boot>, rules: Arc<Rules>) -> Result<Self> {
        let (rank, len) = (engine.site().rank, engine.site().size);
        let group = Group::Range { first: 0, len };
        let (id_count, world_bsend_slot) = (AtomicU64::new(0), BsendSlot::default());
        let common = Arc::new(Common { hosts: boot.hosts(), boot, id_count, world_bsend_slot });
        let name = WORLD_NAME.to_owned();
        let definition = Definition { id: WORLD, name, group, rank, remote: None, rules };
        Comm::join(engine, common, definition)
    }

    fn join(engine: Arc<Engine>, common: Arc<Common>, definition: Definition) -> Result<Self> {
        let Definition { id, name, group, rank, remote, rules } = definition;
        let error = |fault| Error::from_fault("communicator", fault);
        let p2p = join_for_messages(&engine, id << 2, &group, rank, remote.as_ref()).map_err(error)?;
        // The collectives of an intercommunicator have one channel for both groups.
        let (all, number) = Remote::join_groups(remote.as_ref(), &group, rank);
        let coll = engine.join(id << 2 | 1, all.clone(), number).map_err(error);
        let coll = coll.inspect_err(|_| engine.free(&p2p))?;
        let hosts: BTreeSet<HostId> =
            all.iter().filter_map(|PeerId(peer)| common.hosts.host_of(peer)).collect();
        let first_group_size = remote.as_ref().map(|remote| remote.first_size(&group));
        let (hosts, coll_engine) = (hosts.len() as u32, Arc::clone(&engine));
        let collectives = Arc::new(CollContext::new(coll_engine, coll, hosts, first_group_size, rules));
        let names = Names::new(&name);
        engine.describe(&p2p, names.get(), None);
        let calls: Weak<dyn Calls> = Arc::<CollContext>::downgrade(&collectives);
        engine.describe(collectives.channel(), names.get(), Some(calls));
        let inner = CommInner {
            engine,
            p2p,
            collectives,
            group,
            rank,
            remote,
            freed: AtomicBool::new(false),
            names,
            common,
            control: LazyChannel::new(CONTROL),
            bsend_slot: BsendSlot::default(),
            part_channel: LazyChannel::new(PARTS),
            part_tags: PartTags::default(),
            part_rounds: PartRounds::default(),
            extras: OnceLock::new(),
        };
        Ok(Comm { inner: Arc::new(inner), path: None })
    }

    /// Joins a communicator that this one creates.
    fn child(&self, definition: Definition) -> Result<Self> {
        let (engine, common) = (Arc::clone(&self.inner.engine), Arc::clone(&self.inner.common));
        let comm = Comm::join(engine, common, definition)?;
        if let Some(handler) = self.error_handler() {
            comm.set_error_handler(handler);
        }
        Ok(Comm { path: self.path, ..comm })
    }

    fn describe_channels(&self, name: &Arc<str>) {
        self.engine().describe(self.p2p(), Arc::clone(name), None);
        self.engine().describe(self.collectives().channel(), Arc::clone(name), None);
        for channel in [&self.inner.control, &self.inner.part_channel] {
            channel.describe(self.engine(), name);
        }
    }

    /// Aborts the whole job (MPI_Abort): `mpjrun` terminates all processes; if the ranks are threads, all operations
    /// fail. The exit code of the job is the lowest eight bits of `code`, or 1 if these are 0 and `code` is not. If
    /// `code` is 0 and a rank fails for another reason, the exit code is that of the failure. After the rank has left
    /// the job, this has no effect.
    ///
    /// The call returns, so that the caller can clean up and exit.
    pub fn abort(&self, code: i32, why: &str) {
        self.inner.common.boot.abort(code, why);
    }

    /// Compares two communicators (MPI_Comm_compare).
    pub fn compare(&self, other: &Comm) -> Comparison {
        if Arc::ptr_eq(&self.inner, &other.inner) {
            return Comparison::Identical;
        }
        let remote = match (self.remote_group(), other.remote_group()) {
            (None, None) => Comparison::Identical,
            (Some(mine), Some(theirs)) => group_compare(mine, theirs),
            _ => Comparison::Unequal,
        };
        match group_compare(self.group(), other.group()).max(remote) {
            Comparison::Identical => Comparison::Congruent,
            comparison => comparison,
        }
    }

    /// Returns a handle of the same communicator whose point-to-point messages use `path` on this rank. Collectives,
    /// and handles without a path, use that of `MPJ_DATA_PATH`.
    pub fn with_path(&self, path: DataPath) -> Self {
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

    /// Returns the number of ranks. In an intercommunicator, these are the ranks of this rank's group.
    #[inline]
    pub fn size(&self) -> u32 {
        self.inner.group.size()
    }

    /// Returns the members, in order of rank. In an intercommunicator, these are the members of this rank's group.
    pub fn group(&self) -> &Group {
        &self.inner.group
    }

    /// Returns the host of a rank of this rank's group; `None` if there is no such rank.
    pub fn host_of(&self, rank: u32) -> Option<HostId> {
        self.inner.common.hosts.host_of(self.inner.group.peer(rank)?.0)
    }

    /// Returns the number of hosts on which the communicator has ranks.
    pub fn host_count(&self) -> u32 {
        self.collectives().host_count()
    }

    /// Returns the place for the communicator's buffer of buffered sends.
    pub(super) fn bsend_slot(&self) -> &BsendSlot {
        match self.inner.p2p.context() {
            WORLD_P2P => self.world_bsend_slot(),
            _ => &self.inner.bsend_slot,
        }
    }

    pub(super) fn world_bsend_slot(&self) -> &BsendSlot {
        &self.inner.common.world_bsend_slot
    }

    /// Returns the channel of partitioned messages. The first call joins it.
    pub(super) fn part_channel(&self, call: &'static str) -> Result<Arc<Channel>> {
        self.inner.part_channel.get_or_join(self, call)
    }

    pub(super) fn part_tags(&self) -> &PartTags {
        &self.inner.part_tags
    }

    /// Begins a round of a partitioned message.
    ///
    /// # Errors
    /// The communicator was freed.
    pub(super) fn begin_part_round(&self, call: &'static str) -> Result<()> {
        self.check_not_freed(call)?;
        if self.inner.part_rounds.begin() { Ok(()) } else { Err(self.fault(call, Fault::Freed)) }
    }

    /// Ends a round, or notes that the communicator was freed.
    pub(super) fn end_part_round(&self) {
        let CommInner { engine, p2p, part_channel, part_rounds, .. } = &*self.inner;
        if part_rounds.end() {
            part_channel.begin_free(engine, p2p.context());
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    pub(crate) fn p2p(&self) -> &Arc<Channel> {
        &self.inner.p2p
    }

    /// As [`blocking::run_blocking`]; also fails if the communicator was freed, or is an intercommunicator.
    pub(crate) fn collective<T>(
        &self,
        call: &'static str,
        body: impl FnOnce(&mut BlockingCall<'_>) -> Result<T>,
    ) -> Result<T> {
        self.check_intra(call)?;
        self.collective_of_any(call, body)
    }

    /// As [`collective`](Self::collective), but accepts an intercommunicator, where both groups take part in the call.
    pub(crate) fn collective_of_any<T>(
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
            return Err(self.fault(call, Fault::Freed));
        }
        Ok(())
    }

    /// Checks the number of a rank to which this one can send (in an intercommunicator, a rank of the remote group).
    #[inline]
    pub(crate) fn check_rank(&self, call: &'static str, class: ErrorClass, rank: i32) -> Result<u32> {
        let what = if class == ErrorClass::Root { "root" } else { "rank" };
        self.check_member(call, class, what, rank)
    }

    /// As [`check_rank`](Self::check_rank), with the word for the rank in errors.
    #[inline]
    pub(super) fn check_member(
        &self,
        call: &'static str,
        class: ErrorClass,
        what: &str,
        rank: i32,
    ) -> Result<u32> {
        match u32::try_from(rank) {
            Ok(member) if member < self.peers().size() => Ok(member),
            _ => Err(self.rank_error(call, class, what, rank)),
        }
    }

    /// Frees the communicator on this rank: later sends, receives, probes and collectives on any of its handles fail.
    /// Dropping the last handle frees it, too; a pending request is such a handle.
    ///
    /// Pending operations complete, as MPI requires: a posted receive still gets its message, the messages that this
    /// rank has sent can still be received, and active rounds of partitioned messages and collectives complete. A
    /// message that matches no posted receive is refused: its sender fails with [`Fault::Refused`] if it waits for the
    /// match. An unmatched synchronous send of this rank to itself fails with [`Fault::Freed`].
    ///
    /// # Errors
    /// It was freed before, or it is the world or the communicator of this rank alone.
    pub fn free(&self) -> Result<()> {
        let predefined = [(WORLD, "the world"), (ALONE, "the communicator of this rank alone")];
        if let Some((_, what)) = predefined.iter().find(|(id, _)| self.p2p().context() == id << 2) {
            return Err(Error::new(ErrorClass::Comm, "free", format!("{what} cannot be freed")));
        }
        if self.inner.freed.swap(true, Ordering::Relaxed) {
            return Err(self.fault("free", Fault::Freed));
        }
        // The channels are freed with the last handle, and pending operations own handles.
        self.engine().begin_free(self.p2p());
        self.end_part_round();
        self.drop_attributes();
        Ok(())
    }
}

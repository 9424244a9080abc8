//! A communicator: a group, its channels, and what a program attaches to it.

mod attributes;
mod control;
mod create;
mod create_group;
mod extras;
mod idup;
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

use super::group::{Comparison, group_compare};
use crate::address::PROC_NULL_NUMBER;
use crate::boot::Boot;
use crate::collective::blocking::{self, BlockingCall};
use crate::collective::context::CollContext;
use crate::error::{Error, ErrorClass, Result};
pub use attributes::{Attribute, AttributeKey};
use control::Control;
pub use extras::ErrorHandler;
use extras::Extras;
pub use idup::PendingDup;
use names::Names;
pub use split::SplitType;

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
    names: Names,
    common: Arc<Common>,
    control: Control,
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
}

/// The properties of a new communicator.
#[derive(Debug)]
struct Definition {
    id: u64,
    name: String,
    group: Group,
    /// The number of this rank in the group.
    rank: u32,
    rules: Arc<Rules>,
}

impl Drop for CommInner {
    fn drop(&mut self) {
        self.control.free(&self.engine, self.p2p.context());
        self.engine.free(&self.p2p);
    }
}

/// The context ids of the predefined communicators. Those that ranks create are larger.
///
/// The channels of a communicator have the contexts 4·id (point-to-point), 4·id + 1 (collectives) and 4·id + 2
/// ([`control`]).
const WORLD: u64 = 1;
const ALONE: u64 = 2;

impl Comm {
    pub(crate) fn world(engine: Arc<Engine>, boot: Arc<dyn Boot>, rules: Arc<Rules>) -> Result<Self> {
        let (rank, len) = (engine.site().rank, engine.site().size);
        let group = Group::Range { first: 0, len };
        let common = Arc::new(Common { hosts: boot.hosts(), boot, id_count: AtomicU64::new(0) });
        let definition = Definition { id: WORLD, name: WORLD_NAME.to_owned(), group, rank, rules };
        Comm::join(engine, common, definition)
    }

    fn join(engine: Arc<Engine>, common: Arc<Common>, definition: Definition) -> Result<Self> {
        let Definition { id, name, group, rank, rules } = definition;
        let join = |context| {
            engine.join(context, group.clone(), rank).map_err(|f| Error::from_fault("communicator", f))
        };
        let p2p = join(id << 2)?;
        let coll = join(id << 2 | 1).inspect_err(|_| engine.free(&p2p))?;
        let hosts: BTreeSet<HostId> =
            group.iter().filter_map(|PeerId(peer)| common.hosts.host_of(peer)).collect();
        let collectives = Arc::new(CollContext::new(Arc::clone(&engine), coll, hosts.len() as u32, rules));
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
            freed: AtomicBool::new(false),
            names,
            common,
            control: Control::default(),
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
        self.describe_control(name);
    }

    /// Aborts the whole job (MPI_Abort): `mpjrun` terminates all processes; if the ranks are threads, all operations
    /// fail. The exit code of the job is the lowest eight bits of `code`, or 1 if these are 0 and `code` is not.
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
        match group_compare(self.group(), other.group()) {
            Comparison::Identical => Comparison::Congruent,
            comparison => comparison,
        }
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
        let comm = self.inner.names.in_errors();
        Error::new(class, call, format!("{who} is out of range: {comm} has {ranks}"))
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
        let predefined = [(WORLD, "the world"), (ALONE, "the communicator of this rank alone")];
        if let Some((_, what)) = predefined.iter().find(|(id, _)| self.p2p().context() == id << 2) {
            return Err(Error::new(ErrorClass::Comm, "free", format!("{what} cannot be freed")));
        }
        if self.inner.freed.swap(true, Ordering::Relaxed) {
            return Err(Error::from_fault("free", Fault::Freed));
        }
        // The channels are freed with the last handle, and pending operations own handles.
        self.inner.engine.begin_free(&self.inner.p2p);
        self.drop_attributes();
        Ok(())
    }
}

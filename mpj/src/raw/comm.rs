//! A communicator: two channels and a group, and the creation of new communicators from it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use mpj_devices::{Calls, Channel, DataPath, Engine, Fault, Group, PeerId, WORLD as WORLD_NAME};

use crate::address::PROC_NULL_NUMBER;
use crate::collective::context::CollContext;
use crate::collective::label::{CallDigest, CollectiveKind};
use crate::collective::tuning::Tuning;
use crate::collective::turn::{self, BlockingCall};
use crate::error::{Error, ErrorClass, Result};

/// The color of a rank that does not want a communicator from a split.
pub const UNDEFINED: i32 = -32766;

/// A communicator. Clones are handles of the same communicator; each handle may select a data path for the messages
/// that are started through it.
#[derive(Clone, Debug)]
pub struct Comm {
    core: Arc<CommInner>,
    /// The data path of messages that are started through this handle.
    path: Option<DataPath>,
}

#[derive(Debug)]
struct CommInner {
    engine: Arc<Engine>,
    /// The channel of point-to-point messages.
    p2p: Arc<Channel>,
    collectives: Arc<CollContext>,
    group: Group,
    rank: u32,
    freed: AtomicBool,
    family: Family,
    /// The number of communicator ids that this process has allocated.
    made: Arc<AtomicU64>,
}

/// The name of a communicator, and the number of communicators that were made from it. All ranks count alike, so a new
/// communicator has the same name on all of them.
#[derive(Debug)]
struct Family {
    name: Arc<str>,
    dups: AtomicU32,
    splits: AtomicU32,
}

/// The maximum length, in bytes, of a name that becomes part of the names of derived communicators.
const LONG_NAME: usize = 64;

impl Family {
    fn new(name: String) -> Self {
        Family { name: name.into(), dups: AtomicU32::new(0), splits: AtomicU32::new(0) }
    }

    /// Returns the name of the next communicator that `call` makes from this one; `made` counts them.
    fn child(&self, call: &str, made: &AtomicU32) -> String {
        let parent = if self.name.len() > LONG_NAME { "…" } else { &self.name };
        format!("{parent}.{call} {}", made.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Drop for CommInner {
    fn drop(&mut self) {
        self.engine.free(&self.p2p);
    }
}

/// The id of the world.
const WORLD: u64 = 1;

impl Comm {
    /// Creates the communicator of all ranks.
    pub(crate) fn world(engine: Arc<Engine>, tuning: Tuning) -> Result<Self> {
        let (rank, len) = (engine.site().rank, engine.site().size);
        let (group, made) = (Group::Range { first: 0, len }, Arc::new(AtomicU64::new(0)));
        Comm::make(engine, WORLD, WORLD_NAME.to_owned(), group, rank, made, tuning)
    }

    fn make(
        engine: Arc<Engine>,
        id: u64,
        name: String,
        group: Group,
        rank: u32,
        made: Arc<AtomicU64>,
        tuning: Tuning,
    ) -> Result<Self> {
        let join = |context| {
            engine.join(context, group.clone(), rank).map_err(|f| Error::from_fault("communicator", f))
        };
        let p2p = join(id << 1)?;
        let coll = join(id << 1 | 1).inspect_err(|_| engine.free(&p2p))?;
        let collectives = Arc::new(CollContext::new(Arc::clone(&engine), coll, tuning));
        let (freed, family) = (AtomicBool::new(false), Family::new(name));
        engine.describe(&p2p, Arc::clone(&family.name), None);
        let calls: Weak<dyn Calls> = Arc::<CollContext>::downgrade(&collectives);
        engine.describe(collectives.channel(), Arc::clone(&family.name), Some(calls));
        let core = Arc::new(CommInner { engine, p2p, collectives, group, rank, freed, family, made });
        Ok(Comm { core, path: None })
    }

    /// Returns a handle of the same communicator whose point-to-point messages use `path`, where this rank has the
    /// choice. Collectives, and handles without a path, use the path of the world (`MPJ_DATA_PATH`).
    pub fn by_path(&self, path: DataPath) -> Self {
        Comm { core: Arc::clone(&self.core), path: Some(path) }
    }

    /// Returns the data path of this handle, if it has one.
    #[inline]
    pub fn path(&self) -> Option<DataPath> {
        self.path
    }

    /// Returns this process's rank.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.core.rank
    }

    /// Returns the number of ranks.
    #[inline]
    pub fn size(&self) -> u32 {
        self.core.group.size()
    }

    /// Returns the processes, in order of rank.
    pub fn group(&self) -> &Group {
        &self.core.group
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.core.engine
    }

    pub(crate) fn p2p(&self) -> &Arc<Channel> {
        &self.core.p2p
    }

    /// Runs a collective call: `body` checks its arguments, and then runs its plans.
    ///
    /// # Errors
    /// As [`turn::run_blocking`]; the communicator was freed.
    pub(crate) fn collective<T>(
        &self,
        call: &'static str,
        body: impl FnOnce(&mut BlockingCall<'_>) -> Result<T>,
    ) -> Result<T> {
        self.check_not_freed(call)?;
        turn::run_blocking(self.collectives(), call, body)
    }

    pub(crate) fn collectives(&self) -> &Arc<CollContext> {
        &self.core.collectives
    }

    /// Checks that the communicator was not freed.
    #[inline]
    pub(crate) fn check_not_freed(&self, call: &'static str) -> Result<()> {
        if self.core.freed.load(Ordering::Relaxed) {
            return Err(Error::from_fault(call, Fault::Freed));
        }
        Ok(())
    }

    /// Checks that `rank` is a rank of this communicator.
    #[inline]
    pub(crate) fn check_rank(&self, call: &'static str, class: ErrorClass, rank: i32) -> Result<u32> {
        match u32::try_from(rank) {
            Ok(member) if member < self.size() => Ok(member),
            _ => Err(self.outside(call, class, rank)),
        }
    }

    #[cold]
    fn outside(&self, call: &'static str, class: ErrorClass, rank: i32) -> Error {
        let ranks = if self.size() == 1 { "rank" } else { "ranks" };
        let what = if class == ErrorClass::Root { "root" } else { "rank" };
        let who = match rank {
            PROC_NULL_NUMBER => {
                return Error::new(class, call, format!("nobody (PROC_NULL) is no {what} here"));
            }
            // `0 - 1` wraps to a number that this type cannot represent, and arrives here as `i32::MAX`.
            i32::MAX => format!("{what} {rank} or above (0 - 1?)"),
            _ => format!("{what} {rank}"),
        };
        Error::new(class, call, format!("{who} is outside the communicator of {} {ranks}", self.size()))
    }

    /// Frees the communicator on this rank: every later call on any of its handles is an error. Dropping the last
    /// handle frees it too.
    ///
    /// Pending operations complete, as MPI requires: a posted receive still gets its message, the messages that this
    /// rank has sent can still be received, and collectives complete. A message that matches no posted receive is
    /// refused: its sender fails with [`Fault::Refused`] if it waits for the match.
    ///
    /// # Errors
    /// It was freed before, or it is the world.
    pub fn free(&self) -> Result<()> {
        self.check_not_freed("free")?;
        if self.core.p2p.context() == WORLD << 1 {
            return Err(Error::new(ErrorClass::Comm, "free", "the world cannot be freed"));
        }
        self.core.freed.store(true, Ordering::Relaxed);
        // The channels are freed with the last handle, and pending operations own handles: other ranks may need this
        // rank in a pending collective.
        self.core.engine.begin_free(&self.core.p2p);
        Ok(())
    }

    /// Returns a new communicator id, which is unique in the job: it consists of this process's rank in the world and a
    /// count.
    fn new_id(&self) -> u64 {
        let count = self.core.made.fetch_add(1, Ordering::Relaxed) + 1;
        (u64::from(self.core.engine.site().rank) + 1) << 30 | count & ((1 << 30) - 1)
    }

    /// Creates a communicator of the same ranks with its own messages. Collective.
    ///
    /// # Errors
    /// A rank has died or exited, a rank has too many communicators, or the ranks are out of step.
    pub fn dup(&self) -> Result<Self> {
        self.collective("dup", |turn| {
            let name = self.core.family.child("dup", &self.core.family.dups);
            self.has_room("dup")?;
            let mut id = [if self.rank() == 0 { self.new_id() } else { 0 }];
            turn.bcast_words(CallDigest::new(CollectiveKind::Dup, 0), &mut id, 0)?;
            let (engine, made) = (Arc::clone(&self.core.engine), Arc::clone(&self.core.made));
            Comm::make(
                engine,
                id[0],
                name,
                self.core.group.clone(),
                self.rank(),
                made,
                *self.collectives().tuning(),
            )
            .map(|comm| Comm { path: self.path, ..comm })
        })
    }

    /// Creates one communicator for each color, with its ranks in order of key and then of old rank; returns `None` on
    /// ranks whose color is [`UNDEFINED`]. Collective.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); the color is negative.
    pub fn split(&self, color: i32, key: i32) -> Result<Option<Self>> {
        let color = if color == UNDEFINED { None } else { Some(i64::from(color)) };
        self.split_by(color, key)
    }

    /// Splits by a color, which may be out of range and is checked here.
    pub(crate) fn split_by(&self, color: Option<i64>, key: i32) -> Result<Option<Self>> {
        self.collective("split", |turn| {
            let name = self.core.family.child("split", &self.core.family.splits);
            // UNDEFINED is sent as a value that is not a valid color.
            let word = match color.map(i32::try_from) {
                None => u64::MAX,
                Some(Ok(color)) if color >= 0 => color as u64,
                Some(_) => {
                    let why = format!("color {} is outside 0..=2147483647", color.unwrap_or_default());
                    return Err(Error::new(ErrorClass::Arg, "split", why));
                }
            };
            self.has_room("split")?;
            let mine = [word, u64::from(key.cast_unsigned()), self.new_id()];
            let all = turn.allgather_words(CallDigest::new(CollectiveKind::Split, 0), &mine)?;
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
            let peers = members.iter().filter_map(|m| self.core.group.peer(m.1)).map(|PeerId(peer)| peer);
            let (engine, made) = (Arc::clone(&self.core.engine), Arc::clone(&self.core.made));
            let name = format!("{name} color {}", word as u32);
            Comm::make(engine, id, name, peers.collect(), position as u32, made, *self.collectives().tuning())
                .map(|comm| Some(Comm { path: self.path, ..comm }))
        })
    }

    /// Checks that this rank can create one more communicator, before the other ranks rely on it.
    fn has_room(&self, call: &'static str) -> Result<()> {
        if self.core.engine.free_channel_count() < 2 {
            return Err(Error::from_fault(call, Fault::TooManyChannels));
        }
        Ok(())
    }
}

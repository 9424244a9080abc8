//! A channel: one matching space of one communicator, and its pending operations.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use crate::biased::{Bias, Mutex, MutexGuard};
use crate::device::PeerId;
use crate::engine::exits::ChannelExits;
use crate::engine::ops::Ops;
use crate::fault::Fault;
use crate::group::Group;
use crate::matching::{Matching, UnexpectedCounters, UnexpectedCounts};

/// A matching space: a communicator has one for messages and one for collectives. When a call first needs them, it
/// joins one for control messages and one for partitioned messages.
#[derive(Debug)]
pub struct Channel {
    pub(crate) context: u64,
    /// The bias of the engine that has made this channel. It identifies the engine.
    bias: Arc<Bias>,
    /// The id of the channel in frames of this rank; assigned when this rank joins.
    wire_id: AtomicU16,
    members: OnceLock<Members>,
    description: OnceLock<Description>,
    matching: Mutex<Matching>,
    unexpected_counts: Arc<UnexpectedCounters>,
    ops: Mutex<Ops>,
    broken: OnceLock<Fault>,
    exits: Mutex<ChannelExits>,
    has_exits: AtomicBool,
    matching_rts: AtomicBool,
    /// The number of [`ExtractedFrom`](super::matched::ExtractedFrom) values.
    extracted: AtomicUsize,
}

/// Counts the collective calls of a communicator on this rank.
pub trait Calls: Send + Sync + fmt::Debug {
    /// Returns the number of the next call: this rank has entered all calls before it.
    fn next(&self) -> u32;
}

#[derive(Debug)]
struct Description {
    name: std::sync::Mutex<Arc<str>>,
    calls: Option<Weak<dyn Calls>>,
}

/// The members of a channel, and the rank of this process among them.
#[derive(Debug)]
pub(crate) struct Members {
    /// The ranks that messages name: all members, or the remote group of an intercommunicator.
    group: Group,
    /// The group of this process in an intercommunicator.
    local: Option<Group>,
    /// The rank of this process in its own group.
    rank: u32,
}

impl Members {
    pub(crate) fn intra(group: Group, rank: u32) -> Self {
        Members { group, local: None, rank }
    }

    pub(crate) fn inter(local: Group, rank: u32, remote: Group) -> Self {
        Members { group: remote, local: Some(local), rank }
    }
}

impl Channel {
    pub(crate) fn new(context: u64, bias: &Arc<Bias>) -> Self {
        let counts = Arc::<UnexpectedCounters>::default();
        Channel {
            context,
            bias: Arc::clone(bias),
            wire_id: AtomicU16::new(0),
            members: OnceLock::new(),
            description: OnceLock::new(),
            matching: Mutex::new(bias, Matching::new(Arc::clone(&counts))),
            unexpected_counts: counts,
            ops: Mutex::new(bias, Ops::default()),
            broken: OnceLock::new(),
            exits: Mutex::new(bias, ChannelExits::default()),
            has_exits: AtomicBool::new(false),
            matching_rts: AtomicBool::new(false),
            extracted: AtomicUsize::new(0),
        }
    }

    /// Sets the members. Messages might have arrived before, because a peer can create the communicator earlier.
    pub(crate) fn join(&self, members: Members, wire_id: u16) {
        self.wire_id.store(wire_id, Ordering::Relaxed);
        let _ = self.members.set(members);
    }

    /// Returns whether the engine with this bias has made the channel.
    #[inline]
    pub(crate) fn is_of(&self, bias: &Arc<Bias>) -> bool {
        Arc::ptr_eq(&self.bias, bias)
    }

    /// Returns the context, which identifies this channel at all its members.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Returns the ranks that messages name, in order: the members, or the remote group of an intercommunicator. Empty
    /// until this rank has joined.
    pub fn group(&self) -> &Group {
        const NOBODY: Group = Group::Range { first: 0, len: 0 };
        self.members.get().map_or(&NOBODY, |m| &m.group)
    }

    /// Returns the group of this rank, if the channel belongs to an intercommunicator.
    pub fn local_group(&self) -> Option<&Group> {
        self.members.get()?.local.as_ref()
    }

    /// Returns the number of members, of both groups of an intercommunicator.
    pub fn size(&self) -> u32 {
        self.group().size() + self.local_group().map_or(0, Group::size)
    }

    pub(crate) fn is_member(&self, peer: PeerId) -> bool {
        self.group().rank(peer).is_some() || self.local_group().is_some_and(|own| own.rank(peer).is_some())
    }

    /// Returns the number of ranks, other than this one, that can send here.
    pub(crate) fn sender_count(&self) -> u32 {
        let own = u32::from(self.local_group().is_none());
        self.group().size().saturating_sub(own)
    }

    /// Sets the name, and at the first call the calls.
    pub(crate) fn describe(&self, name: Arc<str>, calls: Option<Weak<dyn Calls>>) {
        let new = || Description { name: Arc::clone(&name).into(), calls };
        let description = self.description.get_or_init(new);
        *description.name.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// Returns the name of the communicator, if it has one.
    pub fn name(&self) -> Option<Arc<str>> {
        let name = &self.description.get()?.name;
        Some(Arc::clone(&name.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) fn next_call(&self) -> Option<u32> {
        self.description.get()?.calls.as_ref()?.upgrade().map(|calls| calls.next())
    }

    /// Returns the rank of this process in its own group; 0 until it has joined.
    pub fn rank(&self) -> u32 {
        self.members.get().map_or(0, |m| m.rank)
    }

    #[inline]
    pub(crate) fn wire_id(&self) -> u16 {
        // Stored before `members`, which every thread that sends here has seen.
        self.wire_id.load(Ordering::Relaxed)
    }

    /// Returns whether `from` may send under `rank`. Before this rank has joined, it accepts every sender.
    pub(crate) fn accepts_sender(&self, from: PeerId, rank: u32) -> bool {
        self.members.get().is_none_or(|members| members.group.peer(rank) == Some(from))
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.members.get().is_some()
    }

    #[inline]
    pub(crate) fn peer(&self, rank: u32) -> Option<PeerId> {
        self.group().peer(rank)
    }

    #[inline]
    pub(crate) fn matching(&self) -> MutexGuard<'_, Matching> {
        self.matching.lock()
    }

    /// Returns counts of unexpected messages, by two relaxed loads without a lock: one can be older than the other.
    #[inline]
    pub fn unexpected_counts(&self) -> UnexpectedCounts {
        self.unexpected_counts.read()
    }

    pub(crate) fn ops(&self) -> MutexGuard<'_, Ops> {
        self.ops.lock()
    }

    pub(crate) fn exits(&self) -> MutexGuard<'_, ChannelExits> {
        self.exits.lock()
    }

    /// Returns whether a new operation might have to fail at once: a member is closing or has exited, or this rank is
    /// closing or has failed.
    #[inline]
    pub(crate) fn has_exits(&self) -> bool {
        self.has_exits.load(Ordering::Acquire)
    }

    pub(crate) fn mark_exits(&self) {
        self.has_exits.store(true, Ordering::Release);
    }

    /// Sets whether an RTS has matched a receive that is not an operation yet. The holder of the progress lock sets
    /// true under the lock of [`matching`](Self::matching), so a thread that finds no posted receive there sees it.
    #[inline]
    pub(crate) fn set_matching_rts(&self, is_matching_rts: bool) {
        self.matching_rts.store(is_matching_rts, Ordering::Release);
    }

    pub(crate) fn add_extracted(&self) {
        self.extracted.fetch_add(1, Ordering::Relaxed);
    }

    /// Reverses [`add_extracted`](Self::add_extracted), when the message has become an operation or was dropped.
    pub(crate) fn remove_extracted(&self) {
        self.extracted.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn has_extracted(&self) -> bool {
        self.extracted.load(Ordering::Acquire) > 0
    }

    pub(crate) fn is_matching_rts(&self) -> bool {
        self.matching_rts.load(Ordering::Acquire)
    }

    /// Returns the fault with which new operations fail, if the channel has failed or is being freed.
    #[inline]
    pub fn broken(&self) -> Option<&Fault> {
        self.broken.get()
    }

    /// Makes new operations fail with `fault`; the first fault stays.
    pub(crate) fn set_broken(&self, fault: Fault) {
        let _ = self.broken.set(fault);
    }
}

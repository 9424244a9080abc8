//! A channel: one matching space of one communicator, and the operations under way in it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::biased::{Bias, Mutex, MutexGuard};
use crate::device::PeerId;
use crate::engine::ends::ChannelExits;
use crate::engine::ops::Ops;
use crate::fault::Fault;
use crate::group::Group;
use crate::matching::{EarlyCounts, Matching, UnexpectedCounts};

/// One matching space: a communicator has one for messages and one for collectives.
#[derive(Debug)]
pub struct Channel {
    pub(crate) context: u64,
    /// What names the channel in frames to the other members; given when this rank joins.
    number: AtomicU16,
    members: OnceLock<Members>,
    about: OnceLock<About>,
    matching: Mutex<Matching>,
    unexpected_counts: Arc<EarlyCounts>,
    ops: Mutex<Ops>,
    broken: OnceLock<Fault>,
    ended: Mutex<ChannelExits>,
    /// Whether a member has ended.
    troubled: AtomicBool,
    /// Whether an announced message has met its receive, which is not an operation yet.
    meeting: AtomicBool,
}

/// Counts the collective calls of a communicator on this rank.
pub trait Calls: Send + Sync + fmt::Debug {
    /// Returns the number of the next call: this rank has entered all calls before it.
    fn next(&self) -> u32;
}

/// What reports and traces say of a channel.
#[derive(Debug)]
struct About {
    name: Arc<str>,
    calls: Option<Weak<dyn Calls>>,
}

#[derive(Debug)]
struct Members {
    group: Group,
    rank: u32,
}

impl Channel {
    pub(crate) fn new(context: u64, bias: &Arc<Bias>) -> Self {
        let board = Arc::<EarlyCounts>::default();
        Channel {
            context,
            number: AtomicU16::new(0),
            members: OnceLock::new(),
            about: OnceLock::new(),
            matching: Mutex::new(bias, Matching::new(Arc::clone(&board))),
            unexpected_counts: board,
            ops: Mutex::new(bias, Ops::default()),
            broken: OnceLock::new(),
            ended: Mutex::new(bias, ChannelExits::default()),
            troubled: AtomicBool::new(false),
            meeting: AtomicBool::new(false),
        }
    }

    /// Says who takes part. Messages may have come before: a peer can be faster at making the communicator.
    pub(crate) fn join(&self, group: Group, rank: u32, number: u16) {
        self.number.store(number, Ordering::Relaxed);
        let _ = self.members.set(Members { group, rank });
    }

    /// Returns the number that names this channel to all its members.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Returns the members, in order of rank; empty until this process has joined.
    pub fn group(&self) -> &Group {
        const NOBODY: Group = Group::Range { first: 0, len: 0 };
        self.members.get().map_or(&NOBODY, |m| &m.group)
    }

    /// Sets the name that reports and traces use, and what counts the collective calls here.
    pub(crate) fn describe(&self, name: Arc<str>, calls: Option<Weak<dyn Calls>>) {
        let _ = self.about.set(About { name, calls });
    }

    /// Returns the name of the communicator, if it has one.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.about.get().map(|about| &about.name)
    }

    /// Returns the number of the next collective call of this rank, if calls are counted here.
    pub(crate) fn next_call(&self) -> Option<u32> {
        self.about.get()?.calls.as_ref()?.upgrade().map(|calls| calls.next())
    }

    /// Returns this process's rank among the members.
    pub fn rank(&self) -> u32 {
        self.members.get().map_or(0, |m| m.rank)
    }

    /// Returns the number that names this channel in frames, if it is joined.
    #[inline]
    pub(crate) fn wire_id(&self) -> u16 {
        // Stored before `members`, which whoever sends here has seen.
        self.number.load(Ordering::Relaxed)
    }

    /// Whether `from` may send under `rank`: before this rank has joined that cannot be told.
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

    /// Compares only these bits of tags from now on, when a message meets a receive or a probe.
    pub fn compare_tags(&self, mask: i32) {
        self.matching().set_tag_mask(mask);
    }

    /// Returns what is known without a lock of messages that have come before their receives: two relaxed loads, of which
    /// one may be older than the other.
    #[inline]
    pub fn early(&self) -> UnexpectedCounts {
        self.unexpected_counts.read()
    }

    pub(crate) fn ops(&self) -> MutexGuard<'_, Ops> {
        self.ops.lock()
    }

    /// Returns what is known here of members that have ended.
    pub(crate) fn exits(&self) -> MutexGuard<'_, ChannelExits> {
        self.ended.lock()
    }

    /// Whether a member has ended, so that what is started here may have to end at once.
    #[inline]
    pub(crate) fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Acquire)
    }

    pub(crate) fn trouble(&self) {
        self.troubled.store(true, Ordering::Release);
    }

    /// Says whether an announced message has met its receive, which is not an operation yet. The thread that takes frames says
    /// so, under the lock of [`matching`](Self::matching): one that has found no posted receive there sees it.
    #[inline]
    pub(crate) fn set_meeting(&self, is_meeting: bool) {
        self.meeting.store(is_meeting, Ordering::Release);
    }

    pub(crate) fn is_meeting(&self) -> bool {
        self.meeting.load(Ordering::Acquire)
    }

    /// Returns why nothing new can be started here, if so.
    #[inline]
    pub fn broken(&self) -> Option<&Fault> {
        self.broken.get()
    }

    /// Marks the channel; the first reason stays.
    pub(crate) fn set_broken(&self, fault: Fault) {
        let _ = self.broken.set(fault);
    }
}

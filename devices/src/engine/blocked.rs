//! The operations for which the threads and futures of a rank wait, for the report of a job that hangs.
//!
//! A thread enters its wait here before it first sleeps or parks, so a wait that ends by polling has no extra cost. A
//! future enters its wait when it is pending.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::{Engine, lock};
use crate::matching::{ANY_SOURCE, ANY_TAG};
use crate::trace::{ArgValue, thread_number};

/// The name of the communicator of all ranks. Reports leave it out.
pub const WORLD: &str = "world";

/// The operation for which a call waits, in the user's terms.
#[derive(Clone, Debug)]
pub struct WaitReason {
    call: &'static str,
    channel: Option<Arc<Channel>>,
    message: Option<Expected>,
    number: Option<u32>,
    others: usize,
    /// Whether the wait ends when any of the operations is complete.
    any: bool,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    preposition: &'static str,
    peer: i32,
    tag: i32,
}

impl WaitReason {
    /// Describes a call that waits for no particular message.
    pub fn call(call: &'static str) -> Self {
        WaitReason { call, channel: None, message: None, number: None, others: 0, any: false }
    }

    /// Describes a call in which all members of a channel take part.
    pub fn collective(call: &'static str, channel: &Arc<Channel>) -> Self {
        WaitReason { channel: Some(Arc::clone(channel)), ..WaitReason::call(call) }
    }

    /// Sets the sequence number of the collective call in its channel.
    pub fn numbered(self, number: u32) -> Self {
        WaitReason { number: Some(number), ..self }
    }

    /// Describes a call that waits for a send to rank `peer`.
    pub fn send(call: &'static str, channel: &Arc<Channel>, peer: i32, tag: i32) -> Self {
        let message = Some(Expected { preposition: "to", peer, tag });
        WaitReason { message, ..WaitReason::collective(call, channel) }
    }

    /// Describes a call that waits for a message from rank `peer`, or from any rank.
    pub fn recv(call: &'static str, channel: &Arc<Channel>, peer: i32, tag: i32) -> Self {
        let message = Some(Expected { preposition: "from", peer, tag });
        WaitReason { message, ..WaitReason::collective(call, channel) }
    }

    /// Adds `others` more operations to the wait. If `any`, the wait ends when any of its operations is complete.
    pub fn with_others(self, others: usize, any: bool) -> Self {
        WaitReason { others, any, ..self }
    }

    /// Returns the world rank of the message's peer, if the wait cannot end without that peer.
    fn peer(&self) -> Option<u32> {
        let peer = self.message?.peer;
        let group = self.channel.as_ref()?.group();
        let only = !self.any || self.others == 0;
        group.peer(u32::try_from(peer).ok()?).filter(|_| only).map(|peer| peer.0)
    }

    fn is_inter(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.local_group().is_some())
    }

    pub(crate) fn trace_args(&self) -> ([&'static str; 2], [(&'static str, ArgValue); 5]) {
        const NONE: (&str, ArgValue) = ("", ArgValue::Number(0));
        let channel = self.channel.as_ref();
        let (mut peer, mut tag) = (NONE, NONE);
        if let Some(message) = self.message {
            let rank = |channel: &Arc<Channel>| channel.group().peer(u32::try_from(message.peer).ok()?);
            let of_world = channel.and_then(rank).map(|peer| ArgValue::Number(peer.0.into()));
            peer = (message.preposition, of_world.unwrap_or(ArgValue::Text("any rank")));
            tag = (
                "tag",
                if message.tag == ANY_TAG { ArgValue::Text("any") } else { ArgValue::Signed(message.tag) },
            );
        }
        let context = channel.map_or(NONE, |channel| ("context", ArgValue::Number(channel.context())));
        let ranks = channel.map_or(NONE, |channel| ("ranks", ArgValue::Number(channel.size().into())));
        let others =
            if self.others == 0 { NONE } else { ("and others", ArgValue::Number(self.others as u64)) };
        // The slice of a collective's wait is inside the slice of its call: the prefix distinguishes them.
        let prefix = if self.message.is_some() { "" } else { "wait: " };
        ([prefix, self.call], [peer, tag, context, ranks, others])
    }

    /// Writes the wait for a user. The size of an unnamed communicator is omitted if it has all `world` ranks.
    fn describe(&self, f: &mut fmt::Formatter<'_>, world: u32) -> fmt::Result {
        f.write_str(self.call)?;
        if let Some(Expected { preposition, peer, tag }) = self.message {
            match peer {
                ANY_SOURCE => write!(f, " {preposition} any rank")?,
                peer if self.is_inter() => write!(f, " {preposition} remote rank {peer}")?,
                peer => write!(f, " {preposition} rank {peer}")?,
            }
            match tag {
                ANY_TAG => f.write_str(" with any tag")?,
                tag => write!(f, " with tag {tag}")?,
            }
        }
        let Some(channel) = &self.channel else { return Ok(()) };
        match channel.name() {
            Some(name) if &*name == WORLD => {}
            Some(name) => write!(f, " in {name}")?,
            None if channel.size() == world => {}
            None => write!(f, " in a communicator of {} ranks", channel.size())?,
        }
        if channel.group().size() != world {
            let peer = self.message.and_then(|message| channel.peer(u32::try_from(message.peer).ok()?));
            if let Some(peer) = peer {
                write!(f, ", that is rank {} of the world", peer.0)?;
            }
        }
        match self.others {
            0 => Ok(()),
            1 => f.write_str(", and one more"),
            others => write!(f, ", and {others} more"),
        }
    }
}

/// A pending future, or a waiting thread that has slept or parked, or is about to.
#[derive(Clone, Debug)]
pub struct BlockedCall {
    pub(super) wait: WaitReason,
    world: u32,
    since: Instant,
    /// The thread's number in traces.
    pub(super) number: u32,
    pub(super) thread: Thread,
}

impl BlockedCall {
    /// Returns the time since the future was pending, or the thread was about to sleep or park, for the first time in
    /// this wait.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the world rank of the message's peer, if the wait cannot end without that peer.
    pub fn peer(&self) -> Option<u32> {
        self.wait.peer()
    }

    /// Returns the context and the sequence number of the collective call that waits, if it is numbered.
    pub fn collective(&self) -> Option<(u64, u32)> {
        self.wait.channel.as_ref().map(|channel| channel.context()).zip(self.wait.number)
    }
}

impl fmt::Display for BlockedCall {
    /// Writes the call, and its peer, tag and communicator as far as it has them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.describe(f, self.world)
    }
}

#[derive(Debug, Default)]
pub(crate) struct BlockedCalls {
    next: AtomicU64,
    /// By the number of the wait. A rank can have many pending futures.
    pending: Mutex<HashMap<u64, Pending>>,
}

#[derive(Clone, Debug)]
struct Pending {
    wait: WaitReason,
    since: Instant,
    number: u32,
    thread: Thread,
}

pub(crate) struct BlockedGuard<'a> {
    waits: &'a BlockedCalls,
    id: u64,
}

impl BlockedCalls {
    pub(crate) fn enter(&self, wait: WaitReason) -> BlockedGuard<'_> {
        BlockedGuard { waits: self, id: self.add(wait) }
    }

    /// Adds a wait of this thread, and returns the number by which to remove it.
    pub(super) fn add(&self, wait: WaitReason) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (number, thread) = (thread_number(), std::thread::current());
        lock(&self.pending).insert(id, Pending { wait, since: Instant::now(), number, thread });
        id
    }

    pub(super) fn remove(&self, id: u64) {
        let removed = lock(&self.pending).remove(&id);
        // This might drop the last handle of a channel.
        drop(removed);
    }
}

impl Drop for BlockedGuard<'_> {
    fn drop(&mut self) {
        self.waits.remove(self.id);
    }
}

impl Engine {
    /// Returns the waits of this rank: of pending futures, and of threads that have slept or parked; the longest first.
    pub fn waits(&self) -> Vec<BlockedCall> {
        let world = self.site.size;
        let pending: Vec<Pending> = lock(&self.waits.pending).values().cloned().collect();
        let mut waiting: Vec<BlockedCall> = pending
            .into_iter()
            .map(|Pending { wait, since, number, thread }| BlockedCall { wait, world, since, number, thread })
            .collect();
        waiting.sort_by_key(|waiting| waiting.since);
        waiting
    }

    /// Returns the contexts whose collective calls are counted, with the sequence number of this rank's next call.
    pub fn calls(&self) -> Vec<(u64, u32)> {
        let channels = self.all_channels();
        channels.iter().filter_map(|channel| Some((channel.context(), channel.next_call()?))).collect()
    }
}

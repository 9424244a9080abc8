//! The channels of a rank: which contexts it takes part in, under which numbers, and when they are forgotten.
//!
//! ```text
//!   (named) ──► early ──► joined ──► leaving ──► left
//!    a peer's    messages  a number   refuses     a context that is
//!    Bind        wait      is its     what is new never used again
//! ```
//! A peer may name any context, and send to it before this rank has joined. A name costs nothing here, a message what
//! its sender was granted. A channel that is left is kept until its operations have ended: what this rank has sent
//! there still arrives.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError, Weak};

use super::channel::{Calls, Channel};
use super::failure::{fail_receives, fail_self_sends};
use super::peer::Peer;
use super::{Engine, lock};
use crate::fault::Fault;
use crate::group::Group;

/// The most channels at once; their numbers travel in 16 bits.
const MAX_WIRE_IDS: usize = 1 << 16;

/// Contexts that are remembered as left. One that is forgotten and named again takes the room of its late messages,
/// nothing worse.
const LEFT: usize = 4096;

/// The channels of one engine.
#[derive(Debug, Default)]
pub(super) struct Channels {
    by_context: HashMap<u64, Arc<Channel>>,
    /// Left by this rank, with operations that have not ended.
    freeing: Vec<Arc<Channel>>,
    freed: FreedContexts,
    free: Vec<u16>,
    next: usize,
}

/// The contexts that were left last.
#[derive(Debug, Default)]
struct FreedContexts {
    set: HashSet<u64>,
    order: VecDeque<u64>,
}

/// Where a message to a context goes that this rank may not have joined.
#[derive(Debug)]
pub(super) enum Lookup {
    /// To its channel.
    Channel(Arc<Channel>),
    /// To nobody: this rank has left it.
    Freed,
}

impl FreedContexts {
    fn add(&mut self, context: u64) {
        if self.set.insert(context) {
            self.order.push_back(context);
        }
        if self.order.len() > LEFT {
            self.order.pop_front().map(|oldest| self.set.remove(&oldest));
        }
    }
}

impl Channels {
    fn number(&mut self) -> Option<u16> {
        self.free.pop().or_else(|| {
            let number = u16::try_from(self.next).ok()?;
            self.next += 1;
            Some(number)
        })
    }

    fn is(&self, channel: &Arc<Channel>) -> bool {
        self.by_context.get(&channel.context).is_some_and(|known| Arc::ptr_eq(known, channel))
    }

    /// Forgets the channels that were left and have no operation any more.
    fn remove_idle(&mut self, is_quiet: impl Fn(&Channel) -> bool) {
        let mut leaving = std::mem::take(&mut self.freeing);
        leaving.retain(|channel| {
            let quiet = is_quiet(channel);
            if quiet {
                self.by_context.remove(&channel.context);
                self.freed.add(channel.context);
                self.free.push(channel.wire_id());
            }
            !quiet
        });
        self.freeing = leaving;
    }
}

const _: () = assert!(MAX_WIRE_IDS == u16::MAX as usize + 1);

impl Engine {
    /// Joins the channel `context`, of which this rank is member `rank`. A context is never used again after it was
    /// left.
    ///
    /// # Errors
    /// [`Fault::TooManyChannels`], [`Fault::AlreadyJoined`].
    pub fn join(&self, context: u64, group: Group, rank: u32) -> Result<Arc<Channel>, Fault> {
        let channel = {
            let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
            channels.remove_idle(|channel| self.is_idle(channel));
            let make = || Arc::new(Channel::new(context, &self.bias));
            let channel = channels.by_context.get(&context).cloned().unwrap_or_else(make);
            if channel.is_joined() {
                return Err(Fault::AlreadyJoined { context });
            }
            let number = channels.number().ok_or(Fault::TooManyChannels)?;
            channel.join(group, rank, number);
            channels.by_context.insert(context, Arc::clone(&channel));
            channel
        };
        self.reject_forged(&channel);
        self.update_channel_exits(&channel);
        self.apply_ends(&channel);
        Ok(channel)
    }

    /// Names a channel for reports and traces. `calls` counts the collective calls of this rank there.
    pub fn describe(&self, channel: &Channel, name: Arc<str>, calls: Option<Weak<dyn Calls>>) {
        if let Some(trace) = self.trace() {
            trace.name_context(channel.context, &name);
        }
        channel.describe(name, calls);
    }

    /// Leaves a channel: receives that were posted there and have not matched end with [`Fault::Freed`], early messages
    /// are refused, and nothing new can be started. What was sent or has matched goes to its end. To leave twice is to
    /// leave once.
    pub fn free(&self, channel: &Arc<Channel>) {
        channel.set_broken(Fault::Freed);
        fail_receives(channel, |_| true, &Fault::Freed);
        self.begin_free(channel);
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        if channels.is(channel) && !channels.freeing.iter().any(|one| Arc::ptr_eq(one, channel)) {
            channels.freeing.push(Arc::clone(channel));
        }
        channels.remove_idle(|channel| self.is_idle(channel));
    }

    /// Starts nothing new in a channel that will be [freed](Self::free): receives that were posted there still get their
    /// messages; every other message is refused, early or not.
    pub fn begin_free(&self, channel: &Channel) {
        channel.set_broken(Fault::Freed);
        fail_self_sends(channel, &Fault::Freed);
        let mut matching = channel.matching();
        let (early, local) = (matching.close(), std::mem::take(&mut matching.local));
        drop(matching);
        *lock(&self.left) += local;
        for early in early {
            self.refuse_early(channel.context, early);
        }
        // Other threads may sleep until something of it ends.
        self.wake_all();
    }

    /// Returns how many channels more this rank can join.
    pub fn free_channel_count(&self) -> usize {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.free.len() + (MAX_WIRE_IDS - channels.next)
    }

    /// Whether nothing that was started on a channel needs it any more. Frames and bodies that wait for room do not: they
    /// know their context.
    fn is_idle(&self, channel: &Channel) -> bool {
        let waits = |peer: &Peer| peer.outbox().unsent.iter().any(|m| m.channel.context == channel.context);
        // In this order: what waited for its peer to be met is an operation by the time that its outbox is unlocked, and so is a
        // receive by the time that it has met its message.
        !self.peers.iter().any(waits) && !channel.is_meeting() && channel.ops().is_empty()
    }

    /// Returns the channel of a context if this rank has it, joined or not.
    pub(super) fn lookup(&self, context: u64) -> Option<Arc<Channel>> {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.by_context.get(&context).cloned()
    }

    /// Returns where a message to a context goes; one that this rank has not joined waits for it to.
    pub(super) fn lookup_or_create(&self, context: u64) -> Lookup {
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        if channels.freed.set.contains(&context) {
            return Lookup::Freed;
        }
        let make = || Arc::new(Channel::new(context, &self.bias));
        Lookup::Channel(Arc::clone(channels.by_context.entry(context).or_insert_with(make)))
    }

    pub(super) fn all_channels(&self) -> Vec<Arc<Channel>> {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.by_context.values().map(Arc::clone).collect()
    }
}

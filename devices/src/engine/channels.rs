//! The channels of a rank: the contexts that it has joined or has messages for, their wire ids, and their release.
//!
//! ```text
//!   (named) ──► created ──► joined ──► freeing ──► freed
//!    a peer's    messages    has a      rejects     the context is
//!    Bind        wait        wire id    new work    never used again
//! ```
//! A peer can name any context, and send to it before this rank has joined it. Its bindings cost at most 2^16 table
//! entries here. The messages are limited by the sender's credit and by the number that may wait for a reply. A freed
//! channel is kept until its operations are complete, so that messages which this rank has sent there still arrive.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError, Weak};

use super::channel::{Calls, Channel, Members};
use super::failure::fail_receives;
use super::peer::Peer;
use super::send_self::fail_self_sends;
use super::{Engine, lock};
use crate::fault::Fault;
use crate::group::Group;

/// Maximum number of joined channels at a time; wire ids have 16 bits.
const MAX_WIRE_IDS: usize = 1 << 16;

/// Number of freed contexts that are remembered. A late message to an older one is queued, and not refused.
const REMEMBERED_FREED: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Channels {
    by_context: HashMap<u64, Arc<Channel>>,
    freeing: Vec<Arc<Channel>>,
    freed: FreedContexts,
    free_wire_ids: Vec<u16>,
    next_wire_id: usize,
}

#[derive(Debug, Default)]
struct FreedContexts {
    set: HashSet<u64>,
    order: VecDeque<u64>,
}

/// The destination of a message to a context that this rank might not have joined.
#[derive(Debug)]
pub(super) enum Lookup {
    Channel(Arc<Channel>),
    /// This rank has freed the context, so the message has no receiver.
    Freed,
}

impl FreedContexts {
    fn add(&mut self, context: u64) {
        if self.set.insert(context) {
            self.order.push_back(context);
        }
        if self.order.len() > REMEMBERED_FREED {
            self.order.pop_front().map(|oldest| self.set.remove(&oldest));
        }
    }
}

impl Channels {
    fn alloc_wire_id(&mut self) -> Option<u16> {
        self.free_wire_ids.pop().or_else(|| {
            let wire_id = u16::try_from(self.next_wire_id).ok()?;
            self.next_wire_id += 1;
            Some(wire_id)
        })
    }

    fn contains(&self, channel: &Arc<Channel>) -> bool {
        self.by_context.get(&channel.context).is_some_and(|known| Arc::ptr_eq(known, channel))
    }

    fn remove_idle(&mut self, is_idle: impl Fn(&Channel) -> bool) {
        let mut freeing = std::mem::take(&mut self.freeing);
        freeing.retain(|channel| {
            let is_idle = is_idle(channel);
            if is_idle {
                self.by_context.remove(&channel.context);
                self.freed.add(channel.context);
                self.free_wire_ids.push(channel.wire_id());
            }
            !is_idle
        });
        self.freeing = freeing;
    }
}

const _: () = assert!(MAX_WIRE_IDS == u16::MAX as usize + 1);

impl Engine {
    /// Joins the channel `context`, of which this rank is member `rank`. A freed context must not be joined again.
    ///
    /// # Errors
    /// [`Fault::TooManyChannels`], [`Fault::AlreadyJoined`].
    pub fn join(&self, context: u64, group: Group, rank: u32) -> Result<Arc<Channel>, Fault> {
        self.join_as(context, Members::intra(group, rank))
    }

    /// Joins the channel `context` of an intercommunicator, of which this rank is rank `rank` of the group `local`. Its
    /// messages go to, and come from, the ranks of the group `remote`. The groups must be disjoint.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_inter(
        &self,
        context: u64,
        local: Group,
        rank: u32,
        remote: Group,
    ) -> Result<Arc<Channel>, Fault> {
        self.join_as(context, Members::inter(local, rank, remote))
    }

    fn join_as(&self, context: u64, members: Members) -> Result<Arc<Channel>, Fault> {
        let channel = {
            let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
            channels.remove_idle(|channel| self.is_idle(channel));
            let make = || Arc::new(Channel::new(context, &self.bias));
            let channel = channels.by_context.get(&context).cloned().unwrap_or_else(make);
            if channel.is_joined() {
                return Err(Fault::AlreadyJoined { context });
            }
            let wire_id = channels.alloc_wire_id().ok_or(Fault::TooManyChannels)?;
            channel.join(members, wire_id);
            channels.by_context.insert(context, Arc::clone(&channel));
            channel
        };
        self.reject_forged(&channel);
        self.update_channel_exits(&channel);
        self.apply_exits(&channel);
        if let Some(fault) = self.failure.get() {
            self.fail_channel(&channel, fault);
        } else if self.is_closed() {
            channel.mark_exits();
        }
        Ok(channel)
    }

    /// Sets the name of a channel for reports and traces; a later call replaces it. `calls` counts the collective calls
    /// of this rank there; only the first call of this method sets it.
    pub fn describe(&self, channel: &Channel, name: Arc<str>, calls: Option<Weak<dyn Calls>>) {
        if let Some(trace) = self.trace() {
            trace.name_context(channel.context, &name);
        }
        channel.describe(name, calls);
    }

    /// Frees a channel. Its unmatched receives and synchronous messages to this rank itself fail with [`Fault::Freed`],
    /// its unexpected messages are discarded, and new operations fail. Other sends and matched receives still complete.
    /// A second call has no effect, nor has a call with a channel of another engine.
    pub fn free(&self, channel: &Arc<Channel>) {
        if !self.owns(channel) {
            return;
        }
        channel.set_broken(Fault::Freed);
        fail_receives(channel, |_| true, &Fault::Freed);
        self.begin_free(channel);
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        if channels.contains(channel) && !channels.freeing.iter().any(|one| Arc::ptr_eq(one, channel)) {
            channels.freeing.push(Arc::clone(channel));
        }
        channels.remove_idle(|channel| self.is_idle(channel));
    }

    /// Rejects new operations in a channel that will be [freed](Self::free). Posted receives still get their messages.
    /// All other messages are discarded, including unexpected ones.
    pub fn begin_free(&self, channel: &Channel) {
        if !self.owns(channel) {
            return;
        }
        channel.set_broken(Fault::Freed);
        fail_self_sends(channel, &Fault::Freed);
        let mut matching = channel.matching();
        let (unexpected, local) = (matching.close(), std::mem::take(&mut matching.local));
        drop(matching);
        *lock(&self.freed_traffic) += local;
        for unexpected in unexpected {
            self.nack_unexpected(channel.context, unexpected);
        }
        // Other threads might sleep until one of these operations completes.
        self.wake_all();
    }

    /// Refuses the messages of a context that this rank has not joined and never will, as if it had freed the context.
    /// Has no effect if this rank has joined the context.
    pub fn refuse(&self, context: u64) {
        let unjoined = {
            let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
            if channels.by_context.get(&context).is_some_and(|channel| channel.is_joined()) {
                return;
            }
            channels.freed.add(context);
            channels.by_context.remove(&context)
        };
        if let Some(channel) = unjoined {
            self.begin_free(&channel);
        }
    }

    /// Returns whether this engine has made the channel. Operations in channels of other engines are refused: such an
    /// engine would release the memory of an operation while a device of this engine still uses it.
    #[inline]
    pub(crate) fn owns(&self, channel: &Channel) -> bool {
        channel.is_of(&self.bias)
    }

    /// Returns a lower bound on the number of channels that this rank can still join.
    pub fn free_channel_count(&self) -> usize {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.free_wire_ids.len() + (MAX_WIRE_IDS - channels.next_wire_id)
    }

    /// Returns whether no operation needs a channel in the tables. Queued frames and body streams do not need it: they
    /// store their context or channel.
    fn is_idle(&self, channel: &Channel) -> bool {
        let waits =
            |peer: &Peer| peer.outbox().deferred_sends.iter().any(|m| m.channel.context == channel.context);
        // The operations are checked last, so that an item that moves is found at its old or its new place. A deferred
        // send becomes an operation or a queued frame before its outbox is unlocked. A receive becomes an operation
        // before `is_matching_rts` or `has_extracted` becomes false.
        !self.peers.iter().any(waits)
            && !channel.is_matching_rts()
            && !channel.has_extracted()
            && channel.ops().is_empty()
    }

    /// Returns the channel of a context if this rank has it, joined or not.
    pub(super) fn lookup(&self, context: u64) -> Option<Arc<Channel>> {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.by_context.get(&context).cloned()
    }

    /// Returns the destination of a message; creates the channel if this rank has not joined the context yet.
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

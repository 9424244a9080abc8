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
use super::failure::{end_local, end_posted};
use super::peer::Peer;
use super::{Engine, lock};
use crate::fault::Fault;
use crate::group::Group;

/// The most channels at once; their numbers travel in 16 bits.
const NUMBERS: usize = 1 << 16;

/// Contexts that are remembered as left. One that is forgotten and named again takes the room of its late messages,
/// nothing worse.
const LEFT: usize = 4096;

/// The channels of one engine.
#[derive(Debug, Default)]
pub(super) struct Channels {
    by_context: HashMap<u64, Arc<Channel>>,
    /// Left by this rank, with operations that have not ended.
    leaving: Vec<Arc<Channel>>,
    left: Left,
    free: Vec<u16>,
    next: usize,
}

/// The contexts that were left last.
#[derive(Debug, Default)]
struct Left {
    set: HashSet<u64>,
    order: VecDeque<u64>,
}

/// Where a message to a context goes that this rank may not have joined.
#[derive(Debug)]
pub(super) enum Place {
    /// To its channel.
    Channel(Arc<Channel>),
    /// To nobody: this rank has left it.
    Nowhere,
}

impl Left {
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
    fn forget(&mut self, is_quiet: impl Fn(&Channel) -> bool) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|channel| {
            let quiet = is_quiet(channel);
            if quiet {
                self.by_context.remove(&channel.context);
                self.left.add(channel.context);
                self.free.push(channel.number());
            }
            !quiet
        });
        self.leaving = leaving;
    }
}

const _: () = assert!(NUMBERS == u16::MAX as usize + 1);

impl Engine {
    /// Joins the channel `context`, of which this rank is member `rank`. A context is never used again after it was
    /// left.
    ///
    /// # Errors
    /// [`Fault::TooManyChannels`], [`Fault::Joined`].
    pub fn join(&self, context: u64, group: Group, rank: u32) -> Result<Arc<Channel>, Fault> {
        let channel = {
            let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
            channels.forget(|channel| self.is_done_with(channel));
            let make = || Arc::new(Channel::new(context, &self.bias));
            let channel = channels.by_context.get(&context).cloned().unwrap_or_else(make);
            if channel.is_joined() {
                return Err(Fault::Joined { context });
            }
            let number = channels.number().ok_or(Fault::TooManyChannels)?;
            channel.join(group, rank, number);
            channels.by_context.insert(context, Arc::clone(&channel));
            channel
        };
        self.drop_forged(&channel);
        self.tell_ends(&channel);
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
    pub fn leave(&self, channel: &Arc<Channel>) {
        channel.break_with(Fault::Freed);
        end_posted(channel, |_| true, &Fault::Freed);
        self.free(channel);
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        if channels.is(channel) && !channels.leaving.iter().any(|one| Arc::ptr_eq(one, channel)) {
            channels.leaving.push(Arc::clone(channel));
        }
        channels.forget(|channel| self.is_done_with(channel));
    }

    /// Starts nothing new in a channel that will be [left](Self::leave): receives that were posted there still get their
    /// messages; every other message is refused, early or not.
    pub fn free(&self, channel: &Channel) {
        channel.break_with(Fault::Freed);
        end_local(channel, &Fault::Freed);
        let mut matching = channel.matching();
        let (early, local) = (matching.leave(), std::mem::take(&mut matching.local));
        drop(matching);
        *lock(&self.left) += local;
        for early in early {
            self.refuse_early(channel.context, early);
        }
        // Other threads may sleep until something of it ends.
        self.rouse();
    }

    /// Returns how many channels more this rank can join.
    pub fn spare_channels(&self) -> usize {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.free.len() + (NUMBERS - channels.next)
    }

    /// Whether nothing that was started on a channel needs it any more. Frames and bodies that wait for room do not: they
    /// know their context.
    fn is_done_with(&self, channel: &Channel) -> bool {
        let waits = |peer: &Peer| peer.outbox().unsent.iter().any(|m| m.channel.context == channel.context);
        // In this order: what waited for its peer to be met is an operation by the time that its outbox is unlocked, and so is a
        // receive by the time that it has met its message.
        !self.peers.iter().any(waits) && !channel.is_meeting() && channel.ops().is_empty()
    }

    /// Returns the channel of a context if this rank has it, joined or not.
    pub(super) fn known(&self, context: u64) -> Option<Arc<Channel>> {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.by_context.get(&context).cloned()
    }

    /// Returns where a message to a context goes; one that this rank has not joined waits for it to.
    pub(super) fn place(&self, context: u64) -> Place {
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        if channels.left.set.contains(&context) {
            return Place::Nowhere;
        }
        let make = || Arc::new(Channel::new(context, &self.bias));
        Place::Channel(Arc::clone(channels.by_context.entry(context).or_insert_with(make)))
    }

    pub(super) fn all_channels(&self) -> Vec<Arc<Channel>> {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.by_context.values().map(Arc::clone).collect()
    }
}

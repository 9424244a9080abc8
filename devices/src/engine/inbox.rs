//! What the receiving side keeps of one peer: what its channel numbers stand for, and what it has taken of its room.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use super::channel::Channel;
use super::landing::Arriving;
use super::outbox::{ANNOUNCED, cost};
use crate::device::PeerId;
use crate::header::{Head, Kind};

/// One peer, as it is received from.
///
/// # Invariants
/// 1. An honest peer sends eager messages only within the credit it began with and what it was given back, and has at
///    most [`ANNOUNCED`] messages announced that were not answered. A frame that it sends for an answer of ours
///    comes after that answer was counted, so `limit` and the counts of [`Peer`](super::peer::Peer) are never behind
///    what it may have sent.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// By the peer's channel number.
    bound: Vec<Option<Bound>>,
    /// Eager room freed by messages that met their receive.
    freed: u64,
    /// Eager room that its messages took, in all.
    came: u64,
    /// Eager room that it was granted, in all, when last looked at, less what it has returned.
    limit: u64,
    /// Eager room that it has returned, in all.
    returned: u64,
    /// Messages it has announced, in all.
    announced: u64,
    pub(super) arriving: Option<Arriving>,
}

/// What a channel number of a peer stands for.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    /// A channel that we had joined, in which the peer has this rank.
    Joined { channel: Arc<Channel>, rank: u32 },
    /// A context that we had not, and what the peer says its rank is.
    Named { context: u64, rank: u32 },
}

impl Inbox {
    /// Notes what a number stands for from now on. It may be a context that nobody ever joins: it costs nothing yet.
    pub(super) fn bind(&mut self, number: usize, context: u64, rank: u32) {
        if self.bound.len() <= number {
            self.bound.resize(number + 1, None);
        }
        self.bound[number] = Some(Bound::Named { context, rank });
    }

    /// Returns what a frame's channel number stands for; `None` if it is not bound, or the peer has another rank there.
    #[inline]
    pub(super) fn bound(&mut self, engine: &Engine, from: PeerId, head: &Head) -> Option<&Bound> {
        let number = head.channel();
        if let Some(Bound::Named { .. }) = self.bound.get(number)? {
            self.resolve(engine, from, number)?;
        }
        self.bound.get(number)?.as_ref()
    }

    /// Looks whether we have joined by now.
    #[cold]
    fn resolve(&mut self, engine: &Engine, from: PeerId, number: usize) -> Option<()> {
        let Some(Bound::Named { context, rank }) = self.bound[number] else { return Some(()) };
        if let Some(channel) = engine.known(context).filter(|channel| channel.is_joined()) {
            if !channel.admits(from, rank) {
                return None;
            }
            self.bound[number] = Some(Bound::Joined { channel, rank });
        }
        Some(())
    }

    /// Whether a body is on its way from the peer.
    pub(super) fn has_begun(&self) -> bool {
        self.arriving.is_some()
    }

    /// Takes a message off what the peer may have waiting here.
    ///
    /// # Errors
    /// What it was granted and what came: no honest peer sends more.
    #[inline]
    pub(super) fn admit(
        &mut self,
        engine: &Engine,
        from: PeerId,
        kind: Kind,
        bytes: usize,
    ) -> Result<(), String> {
        match kind {
            Kind::Eager => self.charge(engine, from, bytes),
            Kind::EagerSync => {
                self.charge(engine, from, bytes)?;
                self.announce(engine, from)
            }
            _ => self.announce(engine, from),
        }
    }

    /// Takes the room of an eager message.
    #[inline]
    fn charge(&mut self, engine: &Engine, from: PeerId, bytes: usize) -> Result<(), String> {
        self.came = self.came.saturating_add(cost(bytes));
        if self.came > self.limit { self.look(engine, from) } else { Ok(()) }
    }

    #[cold]
    fn look(&mut self, engine: &Engine, from: PeerId) -> Result<(), String> {
        self.refresh(engine, from);
        if self.came <= self.limit {
            return Ok(());
        }
        Err(format!(
            "it has sent {} bytes of eager messages and was granted {} (of these {} to begin with: MPJ_CREDIT and \
             MPJ_BUDGET have to be the same for all ranks)",
            self.came, self.limit, engine.credit.first
        ))
    }

    fn refresh(&mut self, engine: &Engine, from: PeerId) {
        let granted = engine.peers.get(from).map_or(0, |peer| peer.granted.load(Ordering::Acquire));
        self.limit = engine.credit.first.saturating_add(granted).saturating_sub(self.returned);
    }

    /// Takes room off what the peer was granted, which it returns; `None` if it has not so much left.
    pub(super) fn take_returned(&mut self, engine: &Engine, from: PeerId, bytes: u64) -> Option<()> {
        self.refresh(engine, from);
        self.limit = self.limit.checked_sub(bytes).filter(|limit| *limit >= self.came)?;
        self.returned = self.returned.saturating_add(bytes);
        Some(())
    }

    /// Counts a message that waits at its sender for an answer.
    fn announce(&mut self, engine: &Engine, from: PeerId) -> Result<(), String> {
        self.announced += 1;
        let answered = engine.peers.get(from).map_or(0, |peer| peer.answered.load(Ordering::Acquire));
        if self.announced.saturating_sub(answered) <= ANNOUNCED {
            return Ok(());
        }
        Err(format!(
            "it has announced {} messages, {answered} were answered and {ANNOUNCED} may wait",
            self.announced
        ))
    }

    /// Gives eager room back to its sender, by the quarter of what it had from the start.
    #[inline]
    pub(super) fn free(&mut self, engine: &Engine, from: PeerId, bytes: u64) {
        self.freed += bytes;
        if self.freed >= engine.credit.first / 4 {
            engine.grant(from, std::mem::take(&mut self.freed));
        }
    }
}

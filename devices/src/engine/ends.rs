//! The ends that a rank has learned, and whom they concern: the channels of the rank that has ended, and its peer.
//!
//! An end is acted on once for each channel that its rank is a member of. From then on the channel is *troubled*: who
//! starts an operation there looks whether the end of its peer has been acted on just before, and only then has it acted
//! on again. A channel without an ended member costs nothing, however many ranks have left.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

use super::Engine;
use super::channel::Channel;
use super::progress::ProgressState;
use crate::device::PeerId;
use crate::liveness::{Exit, ExitEvent};

/// What a rank has learned of the others' ends.
#[derive(Debug, Default)]
pub(super) struct KnownExits {
    /// Whose ends, in the order in which they were learned: a rank that closes and leaves is named twice.
    order: Vec<u32>,
    /// By rank, its last end.
    last: HashMap<u32, Exit>,
    /// Those that have died.
    dead: Vec<u32>,
    /// Those that have left or died, and whose outboxes are to be dropped for that.
    closable: Vec<u32>,
}

/// What a channel keeps of the ends of its members.
#[derive(Debug, Default)]
pub(crate) struct ChannelExits {
    /// How many of the ends that the engine has learned were looked at.
    seen: usize,
    /// Members that take no further part in this channel, but have not died.
    closing: HashSet<u32>,
    /// Whether a member has died.
    has_dead: bool,
    /// Whether operations have to be held against the ends.
    is_due: bool,
    /// Against the ends of these members.
    due: Vec<u32>,
}

/// What has to be acted on in a channel.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct PendingExits {
    pub(super) has_dead: bool,
    /// Members that have ended, each once.
    pub(super) members: Vec<u32>,
}

impl KnownExits {
    /// Takes note of an end.
    fn learn(&mut self, ExitEvent { rank, exit: end }: ExitEvent) {
        self.order.push(rank);
        if let Exit::Died(_) = end {
            self.dead.push(rank);
        }
        if matches!(end, Exit::Left | Exit::Died(_)) {
            self.closable.push(rank);
        }
        self.last.insert(rank, end);
    }

    /// Tells a channel of the ends of its members that it has not been told of; returns how many ends were looked at.
    fn update_channel(&self, channel: &Channel) -> usize {
        if !channel.is_joined() {
            // Its members are not known. Who joins asks.
            return 0;
        }
        let mut ended = channel.exits();
        let news = self.order.get(ended.seen..).unwrap_or_default();
        for rank in news.iter().filter(|rank| channel.group().rank(PeerId(**rank)).is_some()) {
            match self.last.get(rank) {
                Some(Exit::Died(_)) => ended.has_dead = true,
                Some(end) if end.is_closing_in(channel.context) => drop(ended.closing.insert(*rank)),
                _ => (),
            }
            ended.is_due = true;
            ended.due.push(*rank);
        }
        ended.seen = self.order.len();
        if ended.is_due {
            channel.trouble();
        }
        news.len()
    }
}

impl ChannelExits {
    /// Returns what has to be acted on, once.
    pub(super) fn take_due(&mut self) -> Option<PendingExits> {
        let is_due = std::mem::take(&mut self.is_due);
        let mut members = std::mem::take(&mut self.due);
        members.sort_unstable();
        members.dedup();
        is_due.then_some(PendingExits { has_dead: self.has_dead, members })
    }

    /// Has all ends acted on again.
    fn repeat(&mut self) {
        self.is_due = true;
        self.due.extend(&self.closing);
    }

    /// Returns how many members take no further part.
    pub(super) fn closing(&self) -> usize {
        self.closing.len()
    }
}

impl Engine {
    pub(super) fn ends(&self) -> RwLockReadGuard<'_, KnownExits> {
        self.ends.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends_mut(&self) -> RwLockWriteGuard<'_, KnownExits> {
        self.ends.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of the ends that became known.
    #[cold]
    pub(super) fn learn(&self, turn: &mut ProgressState) {
        let events = self.roster.since(turn.seen);
        events.iter().for_each(|event| self.trace_end(event));
        turn.seen += events.len();
        // Before the ends: who reads one of them sees that frames have to be taken in first.
        self.recheck.store(true, Ordering::Release);
        {
            let mut ends = self.ends_mut();
            events
                .into_iter()
                .filter(|event| event.rank != self.site.rank)
                .for_each(|event| ends.learn(event));
        }
        self.all_channels().iter().for_each(|channel| self.update_channel_exits(channel));
    }

    /// Tells a channel of the ends of its members. Who joins asks after the channel is known, and whoever learns tells
    /// the channels that are: one of the two comes second, and sees the other's.
    pub(super) fn update_channel_exits(&self, channel: &Channel) {
        self.ends().update_channel(channel);
    }

    /// Returns how a rank's part ended, as far as it was learned.
    pub(crate) fn exit_of(&self, rank: u32) -> Option<Exit> {
        self.ends().last.get(&rank).cloned()
    }

    /// Returns the ends of those of these members that take no further part in a channel, and have not died.
    pub(super) fn closing_among(&self, channel: &Channel, members: &[u32]) -> HashMap<u32, Exit> {
        let ends = self.ends();
        let closing = |rank: &u32| {
            let end = ends.last.get(rank).filter(|end| end.is_closing_in(channel.context))?;
            Some((*rank, end.clone()))
        };
        members.iter().filter_map(closing).collect()
    }

    /// Returns the ends of those whose outboxes are to be dropped, once.
    pub(super) fn take_gone(&self) -> Vec<(u32, Exit)> {
        let mut ends = self.ends_mut();
        let gone = std::mem::take(&mut ends.closable);
        gone.into_iter().filter_map(|rank| Some((rank, ends.last.get(&rank)?.clone()))).collect()
    }

    /// Returns the ranks that have died.
    pub(super) fn dead(&self) -> Vec<PeerId> {
        self.ends().dead.iter().map(|rank| PeerId(*rank)).collect()
    }

    /// Has an operation that was just started held against the end of its peer, or, if any member may be it, against all:
    /// they may have been acted on a moment before.
    ///
    /// The operation was put under a lock where whoever acts on an end looks for it after that end was told to the
    /// channel. So either it was found there, or what follows sees the end.
    #[inline]
    pub(crate) fn recheck_exits(&self, channel: &Channel, peer: Option<PeerId>) {
        if channel.is_troubled() {
            self.recheck_member(channel, peer);
        }
    }

    #[cold]
    fn recheck_member(&self, channel: &Channel, peer: Option<PeerId>) {
        let concerns = |end: &Exit| end.is_closing_in(channel.context) || matches!(end, Exit::Died(_));
        let has_ended = peer.and_then(|peer| self.exit_of(peer.0)).is_some_and(|end| concerns(&end));
        let is_vain =
            has_ended || channel.broken().is_some() || (peer.is_none() && self.all_others_closing(channel));
        if !is_vain {
            return;
        }
        let mut ended = channel.exits();
        ended.is_due = true;
        ended.due.extend(peer.filter(|_| has_ended).map(|peer| peer.0));
        drop(ended);
        self.recheck.store(true, Ordering::Release);
    }

    /// Has all that is pending held against all ends.
    pub(super) fn recheck_all(&self) {
        for channel in self.all_channels().iter().filter(|channel| channel.is_troubled()) {
            channel.exits().repeat();
        }
        self.recheck.store(true, Ordering::Release);
    }

    /// Has a peer that was just made forgotten if its rank has left or died: that may have been acted on a moment before.
    pub(super) fn recheck_peer(&self, peer: PeerId) {
        if matches!(self.exit_of(peer.0), Some(Exit::Left | Exit::Died(_))) {
            self.ends_mut().closable.push(peer.0);
            self.recheck.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::biased::Bias;
    use crate::group::Group;

    fn channel(context: u64, members: impl IntoIterator<Item = u32>) -> Channel {
        let channel = Channel::new(context, &Bias::new());
        channel.join(members.into_iter().collect(), 0, 0);
        channel
    }

    fn learn(ends: &mut KnownExits, rank: u32, end: Exit) {
        ends.learn(ExitEvent { rank, exit: end });
    }

    /// 512 ranks leave one after another. Each end is looked at once by each channel, and acted on once by those that
    /// its rank is a member of.
    #[test]
    fn an_end_troubles_the_channels_of_its_rank_once() {
        const RANKS: u32 = 512;
        let channels = [channel(1, 0..RANKS), channel(2, (0..RANKS).step_by(2)), channel(3, [600, 0, 601])];
        let mut ends = KnownExits::default();
        let (mut looks, mut acts) = ([0; 3], [0; 3]);
        for rank in 1..RANKS {
            for end in [Exit::Closing, Exit::Left] {
                learn(&mut ends, rank, end);
                for (i, channel) in channels.iter().enumerate() {
                    looks[i] += ends.update_channel(channel);
                    if let Some(due) = channel.exits().take_due() {
                        assert_eq!(due, PendingExits { has_dead: false, members: vec![rank] });
                        acts[i] += 1;
                    }
                    assert_eq!(channel.exits().take_due(), None);
                }
            }
        }
        assert_eq!(looks, [1022; 3]);
        assert_eq!(acts, [1022, 510, 0]);
        assert_eq!(channels.each_ref().map(Channel::is_troubled), [true, true, false]);
        assert_eq!(channels.each_ref().map(|channel| channel.exits().closing()), [511, 255, 0]);
    }

    #[test]
    fn a_channel_that_is_joined_late_is_told_all() {
        let mut ends = KnownExits::default();
        let late = Channel::new(7, &Bias::new());
        for (rank, end) in
            [(3, Exit::ClosingExcept([7].into())), (4, Exit::Closing), (9, Exit::Died("".into()))]
        {
            learn(&mut ends, rank, end);
        }
        assert_eq!((ends.update_channel(&late), late.is_troubled()), (0, false));
        late.join(Group::Range { first: 0, len: 9 }, 0, 0);
        assert_eq!((ends.update_channel(&late), late.is_troubled()), (3, true));
        assert_eq!(late.exits().take_due(), Some(PendingExits { has_dead: false, members: vec![3, 4] }));
        assert_eq!(late.exits().closing(), 1, "3 still takes part here");
        learn(&mut ends, 8, Exit::Died("".into()));
        ends.update_channel(&late);
        late.exits().repeat();
        assert_eq!(late.exits().take_due(), Some(PendingExits { has_dead: true, members: vec![4, 8] }));
    }
}

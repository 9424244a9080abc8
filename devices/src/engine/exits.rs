//! The exits that a rank has learned, and their effects on channels and peers.
//!
//! Each state of an exit is applied once in each channel of the exited rank. An operation that starts there later
//! checks whether its peer has exited, and only then schedules the exits to be applied again. In other channels, an
//! operation reads one flag, even if many ranks have left.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

use super::Engine;
use super::channel::Channel;
use super::progress::ProgressState;
use crate::device::PeerId;
use crate::liveness::{Exit, ExitEvent};

#[derive(Debug, Default)]
pub(super) struct KnownExits {
    /// Exited ranks in the order in which their exits were learned. A rank occurs once for each state of its exit.
    order: Vec<u32>,
    last: HashMap<u32, Exit>,
    dead: Vec<u32>,
    /// The ranks that have left or died and whose outboxes must still be closed.
    closable: Vec<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct ChannelExits {
    /// Number of entries of the engine's `KnownExits::order` that were examined.
    seen: usize,
    /// Possible senders that have reported, while alive, that they take no further part in this channel.
    closing: HashSet<u32>,
    has_dead: bool,
    /// Whether operations have to be checked against the exits of the members in `due`, and against deaths.
    is_due: bool,
    due: Vec<u32>,
}

#[derive(PartialEq, Eq, Debug)]
pub(super) struct PendingExits {
    pub(super) has_dead: bool,
    pub(super) members: Vec<u32>,
}

impl KnownExits {
    fn record(&mut self, ExitEvent { rank, exit }: ExitEvent) {
        self.order.push(rank);
        if let Exit::Died(_) = exit {
            self.dead.push(rank);
        }
        if matches!(exit, Exit::Left | Exit::Died(_)) {
            self.closable.push(rank);
        }
        self.last.insert(rank, exit);
    }

    /// Records in a channel the exits of its members that are new to it; returns how many exits were examined.
    fn update_channel(&self, channel: &Channel) -> usize {
        if !channel.is_joined() {
            // The members are unknown. `Engine::join` calls this again.
            return 0;
        }
        let mut exits = channel.exits();
        let new_exits = self.order.get(exits.seen..).unwrap_or_default();
        for rank in new_exits.iter().filter(|rank| channel.is_member(PeerId(**rank))) {
            let is_sender = channel.group().rank(PeerId(*rank)).is_some();
            match self.last.get(rank) {
                Some(Exit::Died(_)) => exits.has_dead = true,
                Some(exit) if is_sender && exit.is_closing_in(channel.context) => {
                    exits.closing.insert(*rank);
                }
                _ => (),
            }
            exits.is_due = true;
            exits.due.push(*rank);
        }
        exits.seen = self.order.len();
        if exits.is_due {
            channel.mark_exits();
        }
        new_exits.len()
    }
}

impl ChannelExits {
    pub(super) fn take_due(&mut self) -> Option<PendingExits> {
        let is_due = std::mem::take(&mut self.is_due);
        let mut members = std::mem::take(&mut self.due);
        members.sort_unstable();
        members.dedup();
        is_due.then_some(PendingExits { has_dead: self.has_dead, members })
    }

    fn mark_all_due(&mut self) {
        self.is_due = true;
        self.due.extend(&self.closing);
    }

    pub(super) fn closing(&self) -> usize {
        self.closing.len()
    }
}

impl Engine {
    pub(super) fn known_exits(&self) -> RwLockReadGuard<'_, KnownExits> {
        self.known_exits.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_exits_mut(&self) -> RwLockWriteGuard<'_, KnownExits> {
        self.known_exits.write().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    pub(super) fn learn_exits(&self, progress: &mut ProgressState) {
        let events = self.roster.since(progress.roster_seen);
        events.iter().for_each(|event| self.trace_exit(event));
        progress.roster_seen += events.len();
        // Before the exits are stored: a thread that reads one then sees that frames must be delivered first.
        self.exits_pending.store(true, Ordering::Release);
        {
            let mut known = self.known_exits_mut();
            events
                .into_iter()
                .filter(|event| event.rank != self.site.rank)
                .for_each(|event| known.record(event));
        }
        self.all_channels().iter().for_each(|channel| self.update_channel_exits(channel));
    }

    /// Records in a channel the exits of its members. A thread that joins the channel calls this after it has published
    /// the channel, a thread that learns an exit after it has recorded the exit. The later one sees the other's write.
    pub(super) fn update_channel_exits(&self, channel: &Channel) {
        self.known_exits().update_channel(channel);
    }

    pub(crate) fn exit_of(&self, rank: u32) -> Option<Exit> {
        self.known_exits().last.get(&rank).cloned()
    }

    /// Returns the exits of those of `members` that take no further part in a channel and have not died.
    pub(super) fn exits_among(&self, channel: &Channel, members: &[u32]) -> HashMap<u32, Exit> {
        let known = self.known_exits();
        let closing = |rank: &u32| {
            let exit = known.last.get(rank).filter(|exit| exit.is_closing_in(channel.context))?;
            Some((*rank, exit.clone()))
        };
        members.iter().filter_map(closing).collect()
    }

    pub(super) fn take_closable(&self) -> Vec<(u32, Exit)> {
        let mut known = self.known_exits_mut();
        let gone = std::mem::take(&mut known.closable);
        gone.into_iter().filter_map(|rank| Some((rank, known.last.get(&rank)?.clone()))).collect()
    }

    pub(super) fn dead_ranks(&self) -> Vec<PeerId> {
        self.known_exits().dead.iter().map(|rank| PeerId(*rank)).collect()
    }

    /// Schedules the exits to be applied again if an operation that was just started cannot complete: `peer`, or every
    /// other member if it is `None`, has exited. The exit might have been applied just before it was stored.
    ///
    /// The operation was stored under a lock. A thread that applies an exit first marks the channel and then searches
    /// under that lock. So either that search finds the operation, or the check here sees the exit.
    #[inline]
    pub(crate) fn recheck_exits(&self, channel: &Channel, peer: Option<PeerId>) {
        if channel.has_exits() {
            self.recheck_member(channel, peer);
        }
    }

    #[cold]
    fn recheck_member(&self, channel: &Channel, peer: Option<PeerId>) {
        let concerns = |exit: &Exit| exit.is_closing_in(channel.context) || matches!(exit, Exit::Died(_));
        let has_ended = peer.and_then(|peer| self.exit_of(peer.0)).is_some_and(|exit| concerns(&exit));
        let cannot_complete =
            has_ended || channel.broken().is_some() || (peer.is_none() && self.all_others_closing(channel));
        if !cannot_complete {
            return;
        }
        let mut exits = channel.exits();
        exits.is_due = true;
        exits.due.extend(peer.filter(|_| has_ended).map(|peer| peer.0));
        drop(exits);
        self.exits_pending.store(true, Ordering::Release);
    }

    pub(super) fn recheck_all(&self) {
        for channel in self.all_channels().iter().filter(|channel| channel.has_exits()) {
            channel.exits().mark_all_due();
        }
        self.exits_pending.store(true, Ordering::Release);
    }

    /// If a peer whose cards are requested has left or died, schedules the closing of its outbox.
    pub(super) fn recheck_peer(&self, peer: PeerId) {
        if matches!(self.exit_of(peer.0), Some(Exit::Left | Exit::Died(_))) {
            self.known_exits_mut().closable.push(peer.0);
            self.exits_pending.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::biased::Bias;
    use crate::engine::channel::Members;
    use crate::group::Group;

    fn channel(context: u64, members: impl IntoIterator<Item = u32>) -> Channel {
        let channel = Channel::new(context, &Bias::new());
        channel.join(Members::intra(members.into_iter().collect(), 0), 0);
        channel
    }

    fn learn(known: &mut KnownExits, rank: u32, exit: Exit) {
        known.record(ExitEvent { rank, exit });
    }

    /// 511 ranks close and leave one after another. Each channel examines each of the 1022 exits once, and applies
    /// those of its members once.
    #[test]
    fn exit_is_applied_once_in_each_channel_of_its_rank() {
        const RANKS: u32 = 512;
        let channels = [channel(1, 0..RANKS), channel(2, (0..RANKS).step_by(2)), channel(3, [600, 0, 601])];
        let mut known = KnownExits::default();
        let (mut examined, mut applied) = ([0; 3], [0; 3]);
        for rank in 1..RANKS {
            for exit in [Exit::Closing, Exit::Left] {
                learn(&mut known, rank, exit);
                for (i, channel) in channels.iter().enumerate() {
                    examined[i] += known.update_channel(channel);
                    if let Some(due) = channel.exits().take_due() {
                        assert_eq!(due, PendingExits { has_dead: false, members: vec![rank] });
                        applied[i] += 1;
                    }
                    assert_eq!(channel.exits().take_due(), None);
                }
            }
        }
        assert_eq!(examined, [1022; 3]);
        assert_eq!(applied, [1022, 510, 0]);
        assert_eq!(channels.each_ref().map(Channel::has_exits), [true, true, false]);
        assert_eq!(channels.each_ref().map(|channel| channel.exits().closing()), [511, 255, 0]);
    }

    #[test]
    fn late_joined_channel_gets_all_exits() {
        let mut known = KnownExits::default();
        let late = Channel::new(7, &Bias::new());
        for (rank, exit) in
            [(3, Exit::ClosingExcept([7].into())), (4, Exit::Closing), (9, Exit::Died("".into()))]
        {
            learn(&mut known, rank, exit);
        }
        assert_eq!((known.update_channel(&late), late.has_exits()), (0, false));
        late.join(Members::intra(Group::Range { first: 0, len: 9 }, 0), 0);
        assert_eq!((known.update_channel(&late), late.has_exits()), (3, true));
        assert_eq!(late.exits().take_due(), Some(PendingExits { has_dead: false, members: vec![3, 4] }));
        assert_eq!(late.exits().closing(), 1, "rank 3 still takes part in this context");
        learn(&mut known, 8, Exit::Died("".into()));
        known.update_channel(&late);
        late.exits().mark_all_due();
        assert_eq!(late.exits().take_due(), Some(PendingExits { has_dead: true, members: vec![4, 8] }));
    }

    /// Only the remote group sends, but a death in either group concerns an intercommunicator.
    #[test]
    fn both_groups_of_an_intercommunicator_are_members() {
        let mut known = KnownExits::default();
        let inter = Channel::new(7, &Bias::new());
        let group = |first, len| Group::Range { first, len };
        inter.join(Members::inter(group(0, 3), 1, group(3, 2)), 0);
        assert_eq!((inter.rank(), inter.size(), inter.sender_count()), (1, 5, 2));
        learn(&mut known, 2, Exit::Closing);
        learn(&mut known, 4, Exit::Closing);
        known.update_channel(&inter);
        assert_eq!(inter.exits().closing(), 1, "rank 2 of the own group does not send here");
        learn(&mut known, 9, Exit::Died("".into()));
        known.update_channel(&inter);
        assert_eq!(inter.exits().take_due().map(|due| due.has_dead), Some(false));
        learn(&mut known, 2, Exit::Died("".into()));
        known.update_channel(&inter);
        assert_eq!(inter.exits().take_due(), Some(PendingExits { has_dead: true, members: vec![2] }));
    }
}

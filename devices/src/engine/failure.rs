//! The failure of operations: after the exit of another rank, or with the whole channel or rank.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::blocked::WaitReason;
use super::channel::Channel;
use super::inbox::Inbox;
use super::ops::Op;
use super::peer::{BodyStream, DeferredSend, Outbox, Peer, PeerTable, QueuedFrame};
use super::send_self::fail_self_sends;
use super::{Engine, lock};
use crate::biased::MutexGuard;
use crate::deferred_drop;
use crate::device::PeerId;
use crate::fault::Fault;
use crate::liveness::{Exit, ExitEvent};
use crate::matching::{ANY_SOURCE, Pattern, Posted, Unexpected};

/// A pending operation that a peer has ended by a NACK, because of a death that this rank has not learned of.
#[derive(Debug)]
pub(super) struct Blamed {
    pub(super) channel: Arc<Channel>,
    pub(super) peer: PeerId,
    pub(super) number: u64,
    /// The fault if no death explains the peer's reply.
    pub(super) fault: Fault,
    /// The rank that has died, according to the peer.
    pub(super) first: u32,
}

/// The time after which a failed rank stops waiting for its tasks, and a closing rank for memory that devices keep.
pub(super) const CLOSE_GRACE: Duration = Duration::from_millis(250);

impl Engine {
    /// Returns the world rank whose death became known first, and the cause.
    pub fn first_death(&self) -> Option<(u32, Arc<str>)> {
        match self.roster.first_death()? {
            ExitEvent { rank, exit: Exit::Died(cause) } => Some((rank, cause)),
            _ => None,
        }
    }

    pub(crate) fn apply_all_exits(&self) {
        if let Some(fault) = self.failure.get().cloned().or_else(|| self.own_loss()) {
            self.fail_channels(fault);
        }
        for channel in self.all_channels() {
            self.apply_exits(&channel);
        }
        for (rank, exit) in self.take_closable() {
            let fault = match exit {
                Exit::Died(cause) => Fault::Dead { rank, cause },
                Exit::ClosingExcept(_) | Exit::Closing | Exit::Left => self.left_job(Some(rank)),
            };
            if let Some(peer) = self.peers.get(PeerId(rank)) {
                self.close_peer(peer, &fault);
            }
        }
        self.fail_blamed();
    }

    /// Returns the fault of all operations of this rank if its peers have lost it: it gets no messages any more.
    fn own_loss(&self) -> Option<Fault> {
        self.roster.first_death_among(|rank| rank == self.site.rank)?;
        let (rank, cause) = self.first_death()?;
        Some(Fault::Dead { rank, cause })
    }

    pub(super) fn dead_mid_body(&self, inboxes: &PeerTable<Inbox>) -> Vec<PeerId> {
        let mut dead = self.dead_ranks();
        dead.retain(|peer| inboxes.get(*peer).is_some_and(Inbox::is_mid_body));
        dead
    }

    fn close_peer(&self, peer: &Peer, fault: &Fault) {
        self.close_outbox(peer.outbox(), fault);
    }

    /// Fails the sends in an outbox, ends the posting of its gets, and discards later frames.
    pub(super) fn close_outbox(&self, mut out: MutexGuard<'_, Outbox>, fault: &Fault) {
        let was_idle = out.is_idle();
        self.credit.reclaim(out.credit_given);
        out.credit_given = self.credit.initial;
        out.credit_recalled = 0;
        out.is_closed = true;
        // Without credit, a sender that checked the exits earlier must send an RTS, and that send fails with the peer.
        out.send_credit = 0;
        out.endpoint.peer_gone();
        out.has_unflushed = false;
        out.bound.clear();
        let deferred = std::mem::take(&mut out.deferred_sends);
        let frames = std::mem::take(&mut out.queued_frames);
        let streams = std::mem::take(&mut out.streams);
        let gets = std::mem::take(&mut out.gets);
        let id = out.id;
        self.note_busy(was_idle, &mut out);
        drop(out);
        for QueuedFrame { body, completes, .. } in frames {
            drop(body);
            if let Some((completer, _)) = completes {
                completer.complete(Err(fault.clone()));
            }
        }
        for DeferredSend { source, completer, .. } in deferred {
            drop(source);
            completer.complete(Err(fault.clone()));
        }
        streams.iter().for_each(|BodyStream { sending, .. }| sending.fail(fault));
        drop(streams);
        gets.into_iter().for_each(|get| self.abort_get(id, get));
    }

    /// Checks the pending operations of a channel against the exits of its members that have not been applied yet, with
    /// one search for each kind of operation.
    pub(crate) fn apply_exits(&self, channel: &Channel) {
        let Some(due) = channel.exits().take_due() else { return };
        // If members have died, the fault names the earliest death: the other exits are usually its consequences.
        if due.has_dead
            && let Some(fault) = self.first_death_fault(channel)
        {
            return self.fail_channel(channel, &fault);
        }
        let exits = self.exits_among(channel, &due.members);
        if !exits.is_empty() {
            self.fail_receives_from(channel, &exits);
            // Before the operations: a queued frame can hold the memory of an operation.
            for (rank, exit) in &exits {
                let fault = self.left_job(Some(*rank));
                self.fail_queued(channel, self.peers.get(PeerId(*rank)), *exit == Exit::Left, &fault);
            }
            self.fail_ops(channel, |op| {
                let PeerId(rank) = op.peer();
                // A closing rank still sends the bodies of its RTS frames.
                let exit =
                    exits.get(&rank).filter(|exit| **exit == Exit::Left || !matches!(op, Op::RecvOp(_)));
                exit.map(|_| self.left_job(Some(rank)))
            });
        }
        if self.all_others_closing(channel) {
            let anyone = |p: &Posted| p.pattern.source == ANY_SOURCE;
            fail_receives(channel, anyone, &self.left_job(None));
        }
    }

    /// Returns the fault of an operation that fails because a rank, or all others if `rank` is `None`, has left. If a
    /// member of the channel has died, the fault names that death, which might be the cause.
    pub(crate) fn left_fault(&self, channel: &Channel, rank: Option<u32>) -> Fault {
        self.first_death_fault(channel).unwrap_or_else(|| self.left_job(rank))
    }

    /// As [`left_fault`](Self::left_fault), for a channel without a dead member. Names a third rank's death, if any.
    fn left_job(&self, rank: Option<u32>) -> Fault {
        self.abandoned(rank).unwrap_or(Fault::Left { rank })
    }

    /// Returns the [`Fault::Abandoned`] that names the first death of a rank other than `rank` and this one, if any.
    fn abandoned(&self, rank: Option<u32>) -> Option<Fault> {
        if !self.roster.has_death() {
            return None;
        }
        let other = |dead| dead != self.site.rank && rank != Some(dead);
        match self.roster.first_death_among(other)? {
            ExitEvent { rank: dead, exit: Exit::Died(cause) } => Some(Fault::Abandoned { rank, dead, cause }),
            _ => None,
        }
    }

    /// Returns the fault of an operation that a NACK of `peer` has ended. `fault` is the fault without a death, and
    /// `first` is the death that the peer knew of when it sent the NACK. Returns `None` if this rank has not learned of
    /// that death: the operation then waits for it, because every rank is notified of each death.
    pub(super) fn blame(
        &self,
        channel: &Channel,
        peer: PeerId,
        fault: Fault,
        first: Option<u32>,
    ) -> Option<Fault> {
        if let Some(dead) = self.first_death_fault(channel) {
            return Some(dead);
        }
        if let Some(abandoned) = self.abandoned(Some(peer.0)) {
            return Some(abandoned);
        }
        let is_to_come = |dead: &u32| *dead < self.site.size && *dead != self.site.rank;
        if first.is_some_and(|dead| is_to_come(&dead)) {
            return None;
        }
        let has_left = self.exit_of(peer.0).is_some_and(|exit| exit.is_closing_in(channel.context));
        Some(if has_left { Fault::Left { rank: Some(peer.0) } } else { fault })
    }

    fn fail_blamed(&self) {
        let is_known = |blamed: &mut Blamed| matches!(self.exit_of(blamed.first), Some(Exit::Died(_)));
        let known: Vec<_> = lock(&self.blamed).extract_if(.., is_known).collect();
        for Blamed { channel, peer, number, fault, .. } in known {
            let Some(fault) = self.blame(&channel, peer, fault, None) else { continue };
            let op = channel.ops().take(number, peer);
            op.into_iter().for_each(|op| op.complete(Err(fault.clone())));
        }
    }

    pub(crate) fn first_death_fault(&self, channel: &Channel) -> Option<Fault> {
        let other = |rank| rank != self.site.rank && channel.is_member(PeerId(rank));
        match self.roster.first_death_among(other)? {
            ExitEvent { rank, exit: Exit::Died(cause) } => Some(Fault::Dead { rank, cause }),
            _ => None,
        }
    }

    /// Returns whether other ranks can send in the channel and all of them have reported that they start no more
    /// messages there.
    pub(super) fn all_others_closing(&self, channel: &Channel) -> bool {
        let gone = channel.exits().closing();
        gone > 0 && gone >= channel.sender_count() as usize
    }

    /// Fails all pending operations of this rank, and rejects new ones, also in channels that it joins later, as if the
    /// rank had died. An operation whose memory a device or a peer might access fails when that access has ended.
    pub fn fail_all(&self, cause: &str) {
        // A thread that sees the flag must find the fault.
        self.failure.get_or_init(|| Fault::Dead { rank: self.site.rank, cause: cause.into() });
        self.closed.store(true, Ordering::SeqCst);
        self.stop_background();
        self.fail_channels(Fault::Dead { rank: self.site.rank, cause: cause.into() });
        self.poll_tasks(true);
        self.wake_all();
    }

    /// Returns the fault of all operations after [`fail_all`](Self::fail_all), or after this rank was reported dead.
    pub fn failure(&self) -> Option<&Fault> {
        self.failure.get()
    }

    /// Fails the operations of all channels, with the first of the faults with which this is called.
    fn fail_channels(&self, fault: Fault) {
        let fault = self.failure.get_or_init(|| fault).clone();
        // `join` publishes a channel before it reads `failure`, so either this loop or `join` fails the channel.
        for channel in self.all_channels() {
            self.fail_channel(&channel, &fault);
        }
        self.notify_failure_listeners();
    }

    /// Fails everything as [`fail_all`](Self::fail_all) does, and waits for a limited time until the
    /// [tasks](Self::spawn), which keep the engine alive, are complete.
    pub fn fail_all_and_wait(&self, cause: &str) {
        self.fail_all(cause);
        let end = Instant::now() + CLOSE_GRACE;
        let have_ended = |(): &mut ()| (!self.tasks.any()).then_some(());
        self.wait_for_until(end, &mut (), have_ended, |()| WaitReason::call("the end of failed operations"));
    }

    pub(crate) fn fail_channel(&self, channel: &Channel, fault: &Fault) {
        let hold = deferred_drop::DeferDrops::begin();
        // A receive can still take an unexpected message, and then start an operation after the search below.
        // `recheck_exits` finds it.
        channel.mark_exits();
        channel.set_broken(fault.clone());
        fail_receives(channel, |_| true, fault);
        fail_self_sends(channel, fault);
        // Before the operations: a queued frame can hold the memory of an operation.
        self.fail_queued(channel, self.peers.iter(), true, fault);
        self.fail_ops(channel, |_| Some(fault.clone()));
        drop(hold);
        deferred_drop::run_deferred_drops();
    }

    /// Fails the receives from ranks that start no more messages; all their messages and RTS frames have arrived.
    fn fail_receives_from(&self, channel: &Channel, exits: &HashMap<u32, Exit>) {
        let whose = |p: &Posted| channel.peer(p.pattern.source.cast_unsigned()).map(|PeerId(rank)| rank);
        let failed =
            channel.matching().drain_posted(|p| whose(p).is_some_and(|rank| exits.contains_key(&rank)));
        for posted in failed {
            let rank = whose(&posted);
            posted.fail(self.left_job(rank));
        }
    }

    /// Cancels this rank's posted receives in a channel, and its synchronous sends to itself there.
    pub(crate) fn cancel_receives(&self, channel: &Channel) {
        fail_receives(channel, |_| true, &Fault::Cancelled);
        fail_self_sends(channel, &Fault::Cancelled);
    }

    fn fail_ops(&self, channel: &Channel, why: impl FnMut(&Op) -> Option<Fault>) {
        let ops = channel.ops().take_failed(why);
        for (op, fault) in ops {
            self.fail_op(op, fault);
        }
    }

    /// Fails a channel's queued messages to `peers` and, if `streams`, its body streams to them. Keeps all replies.
    fn fail_queued<'a>(
        &self,
        channel: &Channel,
        peers: impl IntoIterator<Item = &'a Peer>,
        streams: bool,
        fault: &Fault,
    ) {
        for peer in peers {
            let mut failed = Vec::new();
            let mut out = peer.outbox();
            let was_idle = out.is_idle();
            for frame in std::mem::take(&mut out.queued_frames) {
                if frame.context == channel.context {
                    out.refund(&frame);
                    failed.push((frame.body, frame.completes.map(|(completer, _)| completer)));
                } else {
                    out.queued_frames.push_back(frame);
                }
            }
            for message in std::mem::take(&mut out.deferred_sends) {
                if message.channel.context == channel.context {
                    failed.push((Some(message.source), Some(message.completer)));
                } else {
                    out.deferred_sends.push_back(message);
                }
            }
            let mut bodies = Vec::new();
            for stream in std::mem::take(&mut out.streams) {
                if streams && stream.channel.context == channel.context {
                    stream.sending.fail(fault);
                    bodies.push(stream.sending);
                } else {
                    out.streams.push_back(stream);
                }
            }
            self.note_busy(was_idle, &mut out);
            drop(out);
            drop(bodies);
            for (source, completer) in failed {
                drop(source);
                if let Some(completer) = completer {
                    completer.complete(Err(fault.clone()));
                }
            }
        }
    }

    /// Drops messages from before the join whose senders have another rank in the channel; reports the senders dead.
    pub(crate) fn reject_forged(&self, channel: &Channel) {
        let is_forged =
            |unexpected: &Unexpected| !channel.accepts_sender(unexpected.from, unexpected.message.source);
        let forged = channel.matching().drain_unexpected(is_forged);
        let why = "protocol error: it used another rank's number";
        forged.into_iter().for_each(|unexpected| self.report_protocol_error(unexpected.from, why));
    }

    /// Checks that a message can still arrive that matches the pattern. The caller searches the unexpected messages
    /// before, and again after an error.
    ///
    /// # Errors
    /// The fault that explains why no message can match any more.
    pub fn ensure_matchable(&self, channel: &Channel, pattern: Pattern) -> Result<(), Fault> {
        if let Some(fault) = channel.broken() {
            return Err(fault.clone());
        }
        if !channel.has_exits() {
            return Ok(());
        }
        if self.is_closed() {
            return Err(Fault::Left { rank: Some(self.site.rank) });
        }
        let rank = if pattern.source == ANY_SOURCE {
            self.all_others_closing(channel).then_some(None)
        } else {
            let peer = channel.peer(pattern.source.cast_unsigned());
            let has_left = |rank| self.exit_of(rank).is_some_and(|exit| exit.is_closing_in(channel.context));
            peer.filter(|PeerId(rank)| has_left(*rank)).map(|PeerId(rank)| Some(rank))
        };
        // Read `exits_pending` after the exit. If it is set, earlier frames of that rank might not be delivered yet.
        match rank {
            Some(rank) if !self.exits_pending.load(Ordering::Acquire) => Err(self.left_fault(channel, rank)),
            _ => Ok(()),
        }
    }
}

pub(super) fn fail_receives(channel: &Channel, which: impl FnMut(&Posted) -> bool, fault: &Fault) {
    let failed = channel.matching().drain_posted(which);
    for posted in failed {
        posted.fail(fault.clone());
    }
}

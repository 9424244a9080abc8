//! Receiving: posted receives, unexpected messages, rendezvous bodies, probes and cancellation.

use std::mem::MaybeUninit;
use std::sync::Arc;

use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use super::channel::Channel;
use super::flush::credit_cost;
use super::rendezvous::MatchedRts;
use super::{Engine, WaitReason, lock};
use crate::completion::{Completion, Receive, RecvCompleter, Started};
use crate::copy;
use crate::data_path::DataPath;
use crate::device::PeerId;
use crate::fault::Fault;
use crate::header::FrameKind;
use crate::kill_points::{KillPoint, reach};
use crate::matching::{InlineBody, Matching, Pattern, Posted, Unexpected, UnexpectedBody};
use crate::message::{Envelope, Target};

/// A message that a matched probe has taken from its channel. Only the owner of this value can receive it.
#[derive(Debug)]
pub struct MatchedMessage {
    pub(super) channel: Arc<Channel>,
    pub(super) early: Unexpected,
}

/// A message taken from its channel by [`Engine::mprobe_or_recv`].
#[derive(Debug)]
pub enum Matched {
    /// The message was received into this block, which it fills from the first byte on.
    Block(Envelope, DefaultBlock),
    /// The message still has to be received.
    Message(MatchedMessage),
}

impl MatchedMessage {
    /// Returns its envelope.
    pub fn envelope(&self) -> &Envelope {
        &self.early.message
    }

    /// Returns whether the body has arrived with the message, so that a receive completes at once.
    pub fn has_body(&self) -> bool {
        !matches!(self.early.body, UnexpectedBody::Rendezvous { .. })
    }
}

impl Channel {
    /// Calls `look` with the first `most` unexpected messages, in order of arrival, until it returns a value.
    pub fn find_unexpected<T>(&self, most: usize, mut look: impl FnMut(&Envelope) -> Option<T>) -> Option<T> {
        self.matching().early().take(most).find_map(|early| look(&early.message))
    }

    /// Takes the first message that `which` picks out of those that [`find_unexpected`](Self::find_unexpected) visits.
    pub fn take_unexpected(
        self: &Arc<Self>,
        most: usize,
        mut which: impl FnMut(&Envelope) -> bool,
    ) -> Option<MatchedMessage> {
        let early = self.matching().take_unexpected_where(most, |early| which(&early.message))?;
        Some(MatchedMessage { channel: Arc::clone(self), early })
    }
}

impl Engine {
    /// Posts a receive.
    ///
    /// # Errors
    /// The fault of an unexpected message that does not fit, or [`Fault::Dead`], [`Fault::Freed`].
    pub fn recv(&self, channel: &Arc<Channel>, pattern: Pattern, target: Target) -> Result<Started, Fault> {
        let completion = self.post(channel, pattern, Receive::new(target)).map_err(|fault| *fault)?;
        completion.started()
    }

    /// Posts a receive. If its message has arrived with its body, the receive is complete on return.
    ///
    /// # Errors
    /// [`Fault::Dead`], [`Fault::Freed`].
    pub fn post(
        &self,
        channel: &Arc<Channel>,
        pattern: Pattern,
        receive: Receive,
    ) -> Result<Completion, Box<Fault>> {
        let Receive { mut receiving, completion } = receive;
        if self.path != DataPath::Auto {
            receiving.target().or_path(self.path);
        }
        let mut matching = channel.matching();
        if let Some(early) = matching.take_unexpected(pattern) {
            matching.local.note_unexpected(&early);
            drop(matching);
            self.deliver_unexpected(channel, early, receiving);
            return Ok(completion);
        }
        if let Some(fault) = channel.broken() {
            return Err(Box::new(fault.clone()));
        }
        receiving.target().prefetch();
        matching.post(Posted::new(pattern, receiving));
        drop(matching);
        self.recheck_exits(channel, channel.peer(pattern.source.cast_unsigned()));
        Ok(completion)
    }

    /// Receives the message of a matched probe. Unless its body has to be fetched, the receive is complete on return.
    pub fn recv_message(&self, message: MatchedMessage, receive: Receive) -> Completion {
        let MatchedMessage { channel, early } = message;
        let Receive { mut receiving, completion } = receive;
        receiving.target().or_path(self.path);
        // The channel may have been freed since.
        lock(&self.freed_traffic).note_unexpected(&early);
        self.deliver_unexpected(&channel, early, receiving);
        completion
    }

    /// Receives the message of a matched probe into a block of the global pool, which it fills from the first byte
    /// on. If the body was buffered in a block, this is that block, without a copy. A short body is copied into a new
    /// block.
    ///
    /// # Errors
    /// Returns the message if its body is stored elsewhere, or if no block could be allocated.
    pub fn recv_block(&self, message: MatchedMessage) -> Result<DefaultBlock, MatchedMessage> {
        let MatchedMessage { channel, early } = message;
        self.take_block(&channel, early)
            .map(|(_, block)| block)
            .map_err(|early| MatchedMessage { channel, early })
    }

    /// Waits for the message that a receive would match, and takes it from its channel. If possible, the message is
    /// received into a block as by [`recv_block`](Self::recv_block); otherwise it is returned as by
    /// [`mprobe`](Self::mprobe).
    ///
    /// # Errors
    /// The reason why no message can match any more.
    pub fn mprobe_or_recv(
        &self,
        channel: &Arc<Channel>,
        pattern: Pattern,
        call: &'static str,
    ) -> Result<Matched, Fault> {
        let early = self.wait_unexpected(channel, pattern, call)?;
        Ok(match self.take_block(channel, early) {
            Ok((message, block)) => Matched::Block(message, block),
            Err(early) => Matched::Message(MatchedMessage { channel: Arc::clone(channel), early }),
        })
    }

    fn take_block(
        &self,
        channel: &Channel,
        mut early: Unexpected,
    ) -> Result<(Envelope, DefaultBlock), Unexpected> {
        // `release_early` below returns the credit for `Inline` and for `Empty`, which replaces the block.
        let block = match &early.body {
            UnexpectedBody::Inline(short) => {
                in_block(short.bytes()).inspect(|_| lock(&self.freed_traffic).note_unexpected(&early))
            }
            UnexpectedBody::Block(_) => match std::mem::replace(&mut early.body, UnexpectedBody::Empty) {
                UnexpectedBody::Block(block) => Some(block),
                _ => None,
            },
            _ => None,
        };
        let Some(block) = block else { return Err(early) };
        self.free_unexpected_credit(&early);
        self.send_fin_if_sync(early.from, channel, early.sync_op);
        Ok((early.message, block))
    }

    /// Delivers an unexpected message to its receive.
    pub(super) fn deliver_unexpected(
        &self,
        channel: &Arc<Channel>,
        early: Unexpected,
        receiving: RecvCompleter,
    ) {
        let Some(trace) = self.trace() else { return self.deliver(channel, early, receiving) };
        let (begun, from, message) = (trace.now(), early.from, early.message);
        self.deliver(channel, early, receiving);
        self.trace_unexpected(trace, begun, channel, from, &message);
    }

    fn deliver(&self, channel: &Arc<Channel>, early: Unexpected, mut receiving: RecvCompleter) {
        self.free_unexpected_credit(&early);
        let Unexpected { message, from, body, sync_op: notify } = early;
        let accepted = receiving.target().accepts(&message);
        let landed = match body {
            UnexpectedBody::Rendezvous { op, .. } if accepted.is_err() => {
                self.trace_refused(from, channel.context, op);
                self.answer(from, channel, FrameKind::Fin, op, 0);
                accepted
            }
            UnexpectedBody::Rendezvous { op, key } => {
                let (target, ender) = receiving.into_parts();
                let announced = MatchedRts { channel, from, message, op, key: key.as_deref() };
                return self.receive_rendezvous(&announced, target, ender);
            }
            UnexpectedBody::SelfSend { source, ender } => {
                if accepted.is_ok() {
                    source.copy_to(receiving.target());
                }
                drop(source);
                ender.complete(Ok(message));
                // Another thread may sleep until this message is received.
                self.wake_all();
                accepted
            }
            body => {
                match &body {
                    UnexpectedBody::Inline(short) if accepted.is_ok() => {
                        receiving.target().write(0, short.bytes());
                    }
                    UnexpectedBody::Block(block) if accepted.is_ok() => {
                        // SAFETY: the block was filled with the message's bytes when the message was buffered.
                        #[expect(unsafe_code, reason = "see above")]
                        let bytes = unsafe { block.as_uninit()[..message.bytes].assume_init_ref() };
                        receiving.target().write(0, bytes);
                    }
                    _ => (),
                }
                self.send_fin_if_sync(from, channel, notify);
                let lost = matches!(body, UnexpectedBody::NoMemory)
                    .then_some(Fault::NoMemory { bytes: message.bytes });
                accepted.and_then(|()| lost.map_or(Ok(()), Err))
            }
        };
        match landed.and_then(|()| receiving.target().finish(&message)) {
            Ok(()) => receiving.complete_with(&message),
            Err(fault) => receiving.end(Err(fault)),
        }
    }

    /// Returns the credit of an unexpected message to its sender, if the message used any.
    pub(super) fn free_unexpected_credit(&self, early: &Unexpected) {
        let local = matches!(early.body, UnexpectedBody::Rendezvous { .. } | UnexpectedBody::SelfSend { .. });
        if !local && early.from.0 != self.site.rank {
            self.release(early.from, credit_cost(early.message.bytes));
        }
    }

    /// Discards an unexpected message of another rank: it will not be received. Its sender stops waiting for a match.
    pub(super) fn nack_unexpected(&self, context: u64, early: Unexpected) {
        self.free_unexpected_credit(&early);
        let op = match early.body {
            UnexpectedBody::Rendezvous { op, .. } => Some(op),
            _ => early.sync_op,
        };
        if let Some(op) = op {
            self.refuse(early.from, context, op);
        }
    }

    /// Notifies the sender of a synchronous message that the message has matched.
    pub(crate) fn send_fin_if_sync(&self, from: PeerId, channel: &Channel, notify: Option<u64>) {
        if let Some(op) = notify {
            self.answer(from, channel, FrameKind::Fin, op, 0);
        }
    }

    /// Cancels a posted receive; returns whether it had not matched yet.
    pub fn cancel_receive(&self, channel: &Channel, completion: &Completion) -> bool {
        let posted = channel.matching().take_posted_of(completion);
        match posted {
            Some(posted) => {
                posted.fail(Fault::Cancelled);
                self.wake_all();
                true
            }
            None => false,
        }
    }

    /// Returns the envelope of the message that a receive would match, after one pass of progress.
    ///
    /// # Errors
    /// The reason why no message can match any more.
    pub fn iprobe(&self, channel: &Channel, pattern: Pattern) -> Result<Option<Envelope>, Fault> {
        self.progress_no_yield();
        let found =
            self.try_match(channel, pattern, |m| m.peek(pattern).map(|early| early.message)).transpose()?;
        if found.is_none() {
            self.policy.note_empty_poll();
        }
        Ok(found)
    }

    /// Takes the message that a receive would match from its channel, after one pass of progress.
    ///
    /// # Errors
    /// The reason why no message can match any more.
    pub fn improbe(&self, channel: &Arc<Channel>, pattern: Pattern) -> Result<Option<MatchedMessage>, Fault> {
        self.progress_no_yield();
        let found = self.try_match(channel, pattern, |m| m.take_unexpected(pattern)).transpose()?;
        if found.is_none() {
            self.policy.note_empty_poll();
        }
        Ok(found.map(|early| MatchedMessage { channel: Arc::clone(channel), early }))
    }

    /// Waits for the message that a receive would match and returns its envelope.
    ///
    /// # Errors
    /// The reason why no message can match any more.
    pub fn probe(&self, channel: &Arc<Channel>, pattern: Pattern) -> Result<Envelope, Fault> {
        self.wait_for(
            &mut (),
            |()| self.try_match(channel, pattern, |m| m.peek(pattern).map(|early| early.message)),
            |()| WaitReason::recv("probe", channel, pattern.source, pattern.tag),
        )
    }

    /// Waits for the message that a receive would match and takes it from its channel.
    ///
    /// # Errors
    /// The reason why no message can match any more.
    pub fn mprobe(
        &self,
        channel: &Arc<Channel>,
        pattern: Pattern,
        call: &'static str,
    ) -> Result<MatchedMessage, Fault> {
        let early = self.wait_unexpected(channel, pattern, call)?;
        Ok(MatchedMessage { channel: Arc::clone(channel), early })
    }

    fn wait_unexpected(
        &self,
        channel: &Arc<Channel>,
        pattern: Pattern,
        call: &'static str,
    ) -> Result<Unexpected, Fault> {
        self.wait_for(
            &mut (),
            |()| self.try_match(channel, pattern, |m| m.take_unexpected(pattern)),
            |()| WaitReason::recv(call, channel, pattern.source, pattern.tag),
        )
    }

    /// Searches the unexpected messages. Returns `None` if no message matches yet, and an error if none can match any
    /// more.
    fn try_match<T>(
        &self,
        channel: &Channel,
        pattern: Pattern,
        find: impl Fn(&mut Matching) -> Option<T>,
    ) -> Option<Result<T, Fault>> {
        let found = find(&mut channel.matching());
        if let Some(found) = found {
            return Some(Ok(found));
        }
        let fault = self.ensure_matchable(channel, pattern).err()?;
        // Another thread may have delivered the last messages between the two searches.
        let found = find(&mut channel.matching());
        Some(found.ok_or(fault))
    }

    /// Delivers an eager message that has just arrived; returns whether its credit is free again.
    #[inline]
    pub(crate) fn deliver_eager(
        &self,
        channel: &Arc<Channel>,
        from: PeerId,
        message: Envelope,
        notify: Option<u64>,
        body: &[u8],
    ) -> bool {
        let mut matching = channel.matching();
        if let Some(posted) = matching.take_posted(&message) {
            drop(matching);
            posted.complete_with(&message, |target| {
                target.write(0, body);
            });
            reach(KillPoint::EagerMatched, self.site.rank);
            self.send_fin_if_sync(from, channel, notify);
            return true;
        }
        let hold = || self.buffer_body(body.len(), |room: &mut [MaybeUninit<u8>]| copy::fill(room, body));
        let body = InlineBody::of(body).map_or_else(hold, UnexpectedBody::Inline);
        let back = matching.push_unexpected(Unexpected { message, from, body, sync_op: notify });
        drop(matching);
        let refused = back.is_some();
        if refused && let Some(op) = notify {
            self.refuse(from, channel.context, op);
        }
        refused
    }
}

/// Copies a short body into a new block of the global pool; `None` if the allocation fails.
fn in_block(body: &[u8]) -> Option<DefaultBlock> {
    let mut block = mpj_pool::global().alloc(body.len()).ok()?;
    copy::fill(&mut block.as_uninit_mut()[..body.len()], body);
    Some(block)
}

//! Receiving: posted receives and their cancellation, unexpected messages, and probes.

use std::mem::MaybeUninit;
use std::sync::Arc;

use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use super::channel::Channel;
use super::flush::credit_cost;
use super::matched::{ExtractedFrom, Matched, MatchedMessage};
use super::rendezvous::MatchedRts;
use super::send_self::end_self_send;
use super::{Engine, WaitReason, lock};
use crate::completion::{Completion, Receive, RecvCompleter, Started};
use crate::copy;
use crate::data_path::DataPath;
use crate::device::PeerId;
use crate::fault::Fault;
use crate::header::FrameKind;
use crate::kill_points::{KillPoint, kill_point};
use crate::matching::{InlineBody, Matching, Pattern, Posted, Unexpected, UnexpectedBody};
use crate::message::{Envelope, Target};

impl Channel {
    /// Calls `visit` with the first `limit` unexpected messages, in order of arrival, until it returns a value.
    pub fn find_unexpected<T>(
        &self,
        limit: usize,
        mut visit: impl FnMut(&Envelope) -> Option<T>,
    ) -> Option<T> {
        self.matching().iter_unexpected().take(limit).find_map(|unexpected| visit(&unexpected.message))
    }
}

impl Engine {
    /// Posts a receive.
    ///
    /// # Errors
    /// The fault of a receive that has failed at once, such as [`Fault::Truncated`]; otherwise as [`post`](Self::post).
    pub fn recv(&self, channel: &Arc<Channel>, pattern: Pattern, target: Target) -> Result<Started, Fault> {
        let completion = self.post(channel, pattern, Receive::new(target)).map_err(|fault| *fault)?;
        completion.started()
    }

    /// Posts a receive. If a matching message and its body are already here, the receive is complete on return.
    ///
    /// # Errors
    /// [`Fault::Dead`], [`Fault::Freed`], [`Fault::ForeignChannel`].
    pub fn post(
        &self,
        channel: &Arc<Channel>,
        pattern: Pattern,
        receive: Receive,
    ) -> Result<Completion, Box<Fault>> {
        let Receive { mut receiving, completion } = receive;
        if !self.owns(channel) {
            return Err(Box::new(Fault::ForeignChannel));
        }
        if self.path != DataPath::Auto {
            receiving.target().or_path(self.path);
        }
        let mut matching = channel.matching();
        if let Some(unexpected) = matching.take_unexpected(pattern) {
            matching.local.note_unexpected(&unexpected);
            drop(matching);
            self.deliver_unexpected(channel, unexpected, receiving);
            return Ok(completion);
        }
        if let Some(fault) = channel.broken() {
            return Err(Box::new(fault.clone()));
        }
        receiving.target().prefetch();
        matching.post(Posted::new(pattern, receiving));
        drop(matching);
        if channel.has_exits() {
            self.recheck_posted(channel, pattern);
        }
        Ok(completion)
    }

    /// Checks a receive that was just posted. A thread that closes the rank first marks the channel, and then cancels the
    /// posted receives: either it finds this one, or this thread sees the mark.
    #[cold]
    fn recheck_posted(&self, channel: &Channel, pattern: Pattern) {
        self.recheck_exits(channel, channel.peer(pattern.source.cast_unsigned()));
        if self.is_closed() {
            self.cancel_receives(channel);
        }
    }

    /// Takes the first of the `limit` earliest unexpected messages of a channel for which `which` returns true.
    pub fn take_unexpected(
        self: &Arc<Self>,
        channel: &Arc<Channel>,
        limit: usize,
        mut which: impl FnMut(&Envelope) -> bool,
    ) -> Option<MatchedMessage> {
        if !self.owns(channel) {
            return None;
        }
        let unexpected =
            channel.matching().take_unexpected_where(limit, |unexpected| which(&unexpected.message))?;
        Some(self.matched(channel, unexpected))
    }

    fn matched(self: &Arc<Self>, channel: &Arc<Channel>, unexpected: Unexpected) -> MatchedMessage {
        MatchedMessage { engine: Arc::clone(self), channel: ExtractedFrom::new(channel), unexpected }
    }

    /// Waits for the message that a receive would match, and takes it from its channel. Receives the message
    /// [into a block](MatchedMessage::into_block), or if that fails, returns it as [`mprobe`](Self::mprobe) does.
    ///
    /// # Errors
    /// The fault that explains why no message can match any more.
    pub fn mprobe_or_recv(
        self: &Arc<Self>,
        channel: &Arc<Channel>,
        pattern: Pattern,
        call: &'static str,
    ) -> Result<Matched, Fault> {
        let unexpected = self.wait_unexpected(channel, pattern, call)?;
        Ok(match self.take_block(channel, unexpected) {
            Ok((message, block)) => Matched::Block(message, block),
            Err(unexpected) => Matched::Message(self.matched(channel, unexpected)),
        })
    }

    pub(super) fn take_block(
        &self,
        channel: &Channel,
        mut unexpected: Unexpected,
    ) -> Result<(Envelope, DefaultBlock), Unexpected> {
        // `free_unexpected_credit` below also frees the credit of a block, which `Empty` replaces here.
        let block = match &unexpected.body {
            UnexpectedBody::Inline(short) => {
                to_block(short.bytes()).inspect(|_| lock(&self.freed_traffic).note_unexpected(&unexpected))
            }
            UnexpectedBody::Block(_) => {
                match std::mem::replace(&mut unexpected.body, UnexpectedBody::Empty) {
                    UnexpectedBody::Block(block) => Some(block),
                    _ => None,
                }
            }
            _ => None,
        };
        let Some(block) = block else { return Err(unexpected) };
        self.free_unexpected_credit(&unexpected);
        self.send_fin_if_sync(unexpected.from, channel, unexpected.sync_op);
        Ok((unexpected.message, block))
    }

    pub(super) fn deliver_unexpected(
        &self,
        channel: &Arc<Channel>,
        unexpected: Unexpected,
        receiving: RecvCompleter,
    ) {
        let Some(trace) = self.trace() else { return self.deliver(channel, unexpected, receiving) };
        let (begun, from, message) = (trace.now(), unexpected.from, unexpected.message);
        self.deliver(channel, unexpected, receiving);
        self.trace_unexpected(trace, begun, channel, from, &message);
    }

    fn deliver(&self, channel: &Arc<Channel>, unexpected: Unexpected, mut receiving: RecvCompleter) {
        self.free_unexpected_credit(&unexpected);
        let Unexpected { message, from, body, sync_op: notify } = unexpected;
        let accepted = receiving.target().accepts(&message);
        let landed = match body {
            UnexpectedBody::Rendezvous { op, .. } if accepted.is_err() => {
                self.trace_refused(from, channel.context, op);
                self.send_reply(from, channel, FrameKind::Fin, op, 0);
                accepted
            }
            UnexpectedBody::Rendezvous { op, key } => {
                let (target, completer) = receiving.into_parts();
                let rts = MatchedRts { channel, from, message, op, key: key.as_deref() };
                return self.receive_rendezvous(&rts, target, completer);
            }
            UnexpectedBody::SelfSend { source, completer } => {
                if accepted.is_ok() {
                    source.copy_to(receiving.target());
                }
                end_self_send(source, completer, Ok(message));
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
            Err(fault) => receiving.complete(Err(fault)),
        }
    }

    pub(super) fn free_unexpected_credit(&self, unexpected: &Unexpected) {
        let uses_no_credit =
            matches!(unexpected.body, UnexpectedBody::Rendezvous { .. } | UnexpectedBody::SelfSend { .. });
        if !uses_no_credit && unexpected.from.0 != self.site.rank {
            self.free_credit(unexpected.from, credit_cost(unexpected.message.bytes));
        }
    }

    /// Discards an unexpected message. If its sender is another rank that waits for the match, sends it a NACK.
    pub(super) fn nack_unexpected(&self, context: u64, unexpected: Unexpected) {
        self.free_unexpected_credit(&unexpected);
        let op = match unexpected.body {
            UnexpectedBody::Rendezvous { op, .. } => Some(op),
            _ => unexpected.sync_op,
        };
        if let Some(op) = op {
            self.nack_message(unexpected.from, context, op);
        }
    }

    pub(crate) fn send_fin_if_sync(&self, from: PeerId, channel: &Channel, notify: Option<u64>) {
        if let Some(op) = notify {
            self.send_reply(from, channel, FrameKind::Fin, op, 0);
        }
    }

    /// Cancels a posted receive; returns whether it was still posted.
    pub fn cancel_receive(&self, channel: &Channel, completion: &Completion) -> bool {
        if !self.owns(channel) {
            return false;
        }
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

    /// Makes progress once, and returns the envelope of the message that a receive would match.
    ///
    /// # Errors
    /// The fault that explains why no message can match any more.
    pub fn iprobe(&self, channel: &Channel, pattern: Pattern) -> Result<Option<Envelope>, Fault> {
        self.progress_no_yield();
        let found = self
            .try_match(channel, pattern, |m| m.peek(pattern).map(|unexpected| unexpected.message))
            .transpose()?;
        if found.is_none() {
            self.policy.note_empty_poll();
        }
        Ok(found)
    }

    /// Makes progress once, and takes the message that a receive would match from its channel.
    ///
    /// # Errors
    /// The fault that explains why no message can match any more.
    pub fn improbe(
        self: &Arc<Self>,
        channel: &Arc<Channel>,
        pattern: Pattern,
    ) -> Result<Option<MatchedMessage>, Fault> {
        self.progress_no_yield();
        let found = self.try_match(channel, pattern, |m| m.take_unexpected(pattern)).transpose()?;
        if found.is_none() {
            self.policy.note_empty_poll();
        }
        Ok(found.map(|unexpected| self.matched(channel, unexpected)))
    }

    /// Waits for the message that a receive would match and returns its envelope.
    ///
    /// # Errors
    /// The fault that explains why no message can match any more.
    pub fn probe(&self, channel: &Arc<Channel>, pattern: Pattern) -> Result<Envelope, Fault> {
        self.wait_for(
            &mut (),
            |()| self.try_match(channel, pattern, |m| m.peek(pattern).map(|unexpected| unexpected.message)),
            |()| WaitReason::recv("probe", channel, pattern.source, pattern.tag),
        )
    }

    /// Waits for the message that a receive would match and takes it from its channel.
    ///
    /// # Errors
    /// The fault that explains why no message can match any more.
    pub fn mprobe(
        self: &Arc<Self>,
        channel: &Arc<Channel>,
        pattern: Pattern,
        call: &'static str,
    ) -> Result<MatchedMessage, Fault> {
        let unexpected = self.wait_unexpected(channel, pattern, call)?;
        Ok(self.matched(channel, unexpected))
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
        if !self.owns(channel) {
            return Some(Err(Fault::ForeignChannel));
        }
        let found = find(&mut channel.matching());
        if let Some(found) = found {
            return Some(Ok(found));
        }
        let fault = self.ensure_matchable(channel, pattern).err()?;
        // Another thread might have delivered the last messages between the search and the check.
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
            kill_point(KillPoint::EagerMatched, self.site.rank);
            self.send_fin_if_sync(from, channel, notify);
            return true;
        }
        let buffered = || self.buffer_body(body.len(), |room: &mut [MaybeUninit<u8>]| copy::fill(room, body));
        let body = InlineBody::of(body).map_or_else(buffered, UnexpectedBody::Inline);
        let refused_message = matching.push_unexpected(Unexpected { message, from, body, sync_op: notify });
        drop(matching);
        let refused = refused_message.is_some();
        if refused && let Some(op) = notify {
            self.nack_message(from, channel.context, op);
        }
        refused
    }
}

fn to_block(body: &[u8]) -> Option<DefaultBlock> {
    let mut block = mpj_pool::global().alloc(body.len()).ok()?;
    copy::fill(&mut block.as_uninit_mut()[..body.len()], body);
    Some(block)
}

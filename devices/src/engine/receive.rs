//! Receiving: posting, early messages, bodies that have to be fetched, probes, cancelling.

use std::mem::MaybeUninit;
use std::sync::Arc;

use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use super::channel::Channel;
use super::fetch::Announced;
use super::outbox::cost;
use super::{Engine, Wait, lock};
use crate::completion::{Completion, Receive, Receiving, Started};
use crate::copy;
use crate::device::PeerId;
use crate::fault::Fault;
use crate::header::Kind;
use crate::layout::{Envelope, Target};
use crate::matching::{Held, Matching, Pattern, Posted, Short, Unexpected};
use crate::path::Path;
use crate::steps::{Step, reach};

/// A message taken from its channel by a matched probe: only its holder can receive it.
#[derive(Debug)]
pub struct Message {
    pub(super) channel: Arc<Channel>,
    pub(super) early: Unexpected,
}

/// A message taken from its channel: see [`Engine::take`].
#[derive(Debug)]
pub enum Taken {
    /// It has been received: the block that it fills from the first byte on.
    Block(Envelope, DefaultBlock),
    /// It has to be received.
    Message(Message),
}

impl Message {
    /// Returns its envelope.
    pub fn envelope(&self) -> &Envelope {
        &self.early.message
    }

    /// Whether its body has come with it, so that receiving it takes no time.
    pub fn is_here(&self) -> bool {
        !matches!(self.early.body, Held::Remote { .. })
    }
}

impl Channel {
    /// Shows `look` the messages that came before their receives, the first `most` in order of arrival, until it answers.
    pub fn find_early<T>(&self, most: usize, mut look: impl FnMut(&Envelope) -> Option<T>) -> Option<T> {
        self.matching().early().take(most).find_map(|early| look(&early.message))
    }

    /// Takes the first message that `which` picks out of those that [`find_early`](Self::find_early) would show.
    pub fn take_early(
        self: &Arc<Self>,
        most: usize,
        mut which: impl FnMut(&Envelope) -> bool,
    ) -> Option<Message> {
        let early = self.matching().take_early(most, |early| which(&early.message))?;
        Some(Message { channel: Arc::clone(self), early })
    }
}

impl Engine {
    /// Posts a receive.
    ///
    /// # Errors
    /// What is wrong with the message that is there already, or [`Fault::Dead`], [`Fault::Freed`].
    pub fn recv(&self, channel: &Arc<Channel>, pattern: Pattern, target: Target) -> Result<Started, Fault> {
        let completion = self.post(channel, pattern, Receive::new(target)).map_err(|fault| *fault)?;
        completion.started()
    }

    /// Posts a receive. If its message is there already, it has ended when it is returned.
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
        if self.path != Path::Auto {
            receiving.target().prefer(self.path);
        }
        let mut matching = channel.matching();
        if let Some(early) = matching.take_unexpected(pattern) {
            matching.local.note_early(&early);
            drop(matching);
            self.consume(channel, early, receiving);
            return Ok(completion);
        }
        if let Some(fault) = channel.broken() {
            return Err(Box::new(fault.clone()));
        }
        receiving.target().ask_for();
        matching.post(Posted::new(pattern, receiving));
        drop(matching);
        self.recheck(channel, channel.peer(pattern.source.cast_unsigned()));
        Ok(completion)
    }

    /// Receives a message taken by a matched probe; mostly it has ended when it is returned.
    pub fn recv_message(&self, message: Message, receive: Receive) -> Completion {
        let Message { channel, early } = message;
        let Receive { mut receiving, completion } = receive;
        receiving.target().prefer(self.path);
        // The channel may have been left since.
        lock(&self.left).note_early(&early);
        self.consume(&channel, early, receiving);
        completion
    }

    /// Receives a message taken by a matched probe in a block of the global pool that it fills from the first byte on: the one
    /// into which it came, as it was before its receive, so that it is not copied; one of a few bytes in a block made for it.
    ///
    /// # Errors
    /// The message back if its body lies elsewhere, or there is no block.
    pub fn recv_block(&self, message: Message) -> Result<DefaultBlock, Message> {
        let Message { channel, early } = message;
        self.take_over(&channel, early).map(|(_, block)| block).map_err(|early| Message { channel, early })
    }

    /// Waits for the message that a receive would get, and takes it out of its channel: in its block, as
    /// [`recv_block`](Self::recv_block) does, or as [`mprobe`](Self::mprobe) does.
    ///
    /// # Errors
    /// Why none will ever come.
    pub fn take(&self, channel: &Arc<Channel>, pattern: Pattern, call: &'static str) -> Result<Taken, Fault> {
        let early = self.next_early(channel, pattern, call)?;
        Ok(match self.take_over(channel, early) {
            Ok((message, block)) => Taken::Block(message, block),
            Err(early) => Taken::Message(Message { channel: Arc::clone(channel), early }),
        })
    }

    fn take_over(
        &self,
        channel: &Channel,
        mut early: Unexpected,
    ) -> Result<(Envelope, DefaultBlock), Unexpected> {
        // What gives its room back is the body that it came with.
        let block = match &early.body {
            Held::Here(short) => in_block(short.bytes()).inspect(|_| lock(&self.left).note_early(&early)),
            Held::Block(_) => match std::mem::replace(&mut early.body, Held::Empty) {
                Held::Block(block) => Some(block),
                _ => None,
            },
            _ => None,
        };
        let Some(block) = block else { return Err(early) };
        self.release_early(&early);
        self.confirm(early.from, channel, early.notify);
        Ok((early.message, block))
    }

    /// Gives a message that came early to its receive.
    pub(super) fn consume(&self, channel: &Arc<Channel>, early: Unexpected, receiving: Receiving) {
        let Some(trace) = self.trace() else { return self.give(channel, early, receiving) };
        let (begun, from, message) = (trace.now(), early.from, early.message);
        self.give(channel, early, receiving);
        self.trace_early(trace, begun, channel, from, &message);
    }

    fn give(&self, channel: &Arc<Channel>, early: Unexpected, mut receiving: Receiving) {
        self.release_early(&early);
        let Unexpected { message, from, body, notify } = early;
        let accepted = receiving.target().accepts(&message);
        let landed = match body {
            Held::Remote { op, .. } if accepted.is_err() => {
                self.trace_refused(from, channel.context, op);
                self.answer(from, channel, Kind::Done, op, 0);
                accepted
            }
            Held::Remote { op, key } => {
                let (target, ender) = receiving.into_parts();
                let announced = Announced { channel, from, message, op, key: key.as_deref() };
                return self.fetch(&announced, target, ender);
            }
            Held::Local { source, ender } => {
                if accepted.is_ok() {
                    source.copy_to(receiving.target());
                }
                drop(source);
                ender.end(Ok(message));
                // Another thread may sleep until it is received.
                self.rouse();
                accepted
            }
            body => {
                match &body {
                    Held::Here(short) if accepted.is_ok() => {
                        receiving.target().land(0, short.bytes());
                    }
                    Held::Block(block) if accepted.is_ok() => {
                        // SAFETY: the block was filled with the message's bytes when it was held.
                        #[expect(unsafe_code, reason = "see above")]
                        let bytes = unsafe { block.as_uninit()[..message.bytes].assume_init_ref() };
                        receiving.target().land(0, bytes);
                    }
                    _ => (),
                }
                self.confirm(from, channel, notify);
                let lost = matches!(body, Held::Lost).then_some(Fault::NoMemory { bytes: message.bytes });
                accepted.and_then(|()| lost.map_or(Ok(()), Err))
            }
        };
        match landed.and_then(|()| receiving.target().finish(&message)) {
            Ok(()) => receiving.landed(&message),
            Err(fault) => receiving.end(Err(fault)),
        }
    }

    /// Gives the room of an early message back to its sender.
    pub(super) fn release_early(&self, early: &Unexpected) {
        let local = matches!(early.body, Held::Remote { .. } | Held::Local { .. });
        if !local && early.from.0 != self.site.rank {
            self.release(early.from, cost(early.message.bytes));
        }
    }

    /// Throws an early message of another rank away: nobody will receive it, and its sender waits no longer.
    pub(super) fn refuse_early(&self, context: u64, early: Unexpected) {
        self.release_early(&early);
        let op = match early.body {
            Held::Remote { op, .. } => Some(op),
            _ => early.notify,
        };
        if let Some(op) = op {
            self.refuse(early.from, context, op);
        }
    }

    /// Tells the sender of a synchronous message that it was matched.
    pub(crate) fn confirm(&self, from: PeerId, channel: &Channel, notify: Option<u64>) {
        if let Some(op) = notify {
            self.answer(from, channel, Kind::Done, op, 0);
        }
    }

    /// Takes a posted receive back; returns whether it had not matched yet.
    pub fn cancel(&self, channel: &Channel, completion: &Completion) -> bool {
        let posted = channel.matching().cancel(completion);
        match posted {
            Some(posted) => {
                posted.fail(Fault::Cancelled);
                self.rouse();
                true
            }
            None => false,
        }
    }

    /// Returns the envelope of the message a receive would get, after one look for news.
    ///
    /// # Errors
    /// Why none will ever come.
    pub fn iprobe(&self, channel: &Channel, pattern: Pattern) -> Result<Option<Envelope>, Fault> {
        self.advance();
        let found =
            self.look(channel, pattern, |m| m.peek(pattern).map(|early| early.message)).transpose()?;
        if found.is_none() {
            self.policy.looked_in_vain();
        }
        Ok(found)
    }

    /// Takes the message a receive would get out of its channel, after one look for news.
    ///
    /// # Errors
    /// Why none will ever come.
    pub fn improbe(&self, channel: &Arc<Channel>, pattern: Pattern) -> Result<Option<Message>, Fault> {
        self.advance();
        let found = self.look(channel, pattern, |m| m.take_unexpected(pattern)).transpose()?;
        if found.is_none() {
            self.policy.looked_in_vain();
        }
        Ok(found.map(|early| Message { channel: Arc::clone(channel), early }))
    }

    /// Waits for the message a receive would get and returns its envelope.
    ///
    /// # Errors
    /// Why none will ever come.
    pub fn probe(&self, channel: &Arc<Channel>, pattern: Pattern) -> Result<Envelope, Fault> {
        self.wait_for(
            &mut (),
            |()| self.look(channel, pattern, |m| m.peek(pattern).map(|early| early.message)),
            |()| Wait::recv("probe", channel, pattern.source, pattern.tag),
        )
    }

    /// Waits for the message a receive would get and takes it out of its channel.
    ///
    /// # Errors
    /// Why none will ever come.
    pub fn mprobe(
        &self,
        channel: &Arc<Channel>,
        pattern: Pattern,
        call: &'static str,
    ) -> Result<Message, Fault> {
        let early = self.next_early(channel, pattern, call)?;
        Ok(Message { channel: Arc::clone(channel), early })
    }

    fn next_early(
        &self,
        channel: &Arc<Channel>,
        pattern: Pattern,
        call: &'static str,
    ) -> Result<Unexpected, Fault> {
        self.wait_for(
            &mut (),
            |()| self.look(channel, pattern, |m| m.take_unexpected(pattern)),
            |()| Wait::recv(call, channel, pattern.source, pattern.tag),
        )
    }

    /// Looks for an early message; `None` if there is none yet, an error if there will be none.
    fn look<T>(
        &self,
        channel: &Channel,
        pattern: Pattern,
        find: impl Fn(&mut Matching) -> Option<T>,
    ) -> Option<Result<T, Fault>> {
        let found = find(&mut channel.matching());
        if let Some(found) = found {
            return Some(Ok(found));
        }
        let fault = self.hopeless(channel, pattern).err()?;
        // Another thread may have taken in the last messages between the two looks.
        let found = find(&mut channel.matching());
        Some(found.ok_or(fault))
    }

    /// Lands an eager message that has just arrived; returns whether it takes no more room.
    #[inline]
    pub(crate) fn arrive(
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
            posted.receive(&message, |target| {
                target.land(0, body);
            });
            reach(Step::EagerMatched, self.site.rank);
            self.confirm(from, channel, notify);
            return true;
        }
        let hold = || self.hold(body.len(), |room: &mut [MaybeUninit<u8>]| copy::fill(room, body));
        let body = Short::of(body).map_or_else(hold, Held::Here);
        let back = matching.keep(Unexpected { message, from, body, notify });
        drop(matching);
        let refused = back.is_some();
        if refused && let Some(op) = notify {
            self.refuse(from, channel.context, op);
        }
        refused
    }
}

/// Copies a short body into a block of the global pool, if there is one.
fn in_block(body: &[u8]) -> Option<DefaultBlock> {
    let mut block = mpj_pool::global().alloc(body.len()).ok()?;
    copy::fill(&mut block.as_uninit_mut()[..body.len()], body);
    Some(block)
}

//! Messages that a matched probe has taken from their channels.

use std::ops::Deref;
use std::sync::Arc;

use mpj_pool::DefaultBlock;

use super::channel::Channel;
use super::{Engine, lock};
use crate::completion::{Completion, Receive};
use crate::matching::{Unexpected, UnexpectedBody};
use crate::message::Envelope;

/// A message that a matched probe has taken from its channel. Only the owner of this value can receive it.
#[derive(Debug)]
pub struct MatchedMessage {
    /// The engine of the channel. Another rank's engine would request the body from the wrong peer.
    pub(super) engine: Arc<Engine>,
    pub(super) channel: ExtractedFrom,
    pub(super) unexpected: Unexpected,
}

/// The channel from which a message has been extracted. The engine keeps a freed channel in its tables while such a
/// value exists, because the DATA frames of the message name that channel.
#[derive(Debug)]
pub(super) struct ExtractedFrom(Arc<Channel>);

impl ExtractedFrom {
    pub(super) fn new(channel: &Arc<Channel>) -> ExtractedFrom {
        channel.add_extracted();
        ExtractedFrom(Arc::clone(channel))
    }
}

impl Deref for ExtractedFrom {
    type Target = Arc<Channel>;

    fn deref(&self) -> &Arc<Channel> {
        &self.0
    }
}

impl Drop for ExtractedFrom {
    fn drop(&mut self) {
        self.0.remove_extracted();
    }
}

/// A message taken from its channel by [`Engine::mprobe_or_recv`].
#[derive(Debug)]
pub enum Matched {
    /// The message was received into this block, from the first byte on.
    Block(Envelope, DefaultBlock),
    /// The message still has to be received.
    Message(MatchedMessage),
}

impl MatchedMessage {
    /// Returns the envelope.
    pub fn envelope(&self) -> &Envelope {
        &self.unexpected.message
    }

    /// Returns the engine of the rank that has matched the message.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns whether the body need not be fetched from the sender, so that a receive completes at once.
    pub fn has_body(&self) -> bool {
        !matches!(self.unexpected.body, UnexpectedBody::Rendezvous { .. })
    }

    /// Receives the message. If the body is already here, the receive is complete on return.
    pub fn recv(self, receive: Receive) -> Completion {
        let MatchedMessage { engine, channel, unexpected } = self;
        let Receive { mut receiving, completion } = receive;
        receiving.target().or_path(engine.path);
        lock(&engine.freed_traffic).note_unexpected(&unexpected);
        engine.deliver_unexpected(&channel, unexpected, receiving);
        completion
    }

    /// Receives the message into a block of the global pool, from the first byte on. If the body was buffered in a
    /// block, this is that block, without a copy; a short body is copied into a new block.
    ///
    /// # Errors
    /// Returns the message if its body is not buffered at this rank, or if no block could be allocated.
    pub fn into_block(self) -> Result<DefaultBlock, MatchedMessage> {
        let MatchedMessage { engine, channel, unexpected } = self;
        let taken = engine.take_block(&channel, unexpected);
        taken.map(|(_, block)| block).map_err(|unexpected| MatchedMessage { engine, channel, unexpected })
    }
}

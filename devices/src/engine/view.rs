//! Messages that are viewed in place, in memory that their sender has exported.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::Engine;
use super::channel::Channel;
use super::matched::MatchedMessage;
use crate::device::{PeerId, PostError, View};
use crate::header::FrameKind;
use crate::matching::UnexpectedBody;
use crate::message::Envelope;

/// A message in the memory of its sender. Dropping it returns the memory to the sender, on any thread and even after
/// this rank has left.
pub struct ViewedMessage {
    message: Envelope,
    view: Option<View>,
    is_shared: bool,
    engine: Weak<Engine>,
    channel: Arc<Channel>,
    from: PeerId,
    sender_op: u64,
}

impl ViewedMessage {
    /// Returns the envelope of the message.
    pub fn envelope(&self) -> &Envelope {
        &self.message
    }

    /// Returns whether another process can write the bytes ([`Caps::shared_views`](crate::Caps::shared_views)). It must
    /// not do so before this value is dropped.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the bytes of the message.
    pub fn bytes(&self) -> &[u8] {
        self.view.as_ref().map_or(&[], View::bytes)
    }
}

impl Drop for ViewedMessage {
    fn drop(&mut self) {
        // End the view before the sender is notified.
        drop(self.view.take());
        if let Some(engine) = self.engine.upgrade().filter(|engine| !engine.closed.load(Ordering::SeqCst)) {
            engine.send_reply(self.from, &self.channel, FrameKind::Fin, self.sender_op, 0);
        }
    }
}

impl fmt::Debug for ViewedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewedMessage({} B of {:?})", self.message.bytes, self.from)
    }
}

impl MatchedMessage {
    /// Receives the message without a copy, by viewing it in the sender's exported memory; if `only_shared`, only if
    /// the view [is shared](ViewedMessage::is_shared).
    ///
    /// # Errors
    /// Returns the message if it cannot be viewed, for example because its sender has not exported it.
    pub fn view(self, only_shared: bool) -> Result<ViewedMessage, MatchedMessage> {
        let MatchedMessage { engine, channel, unexpected } = &self;
        let UnexpectedBody::Rendezvous { op, key: Some(key) } = &unexpected.body else { return Err(self) };
        let (from, bytes) = (unexpected.from, unexpected.message.bytes);
        let Ok(peer) = engine.peer(from) else { return Err(self) };
        let mut out = peer.outbox();
        let is_shared = out.caps.shared_views;
        if only_shared && !is_shared {
            drop(out);
            return Err(self);
        }
        // SAFETY: this peer of this engine has sent the key in the RTS of a message of this length.
        #[expect(unsafe_code, reason = "see above")]
        let view = unsafe { out.endpoint.view(key, bytes) };
        if view.is_ok() {
            out.sent.zero_copy.add(bytes);
        }
        drop(out);
        match view {
            Ok(view) => {
                engine.trace_received(channel, from, *op, &unexpected.message, "body viewed in place");
                Ok(ViewedMessage {
                    message: unexpected.message,
                    view: Some(view),
                    is_shared,
                    engine: Arc::downgrade(engine),
                    channel: Arc::clone(channel),
                    from,
                    sender_op: *op,
                })
            }
            Err(error) => {
                if let PostError::Broken(_) = error {
                    engine.endpoint_broken(peer, error);
                }
                Err(self)
            }
        }
    }
}

impl Engine {
    /// When this rank leaves, completes the sends whose messages are known to be received: viewed, or completely
    /// copied. The device keeps viewed memory alive until the receiver drops its view.
    pub(super) fn complete_received_sends(&self) {
        for channel in self.all_channels() {
            let received = channel.ops().take_rendezvous_sends(|op| self.is_received_send(op));
            for (op, message) in received {
                op.complete(Ok(message));
            }
        }
    }
}

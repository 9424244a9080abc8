//! Cancels pending operations, for example when a collective or a scope fails.

use super::Engine;
use super::channel::Channel;
use super::peer::{DeferredSend, Peer, QueuedFrame};
use super::send_self::end_self_send;
use crate::completion::{Completer, Completion};
use crate::fault::Fault;
use crate::matching::UnexpectedBody;

impl Engine {
    /// Cancels a pending operation if possible, and returns whether it did. The operation then fails with
    /// [`Fault::Cancelled`]: at once, unless its peer might be reading the memory.
    ///
    /// * A posted receive is cancelled as by [`cancel_receive`](Self::cancel_receive), a matched one is not.
    /// * A rendezvous message is cancelled unless its receiver has requested the body. A receiver that requests the
    ///   body later, or is still copying it, fails with [`Fault::SendCancelled`]. If the receiver views the body in
    ///   place, or is known to have copied it, the send completes instead.
    /// * Any message is cancelled while its peer is not connected, and an eager one while its frame is queued. A posted
    ///   synchronous eager send fails, too, but the peer might receive the message nevertheless.
    /// * A message to this rank itself is cancelled while it is unexpected.
    pub fn cancel(&self, channel: &Channel, completion: &Completion) -> bool {
        if !self.owns(channel) {
            return false;
        }
        if self.cancel_receive(channel, completion) {
            return true;
        }
        // Meanwhile another thread might move a message from a queue to the operations, but never back.
        let taken = self.cancel_self_send(channel, completion)
            || self.cancel_queued(channel, completion)
            || self.cancel_awaiting_reply(channel, completion);
        if taken {
            self.wake_all();
        }
        taken
    }

    fn cancel_self_send(&self, channel: &Channel, completion: &Completion) -> bool {
        let unexpected = channel.matching().take_self_send_of(completion);
        let Some(UnexpectedBody::SelfSend { source, completer }) =
            unexpected.map(|unexpected| unexpected.body)
        else {
            return false;
        };
        end_self_send(source, completer, Err(Fault::Cancelled));
        true
    }

    /// Cancels a send that waits for a reply. If the receiver views the message, or has copied it, the send completes.
    fn cancel_awaiting_reply(&self, channel: &Channel, completion: &Completion) -> bool {
        let Some((number, op)) = channel.ops().take_send(completion) else { return false };
        if let Some(peer) = self.peers.get(op.peer()) {
            // The frame of the message might still be queued, and keep the memory.
            let is_ours =
                |frame: &QueuedFrame| frame.context == channel.context && frame.head.op.get() == number;
            drop(self.take_queued(peer, is_ours));
        }
        self.fail_op(op, Fault::Cancelled)
    }

    /// Cancels a message that is queued because the endpoint is full, or because its peer is not connected.
    fn cancel_queued(&self, channel: &Channel, completion: &Completion) -> bool {
        let is_ours = |completer: &Completer| completer.is_for(completion);
        let members = self.peers.iter().filter(|peer| channel.group().rank(peer.id).is_some());
        for peer in members {
            if let Some(DeferredSend { source, completer, .. }) =
                self.take_deferred(peer, |deferred| is_ours(&deferred.completer))
            {
                drop(source);
                completer.complete(Err(Fault::Cancelled));
                return true;
            }
            let frame = self.take_queued(peer, |frame| {
                frame.completes.as_ref().is_some_and(|(completer, _)| is_ours(completer))
            });
            if let Some(QueuedFrame { body, completes: Some((completer, _)), .. }) = frame {
                drop(body);
                completer.complete(Err(Fault::Cancelled));
                return true;
            }
        }
        false
    }

    fn take_deferred(&self, peer: &Peer, which: impl Fn(&DeferredSend) -> bool) -> Option<DeferredSend> {
        let mut out = peer.outbox();
        let was_idle = out.is_idle();
        let at = out.deferred_sends.iter().position(which)?;
        let deferred = out.deferred_sends.remove(at)?;
        self.note_busy(was_idle, &mut out);
        Some(deferred)
    }

    fn take_queued(&self, peer: &Peer, which: impl Fn(&QueuedFrame) -> bool) -> Option<QueuedFrame> {
        let mut out = peer.outbox();
        let was_idle = out.is_idle();
        let at = out.queued_frames.iter().position(which)?;
        let frame = out.queued_frames.remove(at)?;
        out.refund(&frame);
        self.note_busy(was_idle, &mut out);
        Some(frame)
    }
}

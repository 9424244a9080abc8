//! Taking back what has been started and not matched, as when a collective or a scope gives up.

use super::Engine;
use super::channel::Channel;
use super::peer::{DeferredSend, Peer, QueuedFrame};
use crate::completion::{Completer, Completion};
use crate::fault::Fault;
use crate::matching::UnexpectedBody;

impl Engine {
    /// Takes an operation back that has not matched; returns whether it was. It ends with [`Fault::Cancelled`] then: at
    /// once, unless its peer may be reading the memory just now. What has matched, or has ended, goes to its end.
    ///
    /// * A posted receive is taken back as by [`cancel`](Self::cancel).
    /// * An announced message is taken back unless its receiver has asked for the body or views it in place: a receiver that
    ///   asks later, or has not copied all of it, fails with [`Fault::SendCancelled`].
    /// * A message is taken back while its peer is not met, an eager one while it waits for room. A synchronous one that
    ///   has gone cannot be: nobody waits for its match any more, and it may still be received.
    /// * A message to this rank itself is taken back while it waits for its receive.
    pub fn cancel(&self, channel: &Channel, completion: &Completion) -> bool {
        if self.cancel_receive(channel, completion) {
            return true;
        }
        // Meanwhile a message may be queued no more, and wait for its answer; never the other way.
        let taken = self.withdraw_local(channel, completion)
            || self.withdraw_queued(channel, completion)
            || self.withdraw_op(channel, completion);
        if taken {
            self.wake_all();
        }
        taken
    }

    /// Takes back a synchronous message to this rank itself.
    fn withdraw_local(&self, channel: &Channel, completion: &Completion) -> bool {
        let early = channel.matching().take_self_send_of(completion);
        let Some(UnexpectedBody::SelfSend { source, ender }) = early.map(|early| early.body) else {
            return false;
        };
        drop(source);
        ender.complete(Err(Fault::Cancelled));
        true
    }

    /// Takes back an announced or synchronous message whose answer has not come. If its receiver views it in place already, it
    /// ends as sent.
    fn withdraw_op(&self, channel: &Channel, completion: &Completion) -> bool {
        let Some((number, op)) = channel.ops().take_send(completion) else { return false };
        if let Some(peer) = self.peers.get(op.peer()) {
            // Its frame may wait for room, and hold the memory.
            let ours =
                |frame: &QueuedFrame| frame.context == channel.context && frame.head.op.get() == number;
            drop(self.take_waiting(peer, ours));
        }
        self.fail_op(op, Fault::Cancelled)
    }

    /// Takes back a message that waits for room, or for its peer to be met.
    fn withdraw_queued(&self, channel: &Channel, completion: &Completion) -> bool {
        let ours = |ender: &Completer| ender.is_for(completion);
        let members = self.peers.iter().filter(|peer| channel.group().rank(peer.id).is_some());
        for peer in members {
            if let Some(DeferredSend { source, ender, .. }) =
                self.take_unsent(peer, |unsent| ours(&unsent.ender))
            {
                drop(source);
                ender.complete(Err(Fault::Cancelled));
                return true;
            }
            let frame =
                self.take_waiting(peer, |w| w.completes.as_ref().is_some_and(|(ender, _)| ours(ender)));
            if let Some(QueuedFrame { body, completes: Some((ender, _)), .. }) = frame {
                drop(body);
                ender.complete(Err(Fault::Cancelled));
                return true;
            }
        }
        false
    }

    /// Takes a message to a peer that is not met out of its outbox.
    fn take_unsent(&self, peer: &Peer, which: impl Fn(&DeferredSend) -> bool) -> Option<DeferredSend> {
        let mut out = peer.outbox();
        let was_idle = out.is_idle();
        let at = out.unsent.iter().position(which)?;
        let unsent = out.unsent.remove(at)?;
        self.note_busy(was_idle, &mut out);
        Some(unsent)
    }

    /// Takes a frame that waits for room out of an outbox, and gives its eager room back.
    fn take_waiting(&self, peer: &Peer, which: impl Fn(&QueuedFrame) -> bool) -> Option<QueuedFrame> {
        let mut out = peer.outbox();
        let was_idle = out.is_idle();
        let at = out.waiting.iter().position(which)?;
        let frame = out.waiting.remove(at)?;
        out.refund(&frame);
        self.note_busy(was_idle, &mut out);
        Some(frame)
    }
}

//! Messages of a rank to itself.

use super::Engine;
use super::channel::Channel;
use super::send::{Mode, Sent};
use crate::completion::{Completer, Outcome, Started, pair};
use crate::deferred_drop;
use crate::device::PeerId;
use crate::fault::Fault;
use crate::matching::{Posted, Unexpected, UnexpectedBody};
use crate::message::{Envelope, MessageTag, Source};

impl Engine {
    #[inline(never)]
    pub(super) fn send_standard_to_self(
        &self,
        channel: &Channel,
        tag: MessageTag,
        source: &mut Source,
    ) -> Result<Sent, Box<Fault>> {
        if let Some(fault) = channel.broken() {
            return Err(Box::new(fault.clone()));
        }
        let message = source.envelope(channel.rank(), tag);
        match self.send_self(channel, message, source, Mode::Standard) {
            Ok(_) => Ok(Sent::Posted),
            Err(fault) => Err(Box::new(fault)),
        }
    }

    pub(super) fn send_self(
        &self,
        channel: &Channel,
        message: Envelope,
        source: &mut Source,
        mode: Mode,
    ) -> Result<Started, Fault> {
        let mut matching = channel.matching();
        if let Some(posted) = matching.take_posted(&message) {
            matching.local.to_self.add(message.bytes);
            drop(matching);
            return Ok(self.deliver_to_self(posted, message, source));
        }
        let (body, started) = match mode {
            // A program that sends to itself before it receives relies on a copy, whatever the size.
            Mode::Standard => {
                drop(matching);
                let body = self.buffer_body(message.bytes, |room| {
                    source.pack(0, room);
                });
                if matches!(body, UnexpectedBody::NoMemory) {
                    return Err(Fault::NoMemory { bytes: message.bytes });
                }
                matching = channel.matching();
                // Another thread might have posted a matching receive meanwhile.
                if let Some(posted) = matching.take_posted(&message) {
                    matching.local.to_self.add(message.bytes);
                    drop(matching);
                    return Ok(self.deliver_to_self(posted, message, source));
                }
                (body, Started::Done(message))
            }
            Mode::Synchronous => {
                let (completer, completion) = pair();
                (
                    UnexpectedBody::SelfSend { source: Box::new(source.take()), completer },
                    Started::Pending(completion),
                )
            }
        };
        matching.local.to_self.add(message.bytes);
        let unexpected = Unexpected { message, from: PeerId(self.site.rank), body, sync_op: None };
        let refused = matching.push_unexpected(unexpected);
        drop(matching);
        // A thread that breaks the channel, or closes the rank, first sets its flag and then fails the queued messages.
        // So either it finds this message, or this thread sees the flag.
        match channel.broken() {
            Some(fault) => fail_self_sends(channel, fault),
            None if self.is_closed() => fail_self_sends(channel, &Fault::Cancelled),
            None => (),
        }
        self.wake_all();
        match refused {
            None => Ok(started),
            Some(_) => Err(Fault::Freed),
        }
    }

    fn deliver_to_self(&self, posted: Posted, message: Envelope, source: &Source) -> Started {
        // The completion might drop the buffer of the receive, which is foreign code: see `end_self_send`.
        let hold = deferred_drop::DeferDrops::begin();
        posted.complete_with(&message, |target| source.copy_to(target));
        drop(hold);
        self.wake_all();
        deferred_drop::run_deferred_drops();
        Started::Done(message)
    }
}

/// Completes a synchronous message to this rank. The drop of its buffer is foreign code, whose panic must not end the
/// call, which is unrelated to it.
pub(super) fn end_self_send(source: Box<Source>, completer: Completer, outcome: Outcome) {
    let hold = deferred_drop::DeferDrops::begin();
    drop(source);
    completer.complete(outcome);
    drop(hold);
    deferred_drop::run_deferred_drops();
}

pub(super) fn fail_self_sends(channel: &Channel, fault: &Fault) {
    let failed = channel
        .matching()
        .drain_unexpected(|unexpected| matches!(unexpected.body, UnexpectedBody::SelfSend { .. }));
    for unexpected in failed {
        if let UnexpectedBody::SelfSend { source, completer } = unexpected.body {
            end_self_send(source, completer, Err(fault.clone()));
        }
    }
}

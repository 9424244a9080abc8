//! The receiving side for all ranks that send to this one.

use std::sync::Arc;

use super::hub::{Mailbox, SmInletQueue};
use super::notify::SmNotifier;
use crate::device::{Inlet, PeerId, Sink};
use crate::ring::RingReceiver;

#[derive(Debug)]
pub(super) struct SmInlet {
    mailbox: Arc<Mailbox>,
    seen: usize,
    rings: Vec<RingReceiver<SmNotifier>>,
}

impl SmInlet {
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        SmInlet { mailbox, seen: 0, rings: Vec::new() }
    }
}

impl SmInlet {
    #[cold]
    fn collect(&mut self, delivered: usize, sink: &mut dyn Sink) -> usize {
        self.seen = delivered;
        let SmInletQueue { mut rings, quiesced } = self.mailbox.drain();
        self.rings.append(&mut rings);
        quiesced.iter().for_each(|op| sink.quiesced(*op));
        quiesced.len()
    }
}

impl Drop for SmInlet {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

// SAFETY: a ring writes only where the sink says (`ring::consumer`). Only quiesces complete later, each of them once.
unsafe impl Inlet for SmInlet {
    #[inline]
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        let delivered = self.mailbox.delivered();
        let from_mailbox = if delivered != self.seen { self.collect(delivered, sink) } else { 0 };
        from_mailbox + self.rings.iter_mut().map(|ring| ring.drain(sink)).sum::<usize>()
    }

    fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        self.rings.iter_mut().for_each(|ring| ring.abort_body(peer, sink));
    }
}

//! The receiving side for all ranks that send to this one, and this rank's help with copies that they make out of its
//! memory.

use std::sync::Arc;

use super::coop_copy::SmCoopCopy;
use super::hub::{Mailbox, SmInletQueue};
use super::notify::SmNotifier;
use crate::device::{Inlet, PeerId, Sink};
use crate::ring::RingReceiver;

#[derive(Debug)]
pub(super) struct SmInlet {
    mailbox: Arc<Mailbox>,
    seen: usize,
    rings: Vec<RingReceiver<SmNotifier>>,
    copies: Vec<Arc<SmCoopCopy>>,
    /// Whether the last call of `help` has copied a piece, so that more might be left.
    has_helped: bool,
}

impl SmInlet {
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        SmInlet { mailbox, seen: 0, rings: Vec::new(), copies: Vec::new(), has_helped: false }
    }
}

impl SmInlet {
    #[cold]
    fn collect(&mut self, delivered: usize, sink: &mut dyn Sink) -> usize {
        self.seen = delivered;
        let SmInletQueue { mut rings, mut copies, quiesced } = self.mailbox.drain();
        self.rings.append(&mut rings);
        self.copies.append(&mut copies);
        quiesced.iter().for_each(|op| sink.quiesced(*op));
        quiesced.len() + self.help()
    }

    /// Helps with at most one piece of each copy, because the rings must be polled, too. Returns the number of pieces.
    fn help(&mut self) -> usize {
        let helped = self.copies.iter().filter(|copy| copy.help()).count();
        self.has_helped = helped > 0;
        helped
    }
}

impl Drop for SmInlet {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

// SAFETY: a ring writes only where the sink says (`ring::consumer`). Only quiesces are in progress; each comes once.
unsafe impl Inlet for SmInlet {
    #[inline]
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        let delivered = self.mailbox.delivered();
        let is_new = delivered != self.seen || self.has_helped;
        let from_mailbox = if is_new { self.collect(delivered, sink) } else { 0 };
        from_mailbox + self.rings.iter_mut().map(|ring| ring.drain(sink)).sum::<usize>()
    }

    fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        self.rings.iter_mut().for_each(|ring| ring.abort_body(peer, sink));
    }
}

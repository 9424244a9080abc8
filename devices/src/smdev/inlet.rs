//! The receiving end for all threads that send to this rank, and the help with copies that they make out of its memory.

use std::sync::Arc;

use super::coop_copy::CoopCopy;
use super::hub::{InletQueue, Mailbox};
use super::notify::SmNotifier;
use crate::device::{Inlet, PeerId, Sink};
use crate::ring::RingReceiver;

/// The receiving end of all rings to this rank.
#[derive(Debug)]
pub(super) struct SmInlet {
    port: Arc<Mailbox>,
    seen: usize,
    rings: Vec<RingReceiver<SmNotifier>>,
    copies: Vec<Arc<CoopCopy>>,
    /// Whether the last call of `help` copied a piece, so that more might be left.
    helps: bool,
}

impl SmInlet {
    pub(super) fn new(port: Arc<Mailbox>) -> Self {
        SmInlet { port, seen: 0, rings: Vec::new(), copies: Vec::new(), helps: false }
    }
}

impl SmInlet {
    #[cold]
    fn collect(&mut self, delivered: usize, sink: &mut dyn Sink) -> usize {
        self.seen = delivered;
        let InletQueue { mut rings, mut copies, quiet } = self.port.drain();
        self.rings.append(&mut rings);
        self.copies.append(&mut copies);
        quiet.iter().for_each(|op| sink.quiesced(*op));
        quiet.len() + self.help()
    }

    /// Copies at most one piece of each copy, because frames wait to be polled.
    fn help(&mut self) -> usize {
        let helped = self.copies.iter().filter(|copy| copy.help()).count();
        self.helps = helped > 0;
        helped
    }
}

impl Drop for SmInlet {
    fn drop(&mut self) {
        self.port.close();
    }
}

// SAFETY: a ring writes where the sink says and no further, see `ring::consumer`. No operation is left in progress.
unsafe impl Inlet for SmInlet {
    #[inline]
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        let delivered = self.port.delivered();
        let is_new = delivered != self.seen || self.helps;
        let news = if is_new { self.collect(delivered, sink) } else { 0 };
        news + self.rings.iter_mut().map(|ring| ring.drain(sink)).sum::<usize>()
    }

    fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        self.rings.iter_mut().for_each(|ring| ring.bury(peer, sink));
    }
}

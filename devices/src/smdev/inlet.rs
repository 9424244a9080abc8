//! The receiving end for all threads that have sent to this one.

use std::sync::Arc;

use super::bell::LateBell;
use super::hub::{News, Port};
use crate::device::{Inlet, PeerId, Sink};
use crate::ring::Incoming;

/// All rings that end here.
#[derive(Debug)]
pub(super) struct SmInlet {
    port: Arc<Port>,
    seen: usize,
    rings: Vec<Incoming<LateBell>>,
}

impl SmInlet {
    pub(super) fn new(port: Arc<Port>) -> Self {
        SmInlet { port, seen: 0, rings: Vec::new() }
    }
}

impl SmInlet {
    #[cold]
    fn collect(&mut self, delivered: usize, sink: &mut dyn Sink) -> usize {
        self.seen = delivered;
        let News { mut rings, quiet } = self.port.collect();
        self.rings.append(&mut rings);
        quiet.iter().for_each(|op| sink.quiet(*op));
        quiet.len()
    }
}

impl Drop for SmInlet {
    fn drop(&mut self) {
        self.port.close();
    }
}

// SAFETY: a ring writes where the sink says, and what it was told of: `ring::consumer`. No move is started.
unsafe impl Inlet for SmInlet {
    #[inline]
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        let delivered = self.port.delivered();
        let news = if delivered == self.seen { 0 } else { self.collect(delivered, sink) };
        news + self.rings.iter_mut().map(|ring| ring.drain(sink)).sum::<usize>()
    }

    fn bury(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        self.rings.iter_mut().for_each(|ring| ring.bury(peer, sink));
    }
}

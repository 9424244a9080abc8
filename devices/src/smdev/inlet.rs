//! The receiving end for all threads that have sent to this one.

use std::sync::Arc;

use super::hub::Port;
use crate::device::{Inlet, Sink};
use crate::ring::Incoming;

/// All rings that end here.
#[derive(Debug)]
pub(super) struct SmInlet {
    port: Arc<Port>,
    seen: usize,
    rings: Vec<Incoming>,
}

impl SmInlet {
    pub(super) fn new(port: Arc<Port>) -> Self {
        SmInlet { port, seen: 0, rings: Vec::new() }
    }
}

impl Drop for SmInlet {
    fn drop(&mut self) {
        self.port.close();
    }
}

// SAFETY: a ring hands over whole frames: no body begins.
unsafe impl Inlet for SmInlet {
    #[inline]
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        self.seen = self.port.collect(self.seen, &mut self.rings);
        self.rings.iter_mut().map(|ring| ring.drain(sink)).sum()
    }
}

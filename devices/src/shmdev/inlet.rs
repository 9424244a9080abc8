//! The receiving end for all processes that have sent to this one.

use std::sync::Arc;

use super::Place;
use crate::device::{Inlet, PeerId, Sink};
use crate::ring::{Consumer, Incoming};

/// All rings that end here and are in use.
#[derive(Debug)]
pub(super) struct ShmInlet {
    place: Place,
    seen: u32,
    rings: Vec<Incoming>,
}

impl ShmInlet {
    pub(super) fn new(place: Place) -> Self {
        ShmInlet { place, seen: 0, rings: Vec::new() }
    }

    /// Takes in the senders that have said hello since the last time.
    #[cold]
    fn greet(&mut self, hellos: u32) {
        self.seen = hellos;
        let Place { segment, ranks, index, .. } = &self.place;
        for (from, rank) in (0..segment.ranks()).zip(ranks.iter()) {
            let peer = PeerId(rank);
            if !segment.has_said_hello(from, *index) || self.rings.iter().any(|ring| ring.from() == peer) {
                continue;
            }
            let consumer = Consumer::new(segment.ring(from, *index), Arc::new(segment.fragments(from)));
            self.rings.push(Incoming::new(peer, consumer, self.place.bell(peer, from).late()));
        }
    }
}

// SAFETY: a ring hands over whole frames: no body begins.
unsafe impl Inlet for ShmInlet {
    #[inline]
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        let hellos = self.place.segment.hellos(self.place.index);
        if hellos != self.seen {
            self.greet(hellos);
        }
        self.rings.iter_mut().map(|ring| ring.drain(sink)).sum()
    }
}

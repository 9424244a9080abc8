//! The receiving end of a ring, for an [`Inlet`](crate::device::Inlet).

use super::{Consumer, LateBell, Malformed};
use crate::device::{PeerId, Sink};

/// Cells taken from one ring before the next ring has its turn.
const TURN: usize = 64;

/// A ring that starts at a peer and ends here.
#[derive(Debug)]
pub(crate) struct Incoming {
    from: PeerId,
    consumer: Consumer,
    /// The sender's doorbell, rung when it waits for room.
    bell: LateBell,
    /// Whether the sender has written what makes no sense: the ring is not read any more.
    is_over: bool,
}

impl Incoming {
    pub(crate) fn new(from: PeerId, consumer: Consumer, bell: LateBell) -> Self {
        Incoming { from, consumer, bell, is_over: false }
    }

    pub(crate) fn from(&self) -> PeerId {
        self.from
    }

    /// Hands the frames of the ring to a sink; returns how many cells they took.
    #[inline]
    pub(crate) fn drain(&mut self, sink: &mut dyn Sink) -> usize {
        let Incoming { from, consumer, bell, is_over } = self;
        let mut cells = 0;
        while cells < TURN && !*is_over {
            match consumer.receive(|head, body| sink.frame(*from, head, body)) {
                Ok(true) => cells += 1,
                Ok(false) => break,
                Err(why) => {
                    *is_over = true;
                    end(*from, why, sink);
                }
            }
        }
        if consumer.is_awaited()
            && let Some(bell) = bell.get()
        {
            bell.wake();
        }
        cells
    }
}

#[cold]
fn end(from: PeerId, why: Malformed, sink: &mut dyn Sink) {
    sink.lost(from, &why.to_string());
}

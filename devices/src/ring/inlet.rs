//! The receiving end of a ring, for an [`Inlet`](crate::device::Inlet).

use super::{Bell, Consumer, Malformed};
use crate::device::{PeerId, Sink};

/// Cells taken from one ring before the next ring has its turn.
pub(crate) const TURN: usize = 64;

/// A ring that starts at a peer and ends here.
#[derive(Debug)]
pub(crate) struct Incoming<B> {
    from: PeerId,
    consumer: Consumer,
    /// The sender's, which is woken when it waits for room.
    bell: B,
    /// Whether the sender has written what makes no sense: the ring is not read any more.
    is_over: bool,
}

impl<B: Bell> Incoming<B> {
    pub(crate) fn new(from: PeerId, consumer: Consumer, bell: B) -> Self {
        Incoming { from, consumer, bell, is_over: false }
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
        if consumer.is_awaited() {
            bell.wake();
        }
        cells
    }
}

#[cold]
fn end(from: PeerId, why: Malformed, sink: &mut dyn Sink) {
    sink.lost(from, &why.to_string());
}

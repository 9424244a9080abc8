//! The receiving end of a ring, for an [`Inlet`](crate::device::Inlet).

use std::sync::Arc;

use super::{Area, Consumer, LateBell, Received};
use crate::device::{PeerId, Sink};

/// Frames taken from one ring before the next ring has its turn.
const TURN: usize = 64;

/// A ring that starts at a peer and ends here.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) from: PeerId,
    pub(crate) consumer: Consumer,
    pub(crate) area: Arc<Area>,
    /// The sender's doorbell, rung when it waits for room.
    pub(crate) bell: LateBell,
}

/// Hands the frames of a ring to a sink; returns how many there were.
#[inline]
pub(crate) fn drain(ring: &mut Incoming, sink: &mut dyn Sink) -> usize {
    let Incoming { from, consumer, area, bell } = ring;
    let mut starved = false;
    let mut frames = 0;
    while frames < TURN {
        let take = |received: Received<'_>| match received {
            Received::Inline(head, body) => sink.frame(*from, head, body),
            Received::Fragment(head, index, len) => {
                // SAFETY: the index came to us through the ring, and we give it back only below.
                let body = unsafe { area.received(index, len as usize) };
                if let Some(body) = body {
                    sink.frame(*from, head, body);
                    area.give_back(index, || starved = true);
                }
            }
        };
        let mut room = false;
        if !consumer.receive(take, || room = true) {
            break;
        }
        starved |= room;
        frames += 1;
    }
    if starved && let Some(bell) = bell.get() {
        bell.wake();
    }
    frames
}

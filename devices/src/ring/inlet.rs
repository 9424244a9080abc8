//! The receiving end of a ring, for an [`Inlet`](crate::device::Inlet).

use super::consumer::FrameHandler;
use super::{Consumer, Malformed, PeerNotifier};
use crate::device::{Landing, PeerId, Sink};

/// Cells that are taken from one ring before the next ring is polled.
pub(crate) const CELLS_PER_POLL: usize = 64;

/// The receiving side of a ring that starts at a peer.
#[derive(Debug)]
pub(crate) struct RingReceiver<B> {
    from: PeerId,
    consumer: Consumer,
    /// Wakes the sender when it waits for room.
    bell: B,
    /// Whether the ring is not read any more, because of a malformed cell or the death of the sender.
    is_over: bool,
}

impl<B: PeerNotifier> RingReceiver<B> {
    pub(crate) fn new(from: PeerId, consumer: Consumer, bell: B) -> Self {
        RingReceiver { from, consumer, bell, is_over: false }
    }

    /// Hands the frames of the ring to a sink; returns the number of cells that they took.
    #[inline]
    pub(crate) fn drain(&mut self, sink: &mut dyn Sink) -> usize {
        let RingReceiver { from, consumer, bell, is_over } = self;
        let mut cells = 0;
        while cells < CELLS_PER_POLL && !*is_over {
            match consumer.receive(&mut SinkAdapter { from: *from, sink: &mut *sink }) {
                Ok(true) => cells += 1,
                Ok(false) => break,
                Err(why) => {
                    *is_over = true;
                    end(*from, why, sink);
                }
            }
        }
        if consumer.sender_waits() {
            bell.wake_sender();
        }
        cells
    }

    /// Reports the peer as lost if a word was overwritten that the sender reads.
    pub(crate) fn verify(&mut self, sink: &mut dyn Sink) {
        if !self.is_over
            && let Err(why) = self.consumer.verify()
        {
            self.is_over = true;
            end(self.from, why, sink);
        }
    }

    /// Ends a body that was begun by a peer that has died, and reads no more of its ring.
    pub(crate) fn bury(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        if self.from == peer && self.consumer.is_within() && !self.is_over {
            self.is_over = true;
            sink.peer_lost(peer, "it died in the middle of a message");
        }
    }
}

/// Passes the frames of one peer to a sink.
struct SinkAdapter<'a> {
    from: PeerId,
    sink: &'a mut dyn Sink,
}

impl FrameHandler for SinkAdapter<'_> {
    #[inline]
    fn frame(&mut self, head: &[u8], body: &[u8]) {
        self.sink.frame(self.from, head, body);
    }

    fn begin(&mut self, head: &[u8], len: usize) -> Landing {
        self.sink.begin(self.from, head, len)
    }

    fn piece(&mut self, bytes: &[u8]) {
        self.sink.piece(self.from, bytes);
    }

    fn landed(&mut self) {
        self.sink.landed(self.from);
    }
}

#[cold]
fn end(from: PeerId, why: Malformed, sink: &mut dyn Sink) {
    sink.peer_lost(from, &why.to_string());
}

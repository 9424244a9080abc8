//! The receiving side of a ring, for an [`Inlet`](crate::device::Inlet).

use super::consumer::FrameHandler;
use super::{Consumer, Malformed, PeerNotifier};
use crate::device::{Landing, PeerId, Sink};

/// Maximum number of cells that are read from one ring before the next ring is polled.
pub(crate) const CELLS_PER_POLL: usize = 64;

#[derive(Debug)]
pub(crate) struct RingReceiver<B> {
    from: PeerId,
    consumer: Consumer,
    /// Wakes the sender when it waits for room.
    notifier: B,
    /// Whether the ring is not read any more, because of an invalid value or the sender's death within a body.
    is_closed: bool,
}

impl<B: PeerNotifier> RingReceiver<B> {
    pub(crate) fn new(from: PeerId, consumer: Consumer, notifier: B) -> Self {
        RingReceiver { from, consumer, notifier, is_closed: false }
    }

    /// Passes the frames of the ring to a sink; returns the number of cells read.
    #[inline]
    pub(crate) fn drain(&mut self, sink: &mut dyn Sink) -> usize {
        let RingReceiver { from, consumer, notifier, is_closed } = self;
        let mut cells = 0;
        while cells < CELLS_PER_POLL && !*is_closed {
            match consumer.receive(&mut SinkAdapter { from: *from, sink: &mut *sink }) {
                Ok(true) => cells += 1,
                Ok(false) => break,
                Err(why) => {
                    *is_closed = true;
                    report_lost(*from, why, sink);
                }
            }
        }
        if consumer.sender_waits() {
            notifier.wake_sender();
        }
        cells
    }

    /// Reports the peer as lost if a word that the sender reads was overwritten.
    pub(crate) fn verify(&mut self, sink: &mut dyn Sink) {
        if !self.is_closed
            && let Err(why) = self.consumer.verify()
        {
            self.is_closed = true;
            report_lost(self.from, why, sink);
        }
    }

    /// If `peer` is the sender and has died within a streamed body, reports it as lost and stops reading its ring.
    pub(crate) fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        if self.from == peer && self.consumer.is_in_stream() && !self.is_closed {
            self.is_closed = true;
            sink.peer_lost(peer, "it died in the middle of a message");
        }
    }
}

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
fn report_lost(from: PeerId, why: Malformed, sink: &mut dyn Sink) {
    sink.peer_lost(from, &why.to_string());
}

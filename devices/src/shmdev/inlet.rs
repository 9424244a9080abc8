//! The receiving side for all processes that have sent to this rank.

use std::sync::Arc;

use super::ShmContext;
use super::control_block::{ControlBlock, set_bits};
use super::notify::ShmNotifier;
use crate::device::{Inlet, PeerId, Sink};
use crate::fence;
use crate::ring::{CELLS_PER_POLL, Consumer, RingReceiver};

/// The largest number of rings that are all polled. With more rings, senders set ready bits.
const MAX_POLLED: usize = 8;

#[derive(Debug)]
pub(super) struct ShmInlet {
    context: ShmContext,
    control_block: ControlBlock,
    rings: Vec<RingReceiver<ShmNotifier>>,
    /// The state of each sender, at the sender's index.
    senders: Vec<Sender>,
    /// Whether senders set their ready bits.
    uses_bitmap: bool,
    /// One bit for each ring that might have frames, by the index of its sender.
    nonempty: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Sender {
    Unknown,
    /// The index of the sender's ring in `rings`.
    Known(usize),
    /// The sender has written an invalid ring location.
    Lost,
}

impl ShmInlet {
    pub(super) fn new(context: ShmContext) -> Self {
        let ranks = context.segment.ranks();
        let nonempty = vec![0; ranks.div_ceil(u64::BITS) as usize];
        let senders = vec![Sender::Unknown; ranks as usize];
        let control_block = context.segment.control_block(context.local_rank.index);
        ShmInlet { context, control_block, rings: Vec::new(), senders, uses_bitmap: false, nonempty }
    }

    /// Handles the ready bits of one word: opens new rings, and completes requests for cards that were published.
    /// Returns the bits of the ranks that have a ring.
    fn take_ready_senders(&mut self, word: usize, sink: &mut dyn Sink) -> u64 {
        let mut rings = 0;
        let first = word as u32 * u64::BITS;
        for bit in set_bits(self.control_block.take_ready(word)) {
            if self.open_ring(first + bit, sink) {
                rings |= 1 << bit;
            }
            if self.context.local_rank.has_requests() {
                self.context.local_rank.answer_requests(first + bit);
            }
        }
        rings
    }

    /// Opens the ring from a rank unless it is open already; returns whether it is open.
    fn open_ring(&mut self, from: u32, sink: &mut dyn Sink) -> bool {
        let Some(sender) = self.senders.get_mut(from as usize) else { return false };
        match sender {
            Sender::Known(_) => return true,
            Sender::Lost => return false,
            Sender::Unknown => {}
        }
        let ShmContext { segment, ranks, local_rank } = &self.context;
        // No rank has a ring to itself. A ready bit of this rank itself announces its own card, or was overwritten.
        let Some(peer) = ranks.rank(from).filter(|_| from != local_rank.index).map(PeerId) else {
            return false;
        };
        match segment.find_ring(from, local_rank.index) {
            None => return false,
            Some(Err(why)) => {
                *sender = Sender::Lost;
                sink.peer_lost(peer, &why);
                return false;
            }
            Some(Ok(ring)) => {
                *sender = Sender::Known(self.rings.len());
                let consumer = Consumer::new(ring, Arc::new(segment.fragments(from)));
                self.rings.push(RingReceiver::new(peer, consumer, self.context.notifier(from)));
            }
        }
        true
    }

    /// Opens new rings; if there are then too many to poll them all, enables the ready bits.
    #[cold]
    fn open_new_rings(&mut self, sink: &mut dyn Sink) {
        for word in 0..self.nonempty.len() {
            self.take_ready_senders(word, sink);
        }
        if self.rings.len() > MAX_POLLED {
            self.control_block.enable_bitmap();
            // Without a heavy fence, senders might not see the new state. In that case, continue to poll all rings.
            self.uses_bitmap = fence::heavy_fence();
            // A sender that has not seen the new state has set no bit.
            self.mark_all_nonempty();
        }
    }

    fn mark_all_nonempty(&mut self) {
        for (from, sender) in (0u32..).zip(&self.senders) {
            if let Sender::Known(_) = sender {
                self.nonempty[(from / u64::BITS) as usize] |= 1 << (from % u64::BITS);
            }
        }
    }

    #[inline(never)]
    fn poll_ready_rings(&mut self, sink: &mut dyn Sink) -> usize {
        let mut moved = 0;
        for word in 0..self.nonempty.len() {
            self.nonempty[word] |= self.take_ready_senders(word, sink);
            for bit in set_bits(self.nonempty[word]) {
                let Some(Sender::Known(ring)) = self.senders.get(word * u64::BITS as usize + bit as usize)
                else {
                    continue;
                };
                let cells = self.rings[*ring].drain(sink);
                moved += cells;
                if cells < CELLS_PER_POLL {
                    self.nonempty[word] &= !(1 << bit);
                }
            }
        }
        moved
    }
}

// SAFETY: a ring writes only where the sink says (`ring::consumer`). No operation is ever in progress.
unsafe impl Inlet for ShmInlet {
    #[inline]
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        if !self.uses_bitmap && self.control_block.has_ready() {
            self.open_new_rings(sink);
        }
        let moved = match self.uses_bitmap {
            true => self.poll_ready_rings(sink),
            false => self.rings.iter_mut().map(|ring| ring.drain(sink)).sum(),
        };
        if moved > 0 {
            self.context.local_rank.disarm();
        }
        moved
    }

    fn verify(&mut self, sink: &mut dyn Sink) {
        let ShmContext { segment, local_rank, .. } = &self.context;
        segment.republish(local_rank);
        local_rank.answer_all_requests();
        for from in 0..self.senders.len() as u32 {
            self.open_ring(from, sink);
        }
        self.rings.iter_mut().for_each(|ring| ring.verify(sink));
        if self.uses_bitmap {
            self.control_block.enable_bitmap();
            self.mark_all_nonempty();
        }
    }

    fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        self.rings.iter_mut().for_each(|ring| ring.abort_body(peer, sink));
    }
}

//! The receiving end for all processes that have sent to this rank.
//!
//! With few senders a rank polls the rings of all of them. With more senders it makes each of them set a bit when it
//! writes, and polls only the rings whose bits are set (`desk`). The cost of polling then does not grow with the number
//! of rings.

use std::sync::Arc;

use super::ShmContext;
use super::control_block::{ControlBlock, set};
use super::coop_copy::CoopCopy;
use super::notify::ShmNotifier;
use crate::device::{Inlet, PeerId, Sink};
use crate::fence;
use crate::ring::{self, CELLS_PER_POLL, Consumer, Ring, RingReceiver};

/// The largest number of rings that are all polled.
const MAX_POLLED: usize = 8;

/// The receiving end of all rings that are in use.
#[derive(Debug)]
pub(super) struct ShmInlet {
    place: ShmContext,
    /// The control block of this rank.
    desk: ControlBlock,
    rings: Vec<IncomingRing>,
    together: Arc<CoopCopy>,
    /// By the index of the sender.
    senders: Vec<Sender>,
    /// Whether senders set their ready bits.
    uses_bitmap: bool,
    /// One bit for each ring that might have frames: its sender has set its ready bit, and the ring was not found empty
    /// since.
    nonempty: Vec<u64>,
}

/// The input from one rank: the frames in its ring, and the copies that it makes of this rank's memory.
#[derive(Debug)]
struct IncomingRing {
    incoming: RingReceiver<ShmNotifier>,
    index: u32,
    ring: Arc<Ring>,
    /// Notifies the rank of pieces that this rank has copied.
    bell: ShmNotifier,
}

impl IncomingRing {
    /// Hands out the frames that have come, and helps with a copy; returns the number of cells and of copies.
    #[inline]
    fn poll(&mut self, together: &CoopCopy, sink: &mut dyn Sink) -> (usize, usize) {
        let cells = self.incoming.drain(sink);
        let helped = if self.ring.pieces().has_unclaimed() { self.help(together) } else { 0 };
        (cells, helped)
    }

    #[cold]
    fn help(&mut self, together: &CoopCopy) -> usize {
        let Some(is_copied) = together.help(self.index, self.ring.pieces()) else { return 0 };
        ring::PeerNotifier::notify_receiver(&mut self.bell);
        // A failed helper copy does not count as progress. Otherwise a corrupted descriptor would keep this loop
        // running.
        usize::from(is_copied)
    }
}

/// The state of a rank that may send.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Unknown,
    /// Index of its ring in `rings`.
    Known(usize),
    /// It has written an invalid ring location.
    Lost,
}

impl ShmInlet {
    pub(super) fn new(place: ShmContext, together: Arc<CoopCopy>) -> Self {
        let ranks = place.segment.ranks();
        let due = vec![0; ranks.div_ceil(u64::BITS) as usize];
        let senders = vec![Sender::Unknown; ranks as usize];
        let desk = place.segment.desk(place.occupant.index);
        ShmInlet { place, desk, rings: Vec::new(), together, senders, uses_bitmap: false, nonempty: due }
    }

    /// Handles the ready bits of one word: opens new rings and fetches requested cards. Returns the bits of the ranks
    /// that have a ring.
    fn take_ready_senders(&mut self, word: usize, sink: &mut dyn Sink) -> u64 {
        let mut rings = 0;
        let first = word as u32 * u64::BITS;
        for bit in set(self.desk.take_ready(word)) {
            if self.open_ring(first + bit, sink) {
                rings |= 1 << bit;
            }
            if self.place.occupant.has_requests() {
                self.place.occupant.answer_requests(first + bit);
            }
        }
        rings
    }

    /// Opens the ring from a rank unless it is open; returns whether there is a ring.
    fn open_ring(&mut self, from: u32, sink: &mut dyn Sink) -> bool {
        let Some(sender) = self.senders.get_mut(from as usize) else { return false };
        match sender {
            Sender::Known(_) => return true,
            Sender::Lost => return false,
            Sender::Unknown => {}
        }
        let ShmContext { segment, ranks, occupant } = &self.place;
        // No rank has a ring to itself. If a word says so, it was overwritten.
        let Some(peer) = ranks.rank(from).filter(|_| from != occupant.index).map(PeerId) else {
            return false;
        };
        match segment.find_ring(from, occupant.index) {
            None => return false,
            Some(Err(why)) => {
                *sender = Sender::Lost;
                sink.peer_lost(peer, &why);
                return false;
            }
            Some(Ok(ring)) => {
                *sender = Sender::Known(self.rings.len());
                let consumer = Consumer::new(Arc::clone(&ring), Arc::new(segment.fragments(from)));
                let incoming = RingReceiver::new(peer, consumer, self.place.bell(from));
                self.rings.push(IncomingRing { incoming, index: from, ring, bell: self.place.bell(from) });
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
            self.desk.enable_bitmap();
            // Without a heavy fence, senders might not see the new state. Then go on polling all rings.
            self.uses_bitmap = fence::heavy_fence();
            // A sender that has not seen the new state has set no bit.
            self.look_at_all();
        }
    }

    /// Marks all rings as due.
    fn look_at_all(&mut self) {
        for (from, sender) in (0u32..).zip(&self.senders) {
            if let Sender::Known(_) = sender {
                self.nonempty[(from / u64::BITS) as usize] |= 1 << (from % u64::BITS);
            }
        }
    }

    /// Handles the frames and copies of the rings whose bits are set.
    #[inline(never)]
    fn poll_ready_rings(&mut self, sink: &mut dyn Sink) -> usize {
        let mut moved = 0;
        for word in 0..self.nonempty.len() {
            self.nonempty[word] |= self.take_ready_senders(word, sink);
            for bit in set(self.nonempty[word]) {
                let Some(Sender::Known(ring)) = self.senders.get(word * u64::BITS as usize + bit as usize)
                else {
                    continue;
                };
                let (cells, helped) = self.rings[*ring].poll(&self.together, sink);
                moved += cells + helped;
                if cells < CELLS_PER_POLL && helped == 0 {
                    self.nonempty[word] &= !(1 << bit);
                }
            }
        }
        moved
    }
}

// SAFETY: a ring writes where the sink says and no further, see `ring::consumer`. When `CoopCopy` completes a copy, its
// memory was written or is not written any more; when the inlet is dropped, no peer writes any more.
unsafe impl Inlet for ShmInlet {
    #[inline]
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        if !self.uses_bitmap && self.desk.has_ready() {
            self.open_new_rings(sink);
        }
        let moved = match self.uses_bitmap {
            true => self.poll_ready_rings(sink),
            false => self
                .rings
                .iter_mut()
                .map(|ring| ring.poll(&self.together, sink))
                .map(|(cells, helped)| cells + helped)
                .sum(),
        };
        let moved = moved + self.together.pending_writes().reap(sink);
        if moved > 0 {
            self.place.occupant.disarm();
        }
        moved
    }

    fn verify(&mut self, sink: &mut dyn Sink) {
        let ShmContext { segment, occupant, .. } = &self.place;
        segment.restore(occupant);
        occupant.look_for_cards();
        for from in 0..self.senders.len() as u32 {
            self.open_ring(from, sink);
        }
        self.rings.iter_mut().for_each(|ring| ring.incoming.verify(sink));
        if self.uses_bitmap {
            self.desk.enable_bitmap();
            self.look_at_all();
        }
        self.together.pending_writes().age();
    }

    fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        self.rings.iter_mut().for_each(|ring| ring.incoming.bury(peer, sink));
    }
}

impl Drop for ShmInlet {
    fn drop(&mut self) {
        self.together.pending_writes().close();
    }
}

//! The receiving end for all processes that have sent to this one.
//!
//! A rank that few have sent to polls their rings. One that many have sent to has each set a bit when it writes, and looks at
//! those rings alone (`desk`): what it costs to look for news no longer grows with the number of rings.

use std::sync::Arc;

use super::ShmContext;
use super::bell::Bell;
use super::desk::{ControlBlock, set};
use super::together::CoopCopy;
use crate::device::{Inlet, PeerId, Sink};
use crate::fence;
use crate::ring::{self, Consumer, Ring, RingReceiver, TURN};

/// The most rings that are polled.
const POLLED: usize = 8;

/// All rings that end here and are in use.
#[derive(Debug)]
pub(super) struct ShmInlet {
    place: ShmContext,
    /// This rank's own.
    desk: ControlBlock,
    rings: Vec<Entry>,
    together: Arc<CoopCopy>,
    /// By index of the sender.
    senders: Vec<Sender>,
    /// Whether senders set their bits.
    by_calls: bool,
    /// Rings that may not be empty, one bit each: their senders' were set, and they were not found empty since.
    due: Vec<u64>,
}

/// What comes from one rank: the frames in its ring, and the copies that it makes of this rank's memory.
#[derive(Debug)]
struct Entry {
    incoming: RingReceiver<Bell>,
    index: u32,
    ring: Arc<Ring>,
    /// Tells the rank of pieces that are copied.
    bell: Bell,
}

impl Entry {
    /// Takes what is there, and helps with a copy; returns how much of each there was.
    #[inline]
    fn look(&mut self, together: &CoopCopy, sink: &mut dyn Sink) -> (usize, usize) {
        let cells = self.incoming.drain(sink);
        let helped = if self.ring.pieces().are_left() { self.help(together) } else { 0 };
        (cells, helped)
    }

    #[cold]
    fn help(&mut self, together: &CoopCopy) -> usize {
        let Some(is_copied) = together.help(self.index, self.ring.pieces()) else { return 0 };
        ring::PeerNotifier::notify_receiver(&mut self.bell);
        // What cannot be copied is no news: whoever has written over the words might else keep us busy.
        usize::from(is_copied)
    }
}

/// What is known of a rank that may send.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Unknown,
    /// Which of the rings is its.
    Known(usize),
    /// It has written what makes no sense.
    Lost,
}

impl ShmInlet {
    pub(super) fn new(place: ShmContext, together: Arc<CoopCopy>) -> Self {
        let ranks = place.segment.ranks();
        let due = vec![0; ranks.div_ceil(u64::BITS) as usize];
        let senders = vec![Sender::Unknown; ranks as usize];
        let desk = place.segment.desk(place.occupant.index);
        ShmInlet { place, desk, rings: Vec::new(), together, senders, by_calls: false, due }
    }

    /// Looks what those want who have set a bit of one word; returns the bits of those that have a ring.
    fn take_ready_senders(&mut self, word: usize, sink: &mut dyn Sink) -> u64 {
        let mut rings = 0;
        let first = word as u32 * u64::BITS;
        for bit in set(self.desk.take_calls(word)) {
            if self.open_ring(first + bit, sink) {
                rings |= 1 << bit;
            }
            if self.place.occupant.has_asked() {
                self.place.occupant.look_for_card(first + bit);
            }
        }
        rings
    }

    /// Opens the ring from a rank, if that is new; returns whether there is one.
    fn open_ring(&mut self, from: u32, sink: &mut dyn Sink) -> bool {
        let Some(sender) = self.senders.get_mut(from as usize) else { return false };
        match sender {
            Sender::Known(_) => return true,
            Sender::Lost => return false,
            Sender::Unknown => {}
        }
        let ShmContext { segment, ranks, occupant } = &self.place;
        // No rank has a ring to itself; a word that says so was overwritten.
        let Some(peer) = ranks.rank(from).filter(|_| from != occupant.index).map(PeerId) else {
            return false;
        };
        match segment.find(from, occupant.index) {
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
                self.rings.push(Entry { incoming, index: from, ring, bell: self.place.bell(from) });
            }
        }
        true
    }

    /// Opens rings that are new, and stops polling if they are many.
    #[cold]
    fn open_new_rings(&mut self, sink: &mut dyn Sink) {
        for word in 0..self.due.len() {
            self.take_ready_senders(word, sink);
        }
        if self.rings.len() > POLLED {
            self.desk.enable_bitmap();
            // Who cannot have the others fence goes on polling: they may miss what it has asked for.
            self.by_calls = fence::heavy_fence();
            // Who has not seen that has set no bit.
            self.look_at_all();
        }
    }

    /// Has all rings looked at once.
    fn look_at_all(&mut self) {
        for (from, sender) in (0u32..).zip(&self.senders) {
            if let Sender::Known(_) = sender {
                self.due[(from / u64::BITS) as usize] |= 1 << (from % u64::BITS);
            }
        }
    }

    /// Takes what has come to the rings whose bits are set.
    #[inline(never)]
    fn poll_ready_rings(&mut self, sink: &mut dyn Sink) -> usize {
        let mut moved = 0;
        for word in 0..self.due.len() {
            self.due[word] |= self.take_ready_senders(word, sink);
            for bit in set(self.due[word]) {
                let Some(Sender::Known(ring)) = self.senders.get(word * u64::BITS as usize + bit as usize)
                else {
                    continue;
                };
                let (cells, helped) = self.rings[*ring].look(&self.together, sink);
                moved += cells + helped;
                if cells < TURN && helped == 0 {
                    self.due[word] &= !(1 << bit);
                }
            }
        }
        moved
    }
}

// SAFETY: a ring writes where the sink says, and what it was told of: `ring::consumer`. What `CoopCopy` settles was written, or is
// not written any more; when the inlet is dropped nobody writes any more.
unsafe impl Inlet for ShmInlet {
    #[inline]
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        if !self.by_calls && self.desk.is_called() {
            self.open_new_rings(sink);
        }
        let moved = match self.by_calls {
            true => self.poll_ready_rings(sink),
            false => self
                .rings
                .iter_mut()
                .map(|ring| ring.look(&self.together, sink))
                .map(|(cells, helped)| cells + helped)
                .sum(),
        };
        let moved = moved + self.together.debts().reap(sink);
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
        if self.by_calls {
            self.desk.enable_bitmap();
            self.look_at_all();
        }
        self.together.debts().age();
    }

    fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        self.rings.iter_mut().for_each(|ring| ring.incoming.bury(peer, sink));
    }
}

impl Drop for ShmInlet {
    fn drop(&mut self) {
        self.together.debts().close();
    }
}

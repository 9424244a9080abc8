//! How a rank notifies another rank of the host: by the words of its control block, and the socket that it sleeps on.

use std::sync::Arc;

use super::control_block::ControlBlock;
use super::local_rank::LocalRank;
use crate::fence::LightFence;
use crate::ring;

/// Notifies one peer in the name of `occupant`.
#[derive(Debug)]
pub(super) struct ShmNotifier {
    occupant: Arc<LocalRank>,
    desk: ControlBlock,
    light: LightFence,
}

impl ShmNotifier {
    pub(super) fn new(occupant: Arc<LocalRank>, desk: ControlBlock) -> Self {
        let light = LightFence::new();
        ShmNotifier { occupant, desk, light }
    }

    /// Notifies the peer of a new ring.
    pub(super) fn announce_ring(&self) {
        if self.desk.set_ready(self.occupant.index, self.light) {
            self.occupant.wake(&self.desk);
        }
    }
}

impl ring::PeerNotifier for ShmNotifier {
    #[inline]
    fn notify_receiver(&mut self) {
        if self.desk.notify(self.occupant.index, self.light) {
            self.occupant.wake(&self.desk);
        }
    }

    fn wake_sender(&mut self) {
        if self.desk.force_wake() {
            self.occupant.wake(&self.desk);
        }
    }
}

use std::sync::Arc;

use super::control_block::ControlBlock;
use super::local_rank::LocalRank;
use crate::fence::LightFence;
use crate::ring;

/// Notifies one peer on behalf of `local_rank`, by the words of the peer's control block and by the socket on which the
/// peer sleeps.
#[derive(Debug)]
pub(super) struct ShmNotifier {
    local_rank: Arc<LocalRank>,
    control_block: ControlBlock,
    light: LightFence,
}

impl ShmNotifier {
    pub(super) fn new(local_rank: Arc<LocalRank>, control_block: ControlBlock) -> Self {
        let light = LightFence::new();
        ShmNotifier { local_rank, control_block, light }
    }

    pub(super) fn announce_ring(&self) {
        if self.control_block.set_ready(self.local_rank.index, self.light) {
            self.local_rank.wake(&self.control_block);
        }
    }
}

impl ring::PeerNotifier for ShmNotifier {
    #[inline]
    fn notify_receiver(&mut self) {
        if self.control_block.notify(self.local_rank.index, self.light) {
            self.local_rank.wake(&self.control_block);
        }
    }

    fn wake_sender(&mut self) {
        if self.control_block.force_wake() {
            self.local_rank.wake(&self.control_block);
        }
    }
}

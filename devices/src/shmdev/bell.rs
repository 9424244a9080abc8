//! How a rank notifies another rank of the host: by the words of its control block, and the socket that it sleeps on.

use std::sync::Arc;

use super::desk::ControlBlock;
use super::occupant::LocalRank;
use crate::fence::Light;
use crate::ring;

/// Notifies one peer in the name of `occupant`.
#[derive(Debug)]
pub(super) struct Bell {
    occupant: Arc<LocalRank>,
    desk: ControlBlock,
    light: Light,
}

impl Bell {
    pub(super) fn new(occupant: Arc<LocalRank>, desk: ControlBlock) -> Self {
        let light = Light::new();
        Bell { occupant, desk, light }
    }

    /// Notifies the peer of a new ring.
    pub(super) fn call(&self) {
        if self.desk.set_ready(self.occupant.index, self.light) {
            self.occupant.wake(&self.desk);
        }
    }
}

impl ring::PeerNotifier for Bell {
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

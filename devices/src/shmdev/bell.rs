//! The way to another rank of the host: the words of its desk, and the socket it sleeps on.

use std::sync::Arc;

use super::desk::ControlBlock;
use super::occupant::LocalRank;
use crate::fence::Light;
use crate::ring;

/// Tells a neighbour of news, in the name of `occupant`.
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

    /// Has the neighbour look for a new ring.
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

//! The way to another rank of the host: the words of its desk, and the socket it sleeps on.

use std::sync::Arc;

use super::desk::Desk;
use super::occupant::Occupant;
use crate::fence::Light;
use crate::ring;

/// Tells a neighbour of news, in the name of `occupant`.
#[derive(Debug)]
pub(super) struct Bell {
    occupant: Arc<Occupant>,
    desk: Desk,
    light: Light,
}

impl Bell {
    pub(super) fn new(occupant: Arc<Occupant>, desk: Desk) -> Self {
        let light = Light::new();
        Bell { occupant, desk, light }
    }

    /// Has the neighbour look for a new ring.
    pub(super) fn call(&self) {
        if self.desk.call(self.occupant.index, self.light) {
            self.occupant.wake(&self.desk);
        }
    }
}

impl ring::Bell for Bell {
    #[inline]
    fn ring(&mut self) {
        if self.desk.tell(self.occupant.index, self.light) {
            self.occupant.wake(&self.desk);
        }
    }

    fn wake(&mut self) {
        if self.desk.rouse() {
            self.occupant.wake(&self.desk);
        }
    }
}

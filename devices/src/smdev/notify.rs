use std::fmt;
use std::sync::Arc;

use crate::doorbell::Doorbell;
use crate::ring::PeerNotifier;

/// The doorbell of another rank, which might not have opened the device yet. Each notification looks the doorbell up
/// until it is registered. Before that, the rank does not sleep on its doorbell, so it needs no wake-up.
pub(super) struct SmNotifier {
    known: Option<Arc<Doorbell>>,
    find: Box<dyn Fn() -> Option<Arc<Doorbell>> + Send>,
}

impl SmNotifier {
    pub(super) fn new(find: impl Fn() -> Option<Arc<Doorbell>> + Send + 'static) -> Self {
        SmNotifier { known: None, find: Box::new(find) }
    }

    #[inline]
    fn get(&mut self) -> Option<&Doorbell> {
        if self.known.is_none() {
            self.known = (self.find)();
        }
        self.known.as_deref()
    }
}

impl PeerNotifier for SmNotifier {
    #[inline]
    fn notify_receiver(&mut self) {
        if let Some(bell) = self.get() {
            bell.ring();
        }
    }

    fn wake_sender(&mut self) {
        if let Some(bell) = self.get() {
            bell.wake();
        }
    }
}

impl fmt::Debug for SmNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SmNotifier").field(&self.known).finish()
    }
}

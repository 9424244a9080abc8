//! Values that are notified of the failure of a rank.

use std::fmt;
use std::sync::Weak;

use super::{Engine, lock};

/// Notified once when all operations of a rank fail.
pub trait FailureListener: Send + Sync + fmt::Debug {
    /// Called by any thread, which might hold locks of the engine.
    fn rank_failed(&self);
}

impl Engine {
    /// Registers a listener for the [failure](Self::failure) of this rank. The caller must then check whether the rank
    /// has failed already.
    pub fn listen_failure(&self, listener: Weak<dyn FailureListener>) {
        let mut listeners = lock(&self.failure_listeners);
        if listeners.len() == listeners.capacity() {
            listeners.retain(|known| known.strong_count() > 0);
        }
        listeners.push(listener);
    }

    pub(super) fn notify_failure_listeners(&self) {
        let listeners = std::mem::take(&mut *lock(&self.failure_listeners));
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.rank_failed();
        }
    }
}

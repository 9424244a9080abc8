//! The interface by which the two ends of a ring notify each other.

use std::fmt;

/// Notifies the rank at the other end of a ring.
pub(crate) trait PeerNotifier: Send + fmt::Debug {
    /// Notifies the receiver of the frames just written to the ring, and wakes it if it sleeps.
    fn notify_receiver(&mut self);

    /// Notifies the sender that it has room again: ends its present sleep or, if it is awake, its next one.
    fn wake_sender(&mut self);
}

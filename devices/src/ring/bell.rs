//! How the ends of a ring call each other.

use std::fmt;

/// Reaches the rank at the other end of a ring.
pub(crate) trait PeerNotifier: Send + fmt::Debug {
    /// Tells the receiver of what was just written to the ring, and wakes it if it sleeps. A few nanoseconds if it does
    /// not.
    fn notify_receiver(&mut self);

    /// Tells the sender that it has room again: its present sleep ends, or else there is no next one.
    fn wake_sender(&mut self);
}

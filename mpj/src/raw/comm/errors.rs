//! Errors of calls on a communicator.

use mpj_devices::Fault;

use super::Comm;
use crate::address::PROC_NULL_NUMBER;
use crate::error::{Error, ErrorClass};

impl Comm {
    /// Returns the error of a call on this communicator.
    #[cold]
    pub(crate) fn fault(&self, call: &'static str, fault: Fault) -> Error {
        self.named(Error::from_fault(call, fault))
    }

    /// Adds the name of this communicator to an error.
    #[cold]
    pub(crate) fn named(&self, error: Error) -> Error {
        error.on(self.p2p())
    }

    #[cold]
    pub(super) fn rank_error(&self, call: &'static str, class: ErrorClass, what: &str, rank: i32) -> Error {
        let ranks = match self.peers().size() {
            1 => "only rank 0".to_owned(),
            size => format!("ranks 0 to {}", size - 1),
        };
        let who = match rank {
            PROC_NULL_NUMBER => {
                let why = format!("PROC_NULL is not a valid {what} here");
                return self.named(Error::new(class, call, why));
            }
            // `0 - 1` as a `usize` does not fit an `i32`, and arrives here as `i32::MAX`.
            i32::MAX => format!("{what} {rank} (0 - 1?)"),
            _ => format!("{what} {rank}"),
        };
        let of = if self.is_inter() { "the remote group of " } else { "" };
        let why = format!("{who} is out of range: {of}the communicator has {ranks}");
        self.named(Error::new(class, call, why))
    }
}

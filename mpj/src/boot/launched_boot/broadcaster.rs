//! Reports the exits that this process detects to its launcher.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mpj_devices::{Broadcaster, ExitEvent};

use crate::boot::control_writer::ControlWriter;
use crate::boot::wire::{ToLauncher, WireExit};

/// Reports exits to `mpjrun` for the ranks of this process.
pub(super) struct ExitBroadcaster {
    pub(super) writer: Arc<ControlWriter>,
    pub(super) local_ranks: Range<u32>,
    pub(super) exit_query_pending: AtomicBool,
}

impl fmt::Debug for ExitBroadcaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExitBroadcaster(ranks {:?})", self.local_ranks)
    }
}

impl Broadcaster for ExitBroadcaster {
    fn broadcast(&self, event: &ExitEvent) -> bool {
        match (self.local_ranks.contains(&event.rank), WireExit::from(&event.exit)) {
            (true, exit) => {
                // Wait until the report is written, because the process might exit next. If the connection is broken,
                // the report has no reader.
                let _ = self.writer.send_and_wait(&ToLauncher::Exited { rank: event.rank, exit });
                true
            }
            // The roster records the death when `mpjrun` sends it, in the same order to all processes.
            (false, WireExit::Died(cause)) => {
                self.writer.post(&ToLauncher::PeerLost { rank: event.rank, cause }).is_err()
            }
            (false, _) => true,
        }
    }

    fn request_exits(&self) {
        if !self.exit_query_pending.swap(true, Ordering::Relaxed) {
            // If the connection is broken, the control thread reports every rank outside this process dead.
            let _ = self.writer.post(&ToLauncher::QueryExits);
        }
    }

    fn report_cause(&self, rank: u32, first: u32) {
        let _ = self.writer.post(&ToLauncher::FailedDueTo { rank, cause_rank: first });
    }
}

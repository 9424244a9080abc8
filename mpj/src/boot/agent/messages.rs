//! The messages between the agents of a job.
//!
//! ```text
//!   agent of another host                         root
//!   FromProcess: from one of its processes    ─►
//!   ExitReports: exits of its processes       ─►
//!                                            ◄─   ToProcess, ToJoined, JobEnds
//!   Watch: the address for a `HostWatch`     ◄─►
//!                                            ◄─   WatchPeer: the same, of another host with which ranks communicate
//!   PeerCut: that host does not answer        ─►
//! ```

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::reports::ReportRun;
use crate::boot::wire::{ToLauncher, ToProcess};

/// A message to the root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum ToRoot {
    /// A message from the process of a rank.
    FromProcess { rank: u32, message: ToLauncher },
    /// Exits of ranks, the ranks that caused their failures, and the ends of the connections to their processes.
    ExitReports(Vec<ReportRun>),
    /// The root can watch the host of the agent at this address.
    Watch { at: SocketAddr },
    /// Another host, which is not that of the root, does not answer.
    PeerCut { host: u32, cause: String },
}

/// A message from the root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::boot) enum FromRoot {
    /// A message to the process of a rank.
    ToProcess { rank: u32, message: ToProcess },
    /// A message to all processes of the host. Those that join later get it as well.
    ToJoined(ToProcess),
    /// The job has failed, and the time for an orderly end is over. The agent passes this code on to the processes of
    /// its host ([`ToProcess::JobEnds`]).
    JobEnds { code: u8 },
    /// The agent can watch the host of the root at this address.
    Watch { at: SocketAddr },
    /// The agent can watch another host at this address, because a rank of its host communicates with one there.
    WatchPeer { host: u32, at: SocketAddr },
}

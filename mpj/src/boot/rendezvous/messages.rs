//! The messages of a rendezvous, as frames of `wire.rs` on connections whose ends have proved the key.
//!
//! ```text
//!   rank r                                rank 0
//!   Join: version, size, host         ─►
//!                                     ◄─  Placed: hosts, nonce     when all ranks have joined
//!   Ready                             ─►
//!                                     ◄─  Proceed: values          when all ranks are ready
//!   Joined                            ─►                           r has connected to the agent of its host
//!                                     ◄─  Refused: why             at any time: the job cannot start
//!   Failed: why                       ─►                           before Joined: r cannot join the job
//! ```

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use crate::boot::wire::ProtocolVersion;

/// The time after which sent data without an acknowledgement ends a connection: the same as for probes (`proven.rs`).
const SILENCE_LIMIT: Duration = Duration::from_secs(180);

/// The longest text of a message in bytes. Longer ones are truncated.
pub(super) const MAX_TEXT: usize = 4096;

/// A message to rank 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToServer {
    /// The first message of a rank.
    Join(Box<Joining>),
    /// The agent that this process runs, if any, accepts connections.
    Ready,
    /// The process has connected to the agent of its host, which reports its end from now on.
    Joined,
    /// The process cannot join the job, for this reason.
    Failed(String),
}

/// The content of [`ToServer::Join`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Joining {
    /// The version of the process.
    pub version: ProtocolVersion,
    /// The number of ranks that the process expects.
    pub size: u32,
    /// The identity of its host. Processes of one host can reach each other by abstract Unix sockets.
    pub host: String,
    /// The name of the host and the process id, for messages to the user.
    pub at: String,
}

/// A message from rank 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromServer {
    /// All ranks have joined.
    Placed {
        /// Runs for [`Hosts::from_runs`](mpj_devices::Hosts::from_runs).
        hosts: Vec<(u32, u32)>,
        /// Random bytes, which distinguish this job from others with the same secret.
        nonce: [u8; 32],
    },
    /// All ranks are ready.
    Proceed {
        /// The keys and values that rank 0 has put.
        values: Vec<(String, String)>,
    },
    /// The job cannot start, for this reason.
    Refused(String),
}

/// Ends a connection of the rendezvous if sent data is not acknowledged for [`SILENCE_LIMIT`]: the kernel sends no
/// probes then. The kernel of a stopped process acknowledges these messages, because they fit its socket buffer.
pub(super) fn limit_silence(socket: impl AsFd) {
    // Without this limit, the kernel tries for a quarter of an hour.
    let _ = sockopt::set_tcp_user_timeout(socket, SILENCE_LIMIT.as_millis() as u32);
}

/// Truncates a text that comes from another process or is sent to one.
pub(super) fn truncated(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

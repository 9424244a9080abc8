//! The messages between `mpjrun` and the processes that it starts, over one Unix socket for each process.
//!
//! ```text
//!   frame = u32 length (little endian) · a postcard value of that length
//!
//!   process                         launcher
//!   Hello, with its version    ─►
//!                              ◄─   Welcome           + the descriptor of the shared memory, if `segment`
//!   Put · Get · Fence          ─►
//!                              ◄─   Value · FenceDone, by `id`
//!   Ended · PeerLost · FailedDueTo · Abort · Stats ─►
//!                              ◄─   Ended             for each rank of another process that has died
//!   Ends                       ─►
//!                              ◄─   Ends              orderly exits that are new to this process
//!                              ◄─   Waits
//!   Waits                      ─►                     for each rank of this process
//! ```
//! A descriptor is sent with the first byte of its frame.

use std::fmt;
use std::ops::Range;

use mpj_devices::Exit;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::report::{RankStats, RankWaits};

/// The variable that names the inherited descriptor and the inode of the socket: `fd:inode`.
///
/// The inode identifies the socket: in a process that inherited a stale variable, another file may have the same
/// descriptor number.
pub const CONTROL_VAR: &str = "MPJ_CONTROL";

/// The maximum length of a message in bytes. A longer one means that the peer is faulty.
pub const LIMIT: usize = 1 << 20;

/// The maximum length of the cause of a death, in bytes; a longer cause is cut off.
const CAUSE: usize = 4096;

/// The maximum number of contexts that a closing rank is reported to stay in; in the others it takes no further part.
const CONTEXTS: usize = 1 << 16;

/// The version of these messages; incremented whenever one of them changes.
pub const VERSION: u32 = 7;

/// The first message of a process. Its encoding is the same in all versions, so a launcher of any other version can
/// read it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProtocolVersion {
    /// The [`VERSION`] of the process.
    pub version: u32,
    /// The version of `mpj` that the process was built with, for messages to the user.
    pub of: String,
}

impl ProtocolVersion {
    /// Returns the version of this build.
    pub fn own() -> Self {
        ProtocolVersion { version: VERSION, of: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mpj {} (start-up messages {})", self.of, self.version)
    }
}

/// A message from the launcher to a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToProcess {
    /// The answer to [`ToLauncher::Hello`].
    Welcome(Welcome),
    /// A rank of another process has died.
    Ended {
        /// The rank.
        rank: u32,
        /// How it exited.
        end: WireExit,
    },
    /// The answer to [`ToLauncher::Ends`]: the orderly exits that the process does not know yet.
    Ends(Vec<ExitRun>),
    /// The answer to [`ToLauncher::Get`].
    Value {
        /// The id of the request.
        id: u64,
        /// The value, or the reason why it will never be put.
        value: Result<Vec<u8>, String>,
    },
    /// The answer to [`ToLauncher::Fence`].
    FenceDone {
        /// The id of the request.
        id: u64,
        /// `Ok` if every rank has reached the fence.
        met: Result<(), String>,
    },
    /// Requests the current waits of the process's ranks; answered by one [`ToLauncher::Waits`] for each rank.
    Waits,
}

/// The parameters of the job, sent to a process that joins. Only `hosts` grows with the number of ranks, and it has few
/// runs if the launcher places ranks in blocks.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The identity of the job.
    pub job: u64,
    /// The secret that only the ranks of the job know.
    pub secret: [u8; 32],
    /// The ranks of the job by host, in runs as [`Hosts::from_runs`](mpj_devices::Hosts::from_runs) takes them: the
    /// number of a host, and the number of consecutive ranks on it.
    pub hosts: Vec<(u32, u32)>,
    /// The first rank of this process.
    pub first: u32,
    /// The number of ranks of this process.
    pub ranks_here: u32,
    /// The names of the devices to use; `None` for all available devices. Among those that reach a peer the device with
    /// the highest affinity is used, and among equals the order of the registry decides.
    pub devices: Option<Vec<String>>,
    /// Whether the descriptor of the shared memory of this process's host comes with this message.
    pub segment: bool,
}

impl fmt::Debug for Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Welcome { job, hosts, first, ranks_here: here, .. } = self;
        write!(f, "Welcome(job {job:x}, {here} ranks from {first} on, of hosts {hosts:?})")
    }
}

/// A message from a process to the launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToLauncher {
    /// This process joins the job. This is its first message, and the first variant in all versions.
    Hello(ProtocolVersion),
    /// Publishes a value under a key of a rank of this process.
    Put {
        /// The rank.
        rank: u32,
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
    },
    /// Requests the value of a rank's key; answered when it was put, or when it can never be.
    Get {
        /// The id of the request.
        id: u64,
        /// The rank.
        rank: u32,
        /// The key.
        key: String,
    },
    /// One rank of this process has reached the fence.
    Fence {
        /// The id of the request.
        id: u64,
    },
    /// A rank of this process has exited, or begun to.
    Ended {
        /// The rank.
        rank: u32,
        /// How it exited.
        end: WireExit,
    },
    /// Requests the orderly exits that this process does not know yet; answered as soon as there are any. Repeating the
    /// request before the answer has no effect.
    Ends,
    /// A rank of another process counts as dead here: its connection broke, or it sent invalid data.
    PeerLost {
        /// The rank.
        rank: u32,
        /// The reason.
        cause: String,
    },
    /// A call of a rank of this process failed because another rank, which continues to run, has failed.
    FailedDueTo {
        /// The rank.
        rank: u32,
        /// The rank that failed first.
        first: u32,
    },
    /// A rank of this process aborts the job.
    Abort {
        /// The rank.
        rank: u32,
        /// The exit code of the job.
        code: i32,
        /// The reason.
        why: String,
    },
    /// The traffic of a rank of this process; sent after the rank has left the job.
    Stats {
        /// The rank.
        rank: u32,
        /// The figures.
        stats: RankStats,
    },
    /// The current waits of the threads of a rank of this process: the answer to [`ToProcess::Waits`].
    Waits {
        /// The rank.
        rank: u32,
        /// The waits; `None` if the rank has not started, or has exited.
        waits: Option<RankWaits>,
    },
}

/// Returns the exit code of a job that a rank has aborted with `code`: the lowest eight bits, as for any process, or 1
/// if these bits are 0 and `code` is not.
pub fn exit_code(code: i32) -> u8 {
    match code as u8 {
        0 if code != 0 => 1,
        code => code,
    }
}

/// The wire form of an [`Exit`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WireExit {
    /// [`Exit::ClosingExcept`].
    ClosingExcept(Vec<u64>),
    /// [`Exit::Closing`].
    Closing,
    /// [`Exit::Left`].
    Left,
    /// [`Exit::Died`].
    Died(String),
}

/// Consecutive ranks that have exited in the same way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExitRun {
    /// The first rank.
    pub first: u32,
    /// The number of ranks.
    pub len: u32,
    /// How they exited.
    pub end: WireExit,
}

impl ExitRun {
    /// Returns the ranks; an empty range if their numbers overflow.
    pub fn ranks(&self) -> Range<u32> {
        self.first..self.first.checked_add(self.len).unwrap_or(self.first)
    }
}

impl From<&Exit> for WireExit {
    fn from(end: &Exit) -> Self {
        match end {
            Exit::ClosingExcept(contexts) => {
                WireExit::ClosingExcept(contexts.iter().copied().take(CONTEXTS).collect())
            }
            Exit::Closing => WireExit::Closing,
            Exit::Left => WireExit::Left,
            Exit::Died(cause) => WireExit::Died(cause[..cause.floor_char_boundary(CAUSE)].to_owned()),
        }
    }
}

impl From<WireExit> for Exit {
    fn from(end: WireExit) -> Self {
        match end {
            WireExit::ClosingExcept(contexts) => Exit::ClosingExcept(contexts.into()),
            WireExit::Closing => Exit::Closing,
            WireExit::Left => Exit::Left,
            WireExit::Died(cause) => Exit::Died(cause.into()),
        }
    }
}

/// The error of bytes that do not form a valid frame, or of a value that is too long for one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameError {
    /// A description of the problem.
    pub why: String,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for FrameError {}

/// Returns the frame of a message.
///
/// # Errors
/// The message is longer than [`LIMIT`].
pub fn encode_frame<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let malformed = |e: postcard::Error| FrameError { why: format!("not written: {e}") };
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(malformed)?;
    let len = frame.len() - 4;
    if len > LIMIT {
        return Err(FrameError {
            why: format!("{len} bytes are too many for one control message ({LIMIT})"),
        });
    }
    frame[..4].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(frame)
}

/// Assembles messages from a stream of bytes.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    bytes: Vec<u8>,
    /// The start of the first frame that was not taken.
    at: usize,
}

impl FrameDecoder {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns a description of an incomplete message at the end of the bytes; `None` if they end with a complete
    /// message.
    pub fn torn(&self) -> Option<String> {
        let rest = &self.bytes[self.at..];
        let came = rest.len();
        match rest.split_first_chunk::<4>() {
            None if came == 0 => None,
            None => Some(format!("in the middle of a control message, of which {came} bytes came")),
            Some((len, _)) => {
                let whole = 4 + u32::from_le_bytes(*len) as usize;
                Some(format!("in the middle of a control message, of which {came} of {whole} bytes came"))
            }
        }
    }

    /// Takes the next complete message; `Ok(None)` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are not a message of this type; the bytes that follow cannot be trusted either.
    #[expect(clippy::should_implement_trait, reason = "the type of the message is the caller's choice")]
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let rest = &self.bytes[self.at..];
        let Some((len, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        if len > LIMIT {
            return Err(FrameError {
                why: format!("a control message of {len} bytes; the limit is {LIMIT}"),
            });
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let (message, tail) = postcard::take_from_bytes(body)
            .map_err(|e| FrameError { why: format!("no control message: {e}") })?;
        if !tail.is_empty() {
            return Err(FrameError {
                why: format!("{} bytes after the end of a control message", tail.len()),
            });
        }
        self.at += 4 + len;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests;

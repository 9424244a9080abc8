//! The messages between `mpjrun`, or the agent of a host, and its processes, over one Unix socket for each process.
//!
//! ```text
//!   frame = u32 length (little endian) · a postcard value of that length
//!
//!   process                         mpjrun
//!   Hello, with its version    ─►
//!                              ◄─   Welcome           + the descriptor of the shared memory, if `has_segment`
//!   Put · Get · Fence          ─►
//!                              ◄─   Value · FenceDone, by `id`
//!   Exited · PeerLost · FailedDueTo · Abort · Stats ─►
//!                              ◄─   Died              the new deaths, with those of this process
//!   QueryExits                 ─►
//!                              ◄─   OrderlyExits      the exits since the previous reply
//!                              ◄─   QueryBlocked
//!                              ◄─   JobEnds           from an agent without a process manager
//!   BlockedReport              ─►                     for each rank of this process
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

/// The maximum length of a message in bytes.
pub const MAX_MESSAGE: usize = 1 << 20;

/// The maximum length of the cause of a death in bytes. Longer causes are truncated.
const MAX_CAUSE: usize = 4096;

/// The maximum number of contexts in [`WireExit::ClosingExcept`]. The rank counts as closing in contexts beyond these.
pub const MAX_CONTEXTS: usize = 1 << 16;

/// The version of these messages. Increment it whenever a message changes.
pub const VERSION: u32 = 9;

/// The content of [`ToLauncher::Hello`]. Its encoding is the same in all versions, so every `mpjrun` can read it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProtocolVersion {
    pub version: u32,
    /// The version of `mpj` that the process was built with, for messages to the user.
    pub mpj_version: String,
}

impl ProtocolVersion {
    /// Returns the version of this build.
    pub fn own() -> Self {
        ProtocolVersion { version: VERSION, mpj_version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mpj {} (control protocol {})", self.mpj_version, self.version)
    }
}

/// A message from `mpjrun` to a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToProcess {
    /// The reply to [`ToLauncher::Hello`].
    Welcome(Welcome),
    /// Ranks have died, in this order, which is the same for all processes.
    Died(Vec<DeathGroup>),
    /// The reply to [`ToLauncher::QueryExits`], in one or more messages.
    OrderlyExits(Vec<ExitRun>),
    /// The reply to [`ToLauncher::Get`]: the value, or the reason why it will never be put.
    Value { id: u64, value: Result<Vec<u8>, String> },
    /// The reply to [`ToLauncher::Fence`]: `Ok` if every rank has reached the fence.
    FenceDone { id: u64, result: Result<(), String> },
    /// Requests the current waits of the process's ranks. The reply is one [`ToLauncher::BlockedReport`] for each rank.
    /// If `job_ends`, the ranks first write these waits to their traces.
    QueryBlocked { job_ends: bool },
    /// The job has failed, and its time to end in order is over. The process exits with this code, unless it has joined
    /// by `mpj::connect`.
    JobEnds { code: u8 },
}

/// The parameters of the job, sent to a process that joins. Only `hosts` grows with the number of ranks, and it has few
/// runs if ranks are placed in blocks.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The id of the job.
    pub job: u64,
    /// The secret that the ranks of the job share.
    pub secret: [u8; 32],
    /// Runs for [`Hosts::from_runs`](mpj_devices::Hosts::from_runs): the id of a host, and the number of consecutive
    /// ranks on it.
    pub hosts: Vec<(u32, u32)>,
    /// The first rank of this process.
    pub first_rank: u32,
    /// The number of ranks of this process.
    pub ranks_here: u32,
    /// The names of the devices to use; `None` for all available devices.
    pub devices: Option<Vec<String>>,
    /// Whether the descriptor of the shared memory of this process's host comes with this message.
    pub has_segment: bool,
}

impl fmt::Debug for Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Welcome { job, hosts, first_rank, ranks_here, .. } = self;
        write!(f, "Welcome(job {job:x}, {ranks_here} ranks from {first_rank} on, hosts {hosts:?})")
    }
}

/// A message from a process to `mpjrun`. A field `rank` is a rank of the process, unless the variant says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToLauncher {
    /// This process joins the job. This is its first message, and the first variant in all versions.
    Hello(ProtocolVersion),
    /// Publishes a value under a key.
    Put { rank: u32, key: String, value: Vec<u8> },
    /// Requests the value that a rank of any process has put or will put.
    Get { id: u64, rank: u32, key: String },
    /// A rank has reached the fence.
    Fence { id: u64 },
    /// A rank has exited, or has begun to exit.
    Exited { rank: u32, exit: WireExit },
    /// Requests the orderly exits that this process does not know yet. The reply comes a short time after one
    /// exists. Repeating the request before the reply has no effect.
    QueryExits,
    /// A rank of another process is unreachable: its connection broke, or it sent invalid data.
    PeerLost { rank: u32, cause: String },
    /// A call of a rank failed because rank `cause_rank`, which might still run, has failed or refuses a message.
    FailedDueTo { rank: u32, cause_rank: u32 },
    /// A rank aborts the job with an exit code.
    Abort { rank: u32, code: i32, reason: String },
    /// The traffic of a rank; sent after the rank has left the job.
    Stats { rank: u32, stats: RankStats },
    /// A reply to [`ToProcess::QueryBlocked`]; `None` if the rank has not started, or has exited.
    BlockedReport { rank: u32, waits: Option<RankWaits> },
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

/// `len` consecutive ranks that have exited in the same way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExitRun {
    pub first: u32,
    pub len: u32,
    pub exit: WireExit,
}

impl ExitRun {
    /// Returns the ranks; an empty range if their numbers overflow.
    pub fn ranks(&self) -> Range<u32> {
        self.first..self.first.checked_add(self.len).unwrap_or(self.first)
    }
}

/// Ranks that have died for one cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeathGroup {
    pub cause: String,
    /// Runs of consecutive ranks: the first rank, and the number of ranks.
    pub runs: Vec<(u32, u32)>,
}

impl DeathGroup {
    /// Creates a group of these ranks, in this order.
    pub fn new(cause: &str, ranks: impl IntoIterator<Item = u32>) -> DeathGroup {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for rank in ranks {
            match runs.last_mut().filter(|(first, len)| first.checked_add(*len) == Some(rank)) {
                Some((_, len)) => *len += 1,
                None => runs.push((rank, 1)),
            }
        }
        DeathGroup { cause: cause.to_owned(), runs }
    }

    /// Returns those of the ranks that are below `size`, in order.
    pub fn ranks(&self, size: u32) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(move |(first, len)| *first..first.saturating_add(*len).min(size))
    }
}

impl From<&Exit> for WireExit {
    fn from(exit: &Exit) -> Self {
        match exit {
            Exit::ClosingExcept(contexts) => {
                WireExit::ClosingExcept(contexts.iter().copied().take(MAX_CONTEXTS).collect())
            }
            Exit::Closing => WireExit::Closing,
            Exit::Left => WireExit::Left,
            Exit::Died(cause) => WireExit::Died(cause[..cause.floor_char_boundary(MAX_CAUSE)].to_owned()),
        }
    }
}

impl From<WireExit> for Exit {
    fn from(exit: WireExit) -> Self {
        match exit {
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
    pub reason: String,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for FrameError {}

/// Returns the frame of a message.
///
/// # Errors
/// The message is longer than [`MAX_MESSAGE`].
pub fn encode_frame<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let error = |e: postcard::Error| FrameError { reason: format!("cannot encode a control message: {e}") };
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(error)?;
    let len = frame.len() - 4;
    if len > MAX_MESSAGE {
        return Err(FrameError {
            reason: format!("control message of {len} bytes exceeds the limit of {MAX_MESSAGE}"),
        });
    }
    frame[..4].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(frame)
}

/// Assembles messages from a stream of bytes.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    bytes: Vec<u8>,
    /// The start of the first frame that [`next`](Self::next) has not returned.
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
    pub fn incomplete_frame(&self) -> Option<String> {
        let rest = &self.bytes[self.at..];
        let received = rest.len();
        match rest.split_first_chunk::<4>() {
            None if received == 0 => None,
            None => Some(format!("in the middle of a control message, after {received} bytes")),
            Some((len, _)) => {
                let whole = 4 + u32::from_le_bytes(*len) as usize;
                Some(format!("in the middle of a control message, after {received} of {whole} bytes"))
            }
        }
    }

    /// Takes the next complete message; `Ok(None)` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are too long or are not a message of this type; the bytes that follow cannot be trusted either.
    #[expect(clippy::should_implement_trait, reason = "the type of the message is the caller's choice")]
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let rest = &self.bytes[self.at..];
        let Some((len, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        if len > MAX_MESSAGE {
            return Err(FrameError {
                reason: format!("control message of {len} bytes exceeds the limit of {MAX_MESSAGE}"),
            });
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let (message, tail) = postcard::take_from_bytes(body)
            .map_err(|e| FrameError { reason: format!("invalid control message: {e}") })?;
        if !tail.is_empty() {
            return Err(FrameError {
                reason: format!("invalid control message: {} bytes after its end", tail.len()),
            });
        }
        self.at += 4 + len;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests;

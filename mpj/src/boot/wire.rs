//! What `mpjrun` and the processes it starts tell each other, one Unix socket for each process.
//!
//! ```text
//!   frame = u32 length (little endian) · a postcard value of so many bytes
//!
//!   process                         launcher
//!   Hello, with its version    ─►
//!                              ◄─   Welcome           + the descriptor of the shared memory, if `segment`
//!   Put · Get · Fence          ─►
//!                              ◄─   Value · FenceDone, by `id`
//!   Complete · PeerLost · FailedDueTo · Abort ─►
//!                              ◄─   Complete             of other processes' ranks that have died
//!   Ends                       ─►
//!                              ◄─   Ends              of ranks that have left, once there are any that were not told
//!                              ◄─   Waits
//!   Waits                      ─►                      of each rank here
//! ```
//! A descriptor travels beside the first byte of its frame.

use std::fmt;
use std::ops::Range;

use mpj_devices::Exit;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::report::{RankStats, RankWaits};

/// The variable that names the inherited descriptor and the inode of the socket: `fd:inode`.
///
/// The inode tells the socket from whatever else has its number in a process that inherited a stale variable.
pub const CONTROL_VAR: &str = "MPJ_CONTROL";

/// The longest frame; a longer one is a broken peer.
pub const LIMIT: usize = 1 << 20;

/// The longest cause of a death that is passed on, in bytes.
const CAUSE: usize = 4096;

/// The most contexts that a rank on its way out is said to stay in: in others it takes no further part.
const CONTEXTS: usize = 1 << 16;

/// The version of these messages: raised whenever one of them changes.
pub const VERSION: u32 = 7;

/// What a process says first. It keeps this form in all versions, so that a launcher of any other one can tell.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProtocolVersion {
    /// Its [`VERSION`].
    pub version: u32,
    /// The `mpj` that it was built with, for people.
    pub of: String,
}

impl ProtocolVersion {
    /// This one.
    pub fn own() -> Self {
        ProtocolVersion { version: VERSION, of: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mpj {} (start-up messages {})", self.of, self.version)
    }
}

/// From the launcher to a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToProcess {
    /// The answer to [`ToLauncher::Hello`].
    Welcome(Welcome),
    /// A rank of another process has died.
    Ended {
        /// The rank.
        rank: u32,
        /// How.
        end: WireExit,
    },
    /// The answer to [`ToLauncher::Ends`]: good ends that the process was not told of.
    Ends(Vec<ExitRun>),
    /// The answer to [`ToLauncher::Get`].
    Value {
        /// The request.
        id: u64,
        /// The value, or why there will be none.
        value: Result<Vec<u8>, String>,
    },
    /// The answer to [`ToLauncher::Fence`].
    FenceDone {
        /// The request.
        id: u64,
        /// Whether every rank has come.
        met: Result<(), String>,
    },
    /// Asks what the ranks of the process wait for; answered by a [`ToLauncher::Waits`] for each.
    Waits,
}

/// What a process is told when it joins; nothing in it grows with the number of ranks but the runs of the map, of which
/// launchers that place ranks in blocks make few.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The job.
    pub job: u64,
    /// Known to the ranks of the job and nobody else.
    pub secret: [u8; 32],
    /// The ranks of the job by host, in runs as [`Hosts::from_runs`](mpj_devices::Hosts::from_runs) takes them: the number of a
    /// host, and how many ranks follow each other there.
    pub hosts: Vec<(u32, u32)>,
    /// The first rank of this process.
    pub first: u32,
    /// How many ranks this process has.
    pub ranks_here: u32,
    /// The devices to use; `None` for all there are. Among those that reach a peer the affinity decides, and the order of the
    /// registry among equals.
    pub devices: Option<Vec<String>>,
    /// Whether shared memory comes along: that of the host of this process.
    pub segment: bool,
}

impl fmt::Debug for Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Welcome { job, hosts, first, ranks_here: here, .. } = self;
        write!(f, "Welcome(job {job:x}, {here} ranks from {first} on, of hosts {hosts:?})")
    }
}

/// From a process to the launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToLauncher {
    /// This process takes its part in the job; its first message, and the first one here in all versions.
    Hello(ProtocolVersion),
    /// Makes a value known under a key of a rank of this process.
    Put {
        /// The rank.
        rank: u32,
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
    },
    /// Asks for a rank's key; answered when it is known, or when it can never be.
    Get {
        /// The request.
        id: u64,
        /// The rank.
        rank: u32,
        /// The key.
        key: String,
    },
    /// One rank of this process has come to the fence.
    Fence {
        /// The request.
        id: u64,
    },
    /// A rank of this process has come to an end.
    Ended {
        /// The rank.
        rank: u32,
        /// How.
        end: WireExit,
    },
    /// Asks for the good ends that this process was not told of. It is answered when there are any; to ask again before that
    /// is to ask once.
    Ends,
    /// A rank of another process is dead to this one: its connection broke, or it sends nonsense.
    PeerLost {
        /// The rank.
        rank: u32,
        /// What is wrong with it.
        cause: String,
    },
    /// A call of a rank of this process fails because another rank has failed and goes on.
    FailedDueTo {
        /// The rank.
        rank: u32,
        /// The one that has failed first.
        first: u32,
    },
    /// A rank of this process ends the job.
    Abort {
        /// The rank.
        rank: u32,
        /// The exit code of the job.
        code: i32,
        /// Why.
        why: String,
    },
    /// What a rank of this process has moved; said when it has left the job.
    Stats {
        /// The rank.
        rank: u32,
        /// The figures.
        stats: RankStats,
    },
    /// What the threads of a rank of this process wait for: the answer to [`ToProcess::Waits`].
    Waits {
        /// The rank.
        rank: u32,
        /// What they wait for; nothing if the rank has not begun, or has ended.
        waits: Option<RankWaits>,
    },
}

/// Returns the exit code of a job that a rank has aborted with `code`: its lowest eight bits, as of any process, but 1 for
/// a code other than 0 of which they leave 0.
pub fn exit_code(code: i32) -> u8 {
    match code as u8 {
        0 if code != 0 => 1,
        code => code,
    }
}

/// An [`Exit`] on the wire.
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

/// Ranks that have come to the same end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExitRun {
    /// The first of them.
    pub first: u32,
    /// How many.
    pub len: u32,
    /// How they ended.
    pub end: WireExit,
}

impl ExitRun {
    /// Returns the ranks; none if there are no such numbers.
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

/// Bytes that are no frame, or a value too long for one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameError {
    /// What is wrong.
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

/// Puts a stream of bytes together to messages.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    bytes: Vec<u8>,
    /// Where the first frame that was not taken starts.
    at: usize,
}

impl FrameDecoder {
    /// Adds bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns what is left of a message that was cut off, in words; `None` if the bytes end with a whole message.
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

    /// Takes the next whole message.
    ///
    /// # Errors
    /// The bytes are no such message: nothing that follows can be trusted.
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

//! The frames of a simulated job, and what they cost.
//!
//! An agent handles all input that has arrived in one turn, and then sends what it has queued, with one write for each
//! receiver. A process handles each packet when it arrives. A turn of an agent costs [`SCAN`] for each of its
//! connections. A read or a write costs [`CALL`]. A frame costs [`FRAME`], and each byte [`BYTE`], at either end. It
//! arrives [`LATENCY`] later. The receiver of a run of ranks spends [`RANK`] on each rank. `docs/scale.md` relates
//! these costs to the parameters of LogGP.

use std::rc::Rc;
use std::time::Duration;

use mpj_devices::HostId;
use serde::Serialize;

use crate::boot::agent::messages::{FromRoot, ToRoot};
use crate::boot::wire::{ToLauncher, ToProcess, encode_frame};

/// Costs in nanoseconds.
pub(super) const CALL: u64 = 5_000;
pub(super) const FRAME: u64 = 500;
pub(super) const BYTE: u64 = 1;
const RANK: u64 = 300;
pub(super) const SCAN: u64 = 300;
pub(super) const LATENCY: u64 = 20_000;

/// The work of one agent.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Load {
    pub(super) frames_in: u64,
    pub(super) frames_out: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) busy: Duration,
}

impl Load {
    /// Returns the larger of each two counts.
    pub(super) fn max(self, other: Load) -> Load {
        Load {
            frames_in: self.frames_in.max(other.frames_in),
            frames_out: self.frames_out.max(other.frames_out),
            bytes_in: self.bytes_in.max(other.bytes_in),
            bytes_out: self.bytes_out.max(other.bytes_out),
            busy: self.busy.max(other.busy),
        }
    }
}

/// The work since the last call of [`Job::take_counts`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) root: Load,
    /// The largest counts of an agent of another host.
    pub(super) other: Load,
    /// The time until the last process had handled its last message or, if all have ended, until the root knew it.
    pub(super) elapsed: Duration,
}

#[derive(Clone)]
pub(super) enum Frame {
    FromProcess(u32, Rc<ToLauncher>),
    Closed(u32),
    ToRoot(HostId, Rc<ToRoot>),
    FromRoot(Rc<FromRoot>),
    ToProcess(Rc<ToProcess>),
    HostLost(HostId),
}

/// Frames that one write has sent, and their length.
#[derive(Clone, Default)]
pub(super) struct Packet {
    pub(super) frames: Vec<Frame>,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Node {
    Agent(u32),
    Process(u32),
}

/// Returns the time that the receiver of a frame spends on it.
pub(super) fn cost(frame: &Frame) -> u64 {
    let ranks = match frame {
        Frame::ToRoot(_, message) => match &**message {
            ToRoot::ExitReports(runs) => runs.iter().map(|run| u64::from(run.len)).sum(),
            _ => 0,
        },
        Frame::ToProcess(message) => match &**message {
            ToProcess::Died(groups) => {
                groups.iter().flat_map(|group| &group.runs).map(|(_, len)| u64::from(*len)).sum()
            }
            _ => 0,
        },
        _ => 0,
    };
    FRAME + ranks * RANK
}

pub(super) fn frame_len(message: &impl Serialize) -> u64 {
    encode_frame(message).unwrap().len() as u64
}

impl Packet {
    pub(super) fn push(&mut self, frame: Frame, bytes: u64) {
        self.frames.push(frame);
        self.bytes += bytes;
    }
}

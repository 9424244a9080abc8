//! The environment of a rank: the information that a driver has before it opens.

use std::fmt;
use std::sync::Arc;

use crate::biased::Bias;
use crate::doorbell::Doorbell;

/// The environment of one rank.
#[derive(Clone, Debug)]
pub struct Site {
    /// The rank in the world.
    pub rank: u32,
    /// The number of ranks in the world.
    pub size: u32,
    /// The number of ranks on this host, including this one; they share its cores.
    pub ranks_on_host: u32,
    /// Whether the ranks run on several machines, so that devices must use the network between them. Simulated hosts are
    /// on one machine.
    pub spans_machines: bool,
    /// The lane of the rank for which a device is opened.
    pub lane: Lane,
    /// The doorbell of this rank.
    pub bell: Arc<Doorbell>,
    /// The bias of the locks between a send and its receive, including those of the devices.
    pub(crate) bias: Arc<Bias>,
}

/// One of the lanes of a rank, which make progress concurrently. A device is opened once for each lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane {
    /// The index of the lane, from 0 on. A lane connects to the lane with the same index at each peer.
    pub index: u32,
    /// The number of lanes, the same at all ranks. A device can divide the rank's resources among them.
    pub count: u32,
}

impl Lane {
    /// The lane of a rank that has only one.
    pub const ONLY: Lane = Lane { index: 0, count: 1 };
}

impl Site {
    /// Creates the site of rank `rank` of `size`, all of which share a host. Devices that are opened directly with it
    /// are fastest for the thread that calls this; an engine is fastest for the thread that opens it.
    pub fn new(rank: u32, size: u32, bell: Arc<Doorbell>) -> Self {
        Site {
            rank,
            size,
            ranks_on_host: size,
            spans_machines: false,
            lane: Lane::ONLY,
            bell,
            bias: Bias::new(),
        }
    }
}

/// A callback for one reply of the start-up service, which calls it on any thread. Without a reply, it is never called.
pub type Callback<T> = Box<dyn FnOnce(Result<T, String>) + Send>;

/// The identity of a job and the secret that its ranks share.
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey {
    /// The number of the job.
    pub job: u64,
    /// Known only to the launcher and the ranks of the job.
    pub secret: [u8; 32],
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobKey(job {:x})", self.job)
    }
}

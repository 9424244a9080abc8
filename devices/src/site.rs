//! Where a rank is: what a driver may know before it opens.

use std::fmt;
use std::sync::Arc;

use crate::biased::Bias;
use crate::doorbell::Doorbell;

/// The place of one rank.
#[derive(Clone, Debug)]
pub struct Site {
    /// The rank in the world.
    pub rank: u32,
    /// The number of ranks in the world.
    pub size: u32,
    /// The ranks on this host, this one among them: they share its cores.
    pub ranks_on_host: u32,
    /// Which of the rank's lanes a device is opened for.
    pub lane: Lane,
    /// The doorbell of this rank.
    pub bell: Arc<Doorbell>,
    /// The thread that the locks between a send and its receive are biased to, the devices' among them.
    pub(crate) bias: Arc<Bias>,
}

/// One of the lanes of a rank: what its threads make progress in side by side. A device is opened once for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Which one, from 0 on. It reaches the lane of the same index at the peers.
    pub index: u32,
    /// How many there are: of what a rank has once, a device takes this part for each. The same at all ranks.
    pub count: u32,
}

impl Lane {
    /// The lane of a rank that has one.
    pub const ONLY: Lane = Lane { index: 0, count: 1 };
}

impl Site {
    /// Returns the place of rank `rank` of `size`, all of which share a host. What is opened there directly is best used by the
    /// thread that calls this; an engine that is opened there, by the one that opens it.
    pub fn new(rank: u32, size: u32, bell: Arc<Doorbell>) -> Self {
        Site { rank, size, ranks_on_host: size, lane: Lane::ONLY, bell, bias: Bias::new() }
    }
}

/// What is called with an answer of the start-up service, once, on any thread; or dropped if there will be none.
pub type Callback<T> = Box<dyn FnOnce(Result<T, String>) + Send>;

/// The identity of a job and the secret its ranks share.
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey {
    /// The job.
    pub job: u64,
    /// Known to the ranks of the job and nobody else; never on a command line, never in the environment.
    pub secret: [u8; 32],
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobKey(job {:x})", self.job)
    }
}

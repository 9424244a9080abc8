//! The map from ranks to hosts.
//!
//! ```text
//!  ranks   0 1 2   3 4   5 6 7 8   9
//!  runs   |  a   |  b  |    a    | c |     a = host 0, b = host 1, c = host 2
//!  index   0 1 2   0 1   3 4 5 6   0       of each rank among those of its host
//! ```
//! The size of the map is proportional to the number of runs, which is usually far below the number of ranks. A run is
//! found by binary search; hot paths do not use the map.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A host of a job. Hosts are numbered from 0 on, in the order of their first ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub u32);

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "H{}", self.0)
    }
}

/// The hosts of a job and the ranks on them; clones share one map.
///
/// ```
/// use mpj_devices::{HostId, Hosts};
///
/// let hosts = Hosts::from_runs([(HostId(0), 3), (HostId(1), 2), (HostId(0), 4)])?;
/// assert_eq!((hosts.size(), hosts.count()), (9, 2));
/// assert_eq!((hosts.host_of(6), hosts.index_of(6)), (Some(HostId(0)), Some(4)));
/// assert_eq!(hosts.ranks_of(HostId(1)).iter().collect::<Vec<_>>(), [3, 4]);
/// # Ok::<(), mpj_devices::HostsError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Hosts {
    map: Arc<Map>,
}

/// # Invariants
/// 1. `runs` is in order of rank, adjacent runs are on different hosts, and no run is empty: `first` is 0 in the first
///    run, grows from run to run, and is below `size`.
/// 2. `by_host` contains the index of each run once, in the order of hosts and then of ranks. The runs of host `h`
///    begin at `host_begins[h]`; each host has at least one.
#[derive(PartialEq, Eq)]
struct Map {
    size: u32,
    runs: Vec<Run>,
    by_host: Vec<u32>,
    host_begins: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    host: HostId,
    /// The first rank. The run ends where the next run begins.
    first: u32,
    /// The number of ranks that its host has in earlier runs.
    before: u32,
}

/// The reason why runs are not a valid map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostsError {
    /// A run is empty.
    Empty {
        /// The index of the run.
        run: usize,
    },
    /// A run is on a new host whose number is not the next one.
    HostGap {
        /// The index of the run.
        run: usize,
        /// Its host.
        host: HostId,
        /// The number of hosts in earlier runs.
        known: u32,
    },
    /// The number of ranks overflows.
    TooManyRanks,
}

impl fmt::Display for HostsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostsError::Empty { run } => write!(f, "run {run} of the host map is empty"),
            HostsError::HostGap { run, host, known } => {
                write!(
                    f,
                    "run {run} of the host map names host {}; the next new host must be {known}",
                    host.0
                )
            }
            HostsError::TooManyRanks => f.write_str("the host map has too many ranks for 32 bits"),
        }
    }
}

impl std::error::Error for HostsError {}

impl Hosts {
    /// Returns the map of a job whose `size` ranks all run on one host.
    pub fn single_host(size: u32) -> Self {
        let runs = (size > 0).then_some(Run { host: HostId(0), first: 0, before: 0 });
        Hosts { map: Arc::new(Map::new(size, runs.into_iter().collect(), 1)) }
    }

    /// Creates a map from runs in order of rank: the host, and the number of consecutive ranks there. A host may have
    /// several runs; a host that was not named before has the next number.
    ///
    /// # Errors
    /// If the runs are not a valid map.
    pub fn from_runs(runs: impl IntoIterator<Item = (HostId, u32)>) -> Result<Self, HostsError> {
        let mut map: Vec<Run> = Vec::new();
        let mut host_sizes: Vec<u32> = Vec::new();
        let mut size = 0u32;
        for (run, (host, len)) in runs.into_iter().enumerate() {
            let known = host_sizes.len() as u32;
            if len == 0 {
                return Err(HostsError::Empty { run });
            }
            if host.0 > known {
                return Err(HostsError::HostGap { run, host, known });
            }
            if host.0 == known {
                host_sizes.push(0);
            }
            let first = size;
            size = size.checked_add(len).ok_or(HostsError::TooManyRanks)?;
            let of_host = &mut host_sizes[host.0 as usize];
            if map.last().is_none_or(|last| last.host != host) {
                map.push(Run { host, first, before: *of_host });
            }
            *of_host += len;
        }
        Ok(Hosts { map: Arc::new(Map::new(size, map, host_sizes.len())) })
    }

    /// Returns the number of ranks of all hosts.
    pub fn size(&self) -> u32 {
        self.map.size
    }

    /// Returns the number of hosts.
    pub fn count(&self) -> u32 {
        self.map.host_begins.len() as u32
    }

    /// Returns the host of a rank, if the rank exists.
    pub fn host_of(&self, rank: u32) -> Option<HostId> {
        self.map.run_of(rank).map(|run| run.host)
    }

    /// Returns the index of a rank among the ranks of its host, if the rank exists.
    pub fn index_of(&self, rank: u32) -> Option<u32> {
        self.map.run_of(rank).map(|run| run.before + (rank - run.first))
    }

    /// Returns the ranks of a host; empty if the host does not exist.
    pub fn ranks_of(&self, host: HostId) -> HostRanks {
        HostRanks { map: Arc::clone(&self.map), host }
    }

    /// Returns the host and the ranks of each run, in order of rank; adjacent runs on one host are merged.
    pub fn runs(&self) -> impl Iterator<Item = (HostId, Range<u32>)> {
        (0..self.map.runs.len()).map(|run| (self.map.runs[run].host, self.map.ranks(run)))
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.runs()).finish()
    }
}

impl Map {
    fn new(size: u32, runs: Vec<Run>, hosts: usize) -> Self {
        let mut by_host: Vec<u32> = (0..runs.len() as u32).collect();
        // The sort is stable and keeps the order of the runs of one host.
        by_host.sort_by_key(|run| runs[*run as usize].host);
        let begin = |host: u32| by_host.partition_point(|run| runs[*run as usize].host.0 < host) as u32;
        let host_begins = (0..hosts.min(runs.len()) as u32).map(begin).collect();
        Map { size, runs, by_host, host_begins }
    }

    fn run_of(&self, rank: u32) -> Option<&Run> {
        let after = self.runs.partition_point(|run| run.first <= rank);
        (rank < self.size).then(|| &self.runs[after - 1])
    }

    fn ranks(&self, run: usize) -> Range<u32> {
        self.runs[run].first..self.runs.get(run + 1).map_or(self.size, |next| next.first)
    }

    fn runs_of(&self, host: HostId) -> &[u32] {
        let at = |host: usize| self.host_begins.get(host).map_or(self.by_host.len(), |begin| *begin as usize);
        let host = host.0 as usize;
        &self.by_host[at(host)..at(host.saturating_add(1))]
    }
}

/// The ranks of one host, in order. The index of a rank is its position in this order.
#[derive(Clone, PartialEq, Eq)]
pub struct HostRanks {
    map: Arc<Map>,
    host: HostId,
}

#[expect(clippy::len_without_is_empty, reason = "every host of the map has a rank")]
impl HostRanks {
    /// Returns the host.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// Returns the number of ranks on the host.
    pub fn len(&self) -> u32 {
        self.map.runs_of(self.host).last().map_or(0, |last| {
            let run = *last as usize;
            self.map.runs[run].before + self.map.ranks(run).len() as u32
        })
    }

    /// Returns the rank with an index, if the index is valid.
    pub fn rank(&self, index: u32) -> Option<u32> {
        let runs = self.map.runs_of(self.host);
        let after = runs.partition_point(|run| self.map.runs[*run as usize].before <= index);
        let run = runs[..after].last()?;
        let rank =
            self.map.runs[*run as usize].first.checked_add(index - self.map.runs[*run as usize].before)?;
        self.map.ranks(*run as usize).contains(&rank).then_some(rank)
    }

    /// Returns the index of a rank among these, if it is one of them.
    pub fn index_of(&self, rank: u32) -> Option<u32> {
        let run = self.map.run_of(rank).filter(|run| run.host == self.host)?;
        Some(run.before + (rank - run.first))
    }

    /// Returns the ranks, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.map.runs_of(self.host).iter().flat_map(|run| self.map.ranks(*run as usize))
    }
}

impl fmt::Debug for HostRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.map.runs_of(self.host).iter().map(|run| self.map.ranks(*run as usize));
        write!(f, "{:?}", self.host)?;
        f.debug_list().entries(runs).finish()
    }
}

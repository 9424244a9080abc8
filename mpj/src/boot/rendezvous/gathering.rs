//! The ranks that have come to the rendezvous, without I/O.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use super::messages::{Joining, ToServer, truncated};
use crate::boot::wire::{ProtocolVersion, VERSION};

/// The steps of a rank, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// The rank has joined.
    Joined,
    /// The rank has its host, and its agent if it starts one.
    Ready,
}

/// The other ranks of a job, as rank 0 knows them.
#[derive(Debug)]
pub struct Gathering {
    size: u32,
    /// The host of rank 0.
    host: String,
    /// By rank: its last step, its host, and where it runs.
    ranks: BTreeMap<u32, (Step, String, String)>,
    is_placed: bool,
    /// The number of ranks that are ready.
    ready: usize,
}

impl Gathering {
    /// Creates the list for a job of `size` ranks, whose rank 0 is on `host`.
    pub fn new(size: u32, host: String) -> Gathering {
        Gathering { size, host, ranks: BTreeMap::new(), is_placed: false, ready: 0 }
    }

    /// Handles a message of a rank.
    ///
    /// # Errors
    /// The job cannot start, for the reason given.
    pub fn take(&mut self, rank: u32, message: ToServer) -> Result<(), String> {
        match message {
            ToServer::Join(joining) => self.join(rank, *joining),
            ToServer::Ready if self.is_placed => match self.ranks.get_mut(&rank) {
                Some((step, ..)) if *step < Step::Ready => {
                    *step = Step::Ready;
                    self.ready += 1;
                    Ok(())
                }
                _ => Err(format!("rank {rank} violated the protocol of the rendezvous")),
            },
            ToServer::Failed(why) => {
                Err(format!("rank {rank}{} cannot join the job: {}", self.place_of(rank), truncated(why)))
            }
            ToServer::Ready | ToServer::Joined => {
                Err(format!("rank {rank} violated the protocol of the rendezvous"))
            }
        }
    }

    fn join(&mut self, rank: u32, joining: Joining) -> Result<(), String> {
        let Joining { version, size, host, at } = joining;
        let at = truncated(at);
        if version.version != VERSION {
            let own = ProtocolVersion::own();
            return Err(format!(
                "rank {rank} ({at}) is built with {version}, but rank 0 with {own}: use one version of mpj"
            ));
        }
        if size != self.size {
            return Err(format!(
                "rank {rank} ({at}) was started as one of {size} ranks, but rank 0 as one of {}: start all of them with \
                 the same number of ranks",
                self.size
            ));
        }
        if rank == 0 || rank >= size {
            return Err(format!("a process ({at}) has rank {rank} of {size} ranks: ranks begin at 0"));
        }
        if self.ranks.insert(rank, (Step::Joined, truncated(host), at)).is_some() {
            return Err(format!("rank {rank} has joined twice"));
        }
        Ok(())
    }

    /// Handles the end of the connection to a rank. Before all ranks are placed, another process can still take the
    /// rank.
    ///
    /// # Errors
    /// The job cannot start without it.
    pub fn closed(&mut self, rank: u32) -> Result<(), String> {
        if self.is_placed {
            let place = self.place_of(rank);
            return Err(format!("the process of rank {rank}{place} has exited while the job started"));
        }
        self.ranks.remove(&rank);
        Ok(())
    }

    /// Returns where a rank runs, for messages.
    pub fn place_of(&self, rank: u32) -> String {
        self.ranks.get(&rank).map(|(_, _, at)| format!(" ({at})")).unwrap_or_default()
    }

    /// Returns whether all ranks have reached a step.
    pub fn have_all(&self, step: Step) -> bool {
        let count = if step == Step::Joined { self.ranks.len() } else { self.ready };
        count as u64 + 1 == u64::from(self.size)
    }

    /// Returns the runs of ranks on each host; all ranks must have joined.
    pub fn place(&mut self) -> Vec<(u32, u32)> {
        self.is_placed = true;
        let mut ids = HashMap::from([(self.host.as_str(), 0)]);
        let mut runs = vec![(0, 1)];
        for (_, host, _) in self.ranks.values() {
            let next = ids.len() as u32;
            let id = *ids.entry(host).or_insert(next);
            match runs.last_mut().filter(|(last, _)| *last == id) {
                Some((_, len)) => *len += 1,
                None => runs.push((id, 1)),
            }
        }
        runs
    }

    /// Lists the ranks that have not reached a step, such as `ranks 2, 5-7`.
    pub fn missing(&self, step: Step) -> String {
        let is_missing = |rank: &u32| self.ranks.get(rank).is_none_or(|(reached, ..)| *reached < step);
        list_ranks((1..self.size).filter(is_missing))
    }
}

/// Lists ranks in increasing order, such as `ranks 2, 5-7`.
pub(in crate::boot) fn list_ranks(ranks: impl Iterator<Item = u32>) -> String {
    /// Longer lists are truncated.
    const MAX_RUNS: usize = 16;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut().filter(|(_, last)| *last + 1 == rank) {
            Some((_, last)) => *last = rank,
            None => runs.push((rank, rank)),
        }
    }
    let mut text = String::from(if matches!(runs[..], [(a, b)] if a == b) { "rank" } else { "ranks" });
    for (at, (first, last)) in runs.iter().take(MAX_RUNS).enumerate() {
        // Writing to a string does not fail.
        let _ = write!(text, "{} {first}", if at == 0 { "" } else { "," });
        let _ = if last > first { write!(text, "-{last}") } else { Ok(()) };
    }
    if runs.len() > MAX_RUNS {
        text.push_str(", …");
    }
    text
}

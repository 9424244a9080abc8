//! The placement of the ranks: their processes, their cores, and the device between them.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};

use mpj::devices::cores::Cores;
use mpj::{Intracomm, World};

use super::Failure;

const MAX_CORES: usize = 1024;
const WORDS_PER_RANK: usize = 2 + MAX_CORES / 64;

/// The placement of all ranks, at rank 0.
#[derive(Debug, Default)]
pub(super) struct Placement {
    cores: Vec<Cores>,
    processes: usize,
    is_bound: bool,
}

impl Placement {
    /// Gathers the placement at rank 0; other ranks get an empty one. Collective.
    pub(super) fn gather(world: &Intracomm) -> Result<Placement, Failure> {
        let mut host = DefaultHasher::new();
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().hash(&mut host);
        let mut mine = [0u64; WORDS_PER_RANK];
        mine[..2].copy_from_slice(&[host.finish(), u64::from(std::process::id())]);
        for core in Cores::allowed().numbers().filter(|core| *core < MAX_CORES) {
            mine[2 + core / 64] |= 1 << (core % 64);
        }
        let mut all = vec![0u64; if world.rank() == 0 { WORDS_PER_RANK * world.size() } else { 0 }];
        world.gather(&mine, &mut all, 0)?;
        let ranks: Vec<&[u64]> = all.chunks(WORDS_PER_RANK).collect();
        let processes: BTreeSet<&[u64]> = ranks.iter().map(|rank| &rank[..2]).collect();
        let cores = ranks.iter().map(|rank| set_bits(&rank[2..]).collect()).collect();
        Ok(Placement { cores, processes: processes.len(), is_bound: are_disjoint(&ranks) })
    }

    /// Returns whether there are several ranks, and no two can run on the same core.
    pub(super) fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Returns a text such as "rank0=0 rank1=1".
    pub(super) fn affinity(&self) -> String {
        let ranks = self.cores.iter().enumerate().map(|(rank, cores)| format!("rank{rank}={cores}"));
        ranks.collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.cores.len();
        match self.processes {
            1 => write!(f, "{ranks} ranks, threads of one process")?,
            all if all == ranks => write!(f, "{ranks} ranks, a process each")?,
            processes => write!(f, "{ranks} ranks, threads of {processes} processes")?,
        }
        if ranks == 1 {
            return Ok(());
        }
        if !self.is_bound {
            let cores: BTreeSet<usize> = self.cores.iter().flat_map(Cores::numbers).collect();
            return match cores.len() {
                1.. if ranks > cores.len() => {
                    write!(f, "; not bound: {ranks} ranks share {}", count(cores.len()))
                }
                _ => f.write_str("; not bound: ranks may share a core"),
            };
        }
        let cores = self.cores.iter().take(8).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "; bound to cores {cores}{}", if ranks > 8 { ", …" } else { "" })
    }
}

fn count(cores: usize) -> String {
    format!("{cores} {}", if cores == 1 { "core" } else { "cores" })
}

/// Returns the devices with which this rank has sent eager messages.
pub(super) fn devices(world: &World) -> String {
    let sent = world.stats().devices.into_iter().filter(|(_, traffic)| traffic.eager.number > 0);
    let mut names: Vec<String> = sent.map(|(name, _)| name.to_string()).collect();
    names.dedup();
    names.join(" and ")
}

fn set_bits(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    (0..words.len() * 64).filter(|core| words[core / 64] >> (core % 64) & 1 == 1)
}

/// Returns whether the cores of any two ranks of a host are disjoint. A single rank does not count as bound.
fn are_disjoint(ranks: &[&[u64]]) -> bool {
    let mut taken = BTreeSet::new();
    ranks.len() > 1
        && ranks.iter().all(|rank| {
            let mut cores = set_bits(&rank[2..]).peekable();
            cores.peek().is_some() && cores.all(|core| taken.insert((rank[0], core)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_disjoint_cores_are_bound() {
        let rank = |host, cores| [host, 1, cores];
        let bound =
            |ranks: &[[u64; 3]]| are_disjoint(&ranks.iter().map(|rank| &rank[..]).collect::<Vec<_>>());
        assert!(bound(&[rank(1, 0b0011), rank(1, 0b1100), rank(2, 0b0001)]));
        assert!(!bound(&[rank(1, 0b0011), rank(1, 0b0110)]));
        assert!(!bound(&[rank(1, 0b0001), rank(1, 0)]), "the cores are unknown");
        assert!(!bound(&[rank(1, 0b0001)]), "a single rank");
    }

    #[test]
    fn settings_name_processes_and_cores() {
        let cores = || vec![Cores::from_iter([0, 1]), Cores::from_iter([2])];
        let crowded = Placement { cores: vec![Cores::from_iter([0, 1]); 3], processes: 3, is_bound: false };
        assert_eq!(crowded.to_string(), "3 ranks, a process each; not bound: 3 ranks share 2 cores");
        let text = |processes, is_bound| Placement { cores: cores(), processes, is_bound }.to_string();
        assert_eq!(text(1, true), "2 ranks, threads of one process; bound to cores 0-1, 2");
        assert_eq!(text(2, false), "2 ranks, a process each; not bound: ranks may share a core");
    }
}

//! The placement of the ranks of a measurement: their processes, their cores, and the device between them.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};

use mpj::devices::cores::Cores;
use mpj::{Intracomm, World};

use super::Failure;

/// Cores up to this number are distinguished.
const MOST_CORES: usize = 1024;
const WORDS: usize = 2 + MOST_CORES / 64;

/// The placement of all ranks, as rank 0 has gathered it.
#[derive(Debug, Default)]
pub(super) struct Setting {
    /// The cores of each rank.
    cores: Vec<Cores>,
    processes: usize,
    is_bound: bool,
}

impl Setting {
    /// Gathers the placement of all ranks at rank 0; other ranks get an empty one. Collective.
    pub(super) fn gather(world: &Intracomm) -> Result<Setting, Failure> {
        let mut host = DefaultHasher::new();
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().hash(&mut host);
        let mut mine = [0u64; WORDS];
        mine[..2].copy_from_slice(&[host.finish(), u64::from(std::process::id())]);
        for core in Cores::allowed().numbers().filter(|core| *core < MOST_CORES) {
            mine[2 + core / 64] |= 1 << (core % 64);
        }
        let mut all = vec![0u64; if world.rank() == 0 { WORDS * world.size() } else { 0 }];
        world.gather(&mine, &mut all, 0)?;
        let ranks: Vec<&[u64]> = all.chunks(WORDS).collect();
        let processes: BTreeSet<&[u64]> = ranks.iter().map(|rank| &rank[..2]).collect();
        let cores = ranks.iter().map(|rank| numbers(&rank[2..]).collect()).collect();
        Ok(Setting { cores, processes: processes.len(), is_bound: are_apart(&ranks) })
    }

    /// Whether no two ranks can run on the same core.
    pub(super) fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Returns the cores of each rank, as in "rank0=0 rank1=1".
    pub(super) fn affinity(&self) -> String {
        let ranks = self.cores.iter().enumerate().map(|(rank, cores)| format!("rank{rank}={cores}"));
        ranks.collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.cores.len();
        match self.processes {
            1 => write!(f, "{ranks} ranks, threads of one process")?,
            all if all == ranks => write!(f, "{ranks} ranks, a process each")?,
            processes => write!(f, "{ranks} ranks, threads of {processes} processes")?,
        }
        if !self.is_bound {
            return f.write_str("; not bound: ranks may share a core");
        }
        let cores = self.cores.iter().take(8).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "; bound to cores {cores}{}", if ranks > 8 { ", …" } else { "" })
    }
}

/// Returns the devices with which rank 0 has sent messages.
pub(super) fn devices(world: &World) -> String {
    let sent = world.stats().devices.into_iter().filter(|(_, traffic)| traffic.eager.number > 0);
    let mut names: Vec<String> = sent.map(|(name, _)| name.to_string()).collect();
    names.dedup();
    names.join(" and ")
}

/// Returns the indices of the bits that are set.
fn numbers(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    (0..words.len() * 64).filter(|core| words[core / 64] >> (core % 64) & 1 == 1)
}

/// Whether the sets of cores of any two ranks on a host are disjoint. A single rank does not count as bound.
fn are_apart(ranks: &[&[u64]]) -> bool {
    let mut taken = BTreeSet::new();
    ranks.len() > 1
        && ranks.iter().all(|rank| {
            let mut cores = numbers(&rank[2..]).peekable();
            cores.peek().is_some() && cores.all(|core| taken.insert((rank[0], core)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_bound_if_no_two_have_a_core_of_a_host_in_common() {
        let rank = |host, cores| [host, 1, cores];
        let bound = |ranks: &[[u64; 3]]| are_apart(&ranks.iter().map(|rank| &rank[..]).collect::<Vec<_>>());
        assert!(bound(&[rank(1, 0b0011), rank(1, 0b1100), rank(2, 0b0001)]));
        assert!(!bound(&[rank(1, 0b0011), rank(1, 0b0110)]));
        assert!(!bound(&[rank(1, 0b0001), rank(1, 0)]), "the system has told nothing");
        assert!(!bound(&[rank(1, 0b0001)]), "one rank has nobody to be apart from");
    }

    #[test]
    fn settings_name_processes_and_cores() {
        let cores = || vec![Cores::from_iter([0, 1]), Cores::from_iter([2])];
        let said = |processes, is_bound| Setting { cores: cores(), processes, is_bound }.to_string();
        assert_eq!(said(1, true), "2 ranks, threads of one process; bound to cores 0-1, 2");
        assert_eq!(said(2, false), "2 ranks, a process each; not bound: ranks may share a core");
    }
}

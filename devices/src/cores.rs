//! The cores of this host, and the share of them that each rank runs on.
//!
//! Ranks that share a core run alternately, and a message between them waits for the scheduler. So a launcher binds
//! each rank to a share of the cores that is disjoint from those of its job's other ranks, if there are enough cores. A
//! share is as large as possible, because a rank that starts threads needs cores for them. Shares also let two jobs run
//! on one host: each job divides *all* cores. If the ranks of both together do not outnumber the cores, the scheduler
//! can place each rank on a core of its own within its share.

use std::fmt;
use std::io;

use crate::config::{Choice, Config, Number};
use crate::sys;

/// The number of cores that the ranks of a host share. With more ranks than that, the cores are oversubscribed.
pub const CORES: Number = Number {
    name: "CORES",
    default: 0,
    range: (0, 1 << 20),
    help: "cores that all ranks of this host share; 0 for all that this process may use; mpjrun sets it",
};

/// The way in which a launcher binds ranks to cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bind {
    /// Each rank on its share of the cores, if there are several ranks and enough cores for all; otherwise as `None`.
    Auto,
    /// Each rank on one logical processor.
    Core,
    /// The system places the ranks.
    None,
}

/// The binding of ranks if the command line does not set it. Only `mpjrun` and `mpj-perf` read it.
pub const BIND: Choice<Bind> = Choice {
    name: "BIND",
    values: &[("auto", Bind::Auto), ("core", Bind::Core), ("none", Bind::None)],
    help: "cores of a rank: an equal share (auto), one core, or any (none); read by mpjrun and mpj-perf",
};

impl Bind {
    /// Returns the cores of each of `ranks` ranks among those that this thread may use, or `None` if ranks are not
    /// bound.
    ///
    /// # Errors
    /// For [`Bind::Core`], if [`Cores::shares`] returns `None`.
    pub fn cores(self, ranks: usize) -> Result<Option<Vec<Cores>>, String> {
        let shares = || Cores::allowed().shares(ranks);
        match self {
            Bind::None => Ok(None),
            // A single rank's share is all cores.
            Bind::Auto => Ok(shares().filter(|_| ranks > 1)),
            Bind::Core => match shares() {
                Some(shares) => Ok(Some(shares.iter().map(Cores::first).collect())),
                None => Err(format!(
                    "--bind core: {ranks} ranks need one core each, which is impossible here ({} can be used): use --bind \
                     auto or none",
                    usable()
                )),
            },
        }
    }
}

pub(crate) fn is_oversubscribed(config: &Config, local: u32) -> bool {
    let cores = match config.size(&CORES) {
        0 => usable(),
        cores => cores,
    };
    usize::try_from(local).unwrap_or(usize::MAX) > cores
}

/// Returns the number of logical processors that this process may use at a time; 1 if the system does not report it. On
/// Linux, the affinity and the quota of the control group limit it.
fn usable() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A level of the hardware of a host. Its parts contain logical processors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum HostPart {
    /// The logical processors that are nearest to one part of the memory.
    NumaNode,
    /// One processor package.
    Socket,
    /// The logical processors that share a last-level (L3) cache, or a socket if the system reports no such cache.
    Cache,
    /// The hardware threads of one core.
    Core,
}

impl HostPart {
    /// Returns the number of the part that contains all logical processors on which this thread may run: the number of
    /// a NUMA node or socket, or the first logical processor of a cache or core. Returns `None` if no part contains
    /// all of them, or the system does not report the processors. An unknown NUMA node or socket has number 0, and an
    /// unknown cache that of its socket.
    pub fn of_this_thread(self) -> Option<usize> {
        self.common_part(
            &sys::allowed().into_iter().map(|cpu| (sys::place(cpu), sys::numa_node(cpu))).collect::<Vec<_>>(),
        )
    }

    fn common_part(self, placed: &[([usize; 3], usize)]) -> Option<usize> {
        // A place is [socket, cache, core]. Processors share a part only if they share the larger ones.
        let part = |(place, node): &([usize; 3], usize)| match self {
            HostPart::NumaNode => ([0; 3], *node),
            HostPart::Socket => ([place[0], 0, 0], place[0]),
            HostPart::Cache => ([place[0], place[1], 0], place[1]),
            HostPart::Core => (*place, place[2]),
        };
        let (first, others) = placed.split_first()?;
        others.iter().all(|other| part(other) == part(first)).then(|| part(first).1)
    }
}

/// Logical processors on which a thread may run, in groups. In [`allowed`](Self::allowed), a group contains the
/// hardware threads of one core, and cores that share a cache are adjacent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cores(Vec<Vec<usize>>);

impl Cores {
    /// Returns the processors on which this thread may run; empty if the system does not report them.
    pub fn allowed() -> Cores {
        Cores::grouped(sys::allowed().into_iter().map(|cpu| (sys::place(cpu), cpu)).collect())
    }

    /// Groups logical processors by their locations: package, cache, core.
    fn grouped(mut placed: Vec<([usize; 3], usize)>) -> Cores {
        placed.sort_unstable();
        let groups = placed.chunk_by(|(one, _), (next, _)| one == next);
        Cores(groups.map(|group| group.iter().map(|(_, cpu)| *cpu).collect()).collect())
    }

    /// Returns the share of each of `ranks` ranks. Shares are disjoint, as equal as possible, and consist of adjacent
    /// cores, or of adjacent logical processors if the ranks outnumber the cores. Returns `None` if `ranks` is 0, or
    /// exceeds the number of these logical processors or of those that this process may use at a time.
    pub fn shares(&self, ranks: usize) -> Option<Vec<Cores>> {
        let single = || self.0.iter().flatten().map(|cpu| vec![*cpu]).collect();
        let parts = if ranks > self.0.len() { single() } else { self.0.clone() };
        if ranks == 0 || ranks > parts.len().min(usable()) {
            return None;
        }
        let share =
            |rank: usize| Cores(parts[rank * parts.len() / ranks..(rank + 1) * parts.len() / ranks].into());
        Some((0..ranks).map(share).collect())
    }

    /// Returns only the first logical processor, if any.
    pub fn first(&self) -> Cores {
        Cores(self.0.first().and_then(|core| core.first()).map(|cpu| vec![*cpu]).into_iter().collect())
    }

    /// Returns the union of shares.
    pub fn joined<'a>(shares: impl IntoIterator<Item = &'a Cores>) -> Cores {
        Cores(shares.into_iter().flat_map(|share| &share.0).cloned().collect())
    }

    /// Binds this thread, and threads and processes that it starts from now on, to these processors. Does not allocate,
    /// so it may be called between fork and exec.
    ///
    /// # Errors
    /// If the system forbids or does not support binding, or none of the processors exists.
    pub fn bind(&self) -> io::Result<()> {
        sys::run_on(self.numbers())
    }

    /// Returns the numbers of the logical processors, by group.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().flatten().copied()
    }
}

impl FromIterator<usize> for Cores {
    /// Creates groups of one processor each.
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Cores {
        Cores(cpus.into_iter().map(|cpu| vec![cpu]).collect())
    }
}

impl fmt::Display for Cores {
    /// Writes runs of numbers, such as `0-3+8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers: Vec<usize> = self.numbers().collect();
        numbers.sort_unstable();
        for (at, run) in numbers.chunk_by(|one, next| one + 1 == *next).enumerate() {
            let plus = if at == 0 { "" } else { "+" };
            match run {
                [first, .., last] => write!(f, "{plus}{first}-{last}")?,
                _ => write!(f, "{plus}{}", run[0])?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two packages of `cores` cores with two threads each, numbered as in Linux: second threads come last.
    fn two_packages(cores: usize) -> Cores {
        let cpu = |cpu: usize| {
            let core = cpu % (2 * cores);
            ([core / cores, 0, core], cpu)
        };
        Cores::grouped((0..4 * cores).map(cpu).collect())
    }

    #[test]
    fn part_of_a_thread_contains_all_of_its_processors() {
        // Two sockets, each with two NUMA nodes, two caches, and cores of two hardware threads.
        let on = |cpus: &[usize], part: HostPart| {
            let place = |cpu: &usize| ([cpu / 8, cpu / 4 * 4, cpu / 2 * 2], cpu / 4);
            part.common_part(&cpus.iter().map(place).collect::<Vec<_>>())
        };
        let all = [HostPart::NumaNode, HostPart::Socket, HostPart::Cache, HostPart::Core];
        let parts = |cpus: &[usize]| all.map(|part| on(cpus, part));
        assert_eq!(parts(&[13]), [Some(3), Some(1), Some(12), Some(12)]);
        assert_eq!(parts(&[12, 13]), [Some(3), Some(1), Some(12), Some(12)]);
        assert_eq!(parts(&[12, 15]), [Some(3), Some(1), Some(12), None]);
        assert_eq!(parts(&[8, 15]), [None, Some(1), None, None]);
        assert_eq!(parts(&[7, 8]), [None; 4]);
        assert_eq!(parts(&[]), [None; 4]);
        let one = Cores::allowed().first();
        let bound =
            std::thread::spawn(move || one.bind().map(|()| HostPart::Core.of_this_thread().is_some()));
        assert!(bound.join().unwrap().unwrap());
    }

    fn shares_text(shares: Vec<Cores>) -> String {
        shares.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn hardware_threads_of_a_core_are_in_one_share() {
        let cores = two_packages(2);
        assert_eq!(cores.to_string(), "0-7");
        assert_eq!(cores.0, [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(cores.first().to_string(), "0");
        assert_eq!(Cores::joined(&[Cores(vec![vec![0, 4]]), Cores(vec![vec![1]])]).to_string(), "0-1+4");
    }

    #[test]
    fn shares_are_disjoint_and_cover_all_cores() {
        let cores = Cores::allowed();
        let all = cores.numbers().count();
        assert!(cores.shares(0).is_none() && cores.shares(all + 1).is_none());
        for ranks in 1..=all.min(usable()) {
            let shares = cores.shares(ranks).unwrap();
            let mut numbers: Vec<usize> = shares.iter().flat_map(Cores::numbers).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!((shares.len(), numbers.len()), (ranks, all));
            assert!(shares.iter().all(|share| share.numbers().count() > 0));
        }
    }

    #[test]
    fn neighbouring_ranks_get_neighbouring_cores() {
        if usable() < 2 {
            return;
        }
        assert_eq!(shares_text(two_packages(2).shares(2).unwrap()), "0-1+4-5 2-3+6-7");
        assert_eq!(shares_text(two_packages(2).shares(1).unwrap()), "0-7");
    }

    #[test]
    fn oversubscription_compares_ranks_with_the_configured_cores() {
        let mut config = Config::default();
        assert!(!is_oversubscribed(&config, 1) && is_oversubscribed(&config, 1 << 20));
        config.set(&CORES, 4).unwrap();
        assert!(!is_oversubscribed(&config, 4) && is_oversubscribed(&config, 5));
    }

    #[cfg(all(target_os = "linux", not(mpj_portable)))]
    #[test]
    fn bound_thread_runs_on_its_share_only() {
        let all = Cores::allowed();
        let one = all.first();
        let bound = std::thread::spawn(move || one.bind().map(|()| (Cores::allowed() == one, usable())));
        assert_eq!(bound.join().unwrap().unwrap(), (true, 1));
        assert_eq!(Cores::allowed(), all);
    }
}

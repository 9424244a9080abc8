//! Jobs on several simulated hosts: shared memory within a host, TCP between hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use mpj::topology::{Dim, TopologyComm};
use mpj::{ANY_SOURCE, Error, Intracomm, Op, Reorder, Session, SplitType, World};
use mpj_devices::Segment;
use mpj_devices::config::Config;

use super::Test;
use super::job::{kill, limit, pid, run, start};
use super::message_programs::PROGRAMS;
use super::program::say;

pub(crate) const TESTS: &[Test] = &[
    (
        "each_pair_of_ranks_uses_the_device_between_its_hosts",
        each_pair_of_ranks_uses_the_device_between_its_hosts,
    ),
    ("message_programs_run_on_hosts", message_programs_run_on_hosts),
    ("killed_rank_fails_calls_on_other_hosts", killed_rank_fails_calls_on_other_hosts),
    ("ranks_share_memory_only_within_a_host", ranks_share_memory_only_within_a_host),
    (
        "communicators_are_created_by_host_and_across_hosts",
        communicators_are_created_by_host_and_across_hosts,
    ),
    ("errors_name_the_host_or_the_parameter", errors_name_the_host_or_the_parameter),
    ("topologies_place_neighbours_on_one_host", topologies_place_neighbours_on_one_host),
    (
        "wildcard_receives_from_two_devices_do_not_wait_for_a_poll",
        wildcard_receives_from_two_devices_do_not_wait_for_a_poll,
    ),
];

/// Placements on two and three hosts: the parameter, and the host of each rank.
const PLACED: [(&str, &str); 4] =
    [("a:2,b:3", "aabbb"), ("a:4,b", "aaaab"), ("a:1,b:3,c", "abbbc"), ("a:1,b:1,a:2,c", "abaac")];

fn on(hosts: &str, ranks: usize) -> String {
    format!("-n {ranks} -x MPJ_SIMULATED_HOSTS={hosts}")
}

/// Sends a message between each pair of ranks, and prints which device sent it.
pub(crate) fn pairs(world: &World) -> Result<(), Error> {
    let me = world.rank();
    let sent = || world.stats().devices.into_iter().map(|(name, moved)| (name, moved.eager.number));
    for from in 0..world.size() {
        for to in (0..world.size()).filter(|to| *to != from) {
            if me == from {
                let before: BTreeMap<_, _> = sent().collect();
                world.ssend(&[from as u64, to as u64], to, 3)?;
                let by: Vec<_> = sent().filter(|(name, now)| before.get(name) != Some(now)).collect();
                let [(name, _)] = by[..] else { panic!("expected one device, found {by:?}") };
                say(&format!("pair {from} {to} {name}"));
            } else if me == to {
                let mut got = [0u64; 2];
                world.recv(&mut got, from, 3)?;
                assert_eq!(got, [from as u64, to as u64]);
            }
        }
    }
    Ok(())
}

fn each_pair_of_ranks_uses_the_device_between_its_hosts() {
    for (hosts, of_rank) in PLACED {
        let host = |rank: usize| of_rank.as_bytes()[rank];
        for threads in [1, 2] {
            let ended = run(&format!("{} --ranks-per-process {threads}", on(hosts, of_rank.len())), "pairs");
            assert_eq!(ended.code, Some(0), "{ended:#?}");
            let said: BTreeSet<&str> =
                ended.out.iter().filter_map(|line| line.strip_prefix("pair ")).collect();
            // A process hosts consecutive ranks of one host only.
            let process = |rank: usize| {
                let begin =
                    (0..rank).rev().find(|other| host(*other) != host(rank)).map_or(0, |last| last + 1);
                (begin, (rank - begin) / threads)
            };
            let device = |from, to| match (host(from) == host(to), process(from) == process(to)) {
                (true, true) => "smdev",
                (true, false) => "shmdev",
                (false, _) => "niodev",
            };
            let ranks = 0..of_rank.len();
            let pairs = ranks.clone().flat_map(|from| ranks.clone().map(move |to| (from, to)));
            let wanted: Vec<String> = pairs
                .filter(|(from, to)| from != to)
                .map(|(from, to)| format!("{from} {to} {}", device(from, to)))
                .collect();
            assert_eq!(said, wanted.iter().map(String::as_str).collect(), "{hosts} × {threads}");
        }
    }
}

fn message_programs_run_on_hosts() {
    for (hosts, of_rank) in [PLACED[0], PLACED[3]] {
        let ranks = of_rank.len();
        for (name, _) in PROGRAMS {
            let ended = run(&on(hosts, ranks), &format!("messages:{name}"));
            let done = ended.out.iter().filter(|line| line.ends_with("is done")).count();
            assert_eq!((ended.code, done), (Some(0), ranks), "{name} on {hosts}: {ended:#?}");
        }
        let ended = run(&on(hosts, ranks), "lengths");
        let done = ended.out.iter().filter(|line| line.ends_with("programs")).count();
        assert_eq!((ended.code, done), (Some(0), ranks), "on {hosts}: {ended:#?}");
    }
}

fn killed_rank_fails_calls_on_other_hosts() {
    for (hosts, of_rank) in PLACED {
        let ranks = of_rank.len();
        let job = start(&on(hosts, ranks), "wait");
        let there = job.lines(ranks, " is ");
        let victim = there.iter().find(|line| line.contains("rank 1 ")).map(|line| pid(line)).unwrap();
        let at = Instant::now();
        kill(&[victim], "-KILL");
        let errors = job.lines(ranks - 1, "error: ");
        // The errors are expected within 2 s. A loaded machine gets three times that.
        assert!(at.elapsed() < limit(6), "{:?}", at.elapsed());
        assert!(errors.iter().all(|line| line.contains("rank 1 has failed")), "{errors:#?}");
        job.end().expect(137, &["rank 1 (pid ", &victim.to_string(), "SIGKILL"]);
    }
}

/// Prints the inode and the size in bytes of the shared memory that this process has mapped.
pub(crate) fn mapped(world: &World) -> Result<(), Error> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let maps: Vec<String> = maps
        .lines()
        .filter(|line| line.contains("memfd:mpj-pool"))
        .map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (begin, end) = fields[0].split_once('-').unwrap();
            let address = |hex| u64::from_str_radix(hex, 16).unwrap();
            format!("{} {}", fields[4], address(end) - address(begin))
        })
        .collect();
    say(&format!("memory of {}: {}", world.rank(), maps.join(" and ")));
    world.barrier()
}

fn ranks_share_memory_only_within_a_host() {
    const SEGMENT_HEADER_BYTES: u64 = 4096;
    for (hosts, of_rank) in PLACED {
        let ended = run(&on(hosts, of_rank.len()), "mapped");
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        let of = |rank: usize| {
            let begin = format!("memory of {rank}: ");
            ended.out.iter().find_map(|line| line.strip_prefix(&begin)).unwrap()
        };
        for (rank, host) in of_rank.chars().enumerate() {
            let ranks_on_host = of_rank.chars().filter(|other| *other == host).count();
            if ranks_on_host == 1 {
                assert_eq!(of(rank), "", "rank {rank} of {hosts} is alone on its host");
                continue;
            }
            let needed = Segment::needed(ranks_on_host as u32, &Config::default()) as u64;
            let bytes: u64 = of(rank).split(' ').nth(1).unwrap().parse().unwrap();
            assert_eq!(bytes, needed.next_multiple_of(4096) + SEGMENT_HEADER_BYTES, "rank {rank} of {hosts}");
            for (other, its_host) in of_rank.chars().enumerate() {
                assert_eq!(of(rank) == of(other), host == its_host, "ranks {rank} and {other} of {hosts}");
            }
        }
    }
}

/// Creates communicators by host, of a process set, and of a group; prints the world ranks of the first.
pub(crate) fn creations(world: &World) -> Result<(), Error> {
    let members = |comm: &Intracomm| {
        let mut all = vec![0usize; comm.size()];
        comm.allgather(&[world.rank()], &mut all).map(|()| all)
    };
    let local = members(&world.split_type(SplitType::Host, 0)?.expect("each rank has a host"))?;
    let session = Session::new(world);
    let set = session.comm_from_group(&session.group_from_pset("mpj://host")?, "jobs")?;
    assert_eq!(members(&set)?, local);
    let ends = world.group().include(&[world.size() - 1, 0])?;
    if ends.rank().is_some() {
        assert_eq!(members(&world.create_group(&ends, 1)?)?, [world.size() - 1, 0]);
    }
    say(&format!("rank {}: {local:?}", world.rank()));
    world.barrier()
}

fn communicators_are_created_by_host_and_across_hosts() {
    for (hosts, of_rank) in PLACED {
        let ended = run(&on(hosts, of_rank.len()), "creations");
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        for (rank, host) in of_rank.chars().enumerate() {
            let local: Vec<usize> = of_rank
                .chars()
                .enumerate()
                .filter(|(_, other)| *other == host)
                .map(|(rank, _)| rank)
                .collect();
            let line = format!("rank {rank}: {local:?}");
            assert!(ended.out.contains(&line), "{line} on {hosts}: {ended:#?}");
        }
    }
}

fn errors_name_the_host_or_the_parameter() {
    let fragments = "-x MPJ_SHM_FRAGMENTS=65536";
    run(&format!("{} {fragments}", on("a:1,b", 65)), "fine")
        .expect(1, &["MiB of shared memory for 64 ranks of host b", "MPJ_SHM_FRAGMENTS", "MPJ_DEVICES"]);
    run(&on("a:2,b:2", 5), "fine").expect(2, &["MPJ_SIMULATED_HOSTS=a:2,b:2 has 4 ranks, but -n is 5"]);
}

/// Returns the number of neighbours on another host than the rank itself, summed over all ranks; `neighbors` are those
/// of this rank. Also asserts that a neighbourhood collective delivers the numbers of exactly these neighbours.
fn edges_between_hosts(comm: &TopologyComm, neighbors: &[Option<usize>]) -> Result<usize, Error> {
    let mut got = vec![usize::MAX; neighbors.len()];
    comm.neighbor_allgather(&[comm.rank()], &mut got)?;
    assert!(got.iter().copied().eq(neighbors.iter().map(|rank| rank.unwrap_or(usize::MAX))));
    let is_away =
        |rank: &&Option<usize>| rank.is_some_and(|rank| comm.host_of(rank) != comm.host_of(comm.rank()));
    let mut total = [neighbors.iter().filter(is_away).count()];
    comm.allreduce_in_place(&mut total, Op::Sum)?;
    Ok(total[0])
}

/// Creates a grid and a graph of 8 ranks, and prints the edges between hosts.
pub(crate) fn topologies(world: &World) -> Result<(), Error> {
    let dims = [Dim::open(4), Dim::periodic(2)];
    let ring = |node: usize, by: usize| node / 4 * 4 + (node + by) % 4;
    let (before, after) = (ring(world.rank(), 3), ring(world.rank(), 1));
    for reorder in [Reorder::No, Reorder::ByHost] {
        let grid = world.cart(&dims, reorder)?.expect("8 cells");
        let in_grid = edges_between_hosts(&grid, &grid.layout().neighbors(grid.rank())?)?;
        let rings = world.dist_graph_adjacent(&[before], &[after], None, reorder)?;
        assert_eq!(
            (rings.sources(), rings.destinations()),
            (&[ring(rings.rank(), 3)][..], &[ring(rings.rank(), 1)][..])
        );
        let in_rings = edges_between_hosts(&rings, &[Some(rings.sources()[0])])?;
        if reorder == Reorder::ByHost {
            assert_eq!(world.cart_map(&dims)?, Some(grid.rank()));
        }
        if world.rank() == 0 {
            say(&format!("{reorder:?}: {in_grid} in the grid, {in_rings} in the rings"));
        }
    }
    Ok(())
}

fn topologies_place_neighbours_on_one_host() {
    let ended = run(&on("a:1,b:1,a:1,b:1,a:1,b:1,a:1,b:1", 8), "topologies");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    for line in ["No: 16 in the grid, 8 in the rings", "ByHost: 4 in the grid, 0 in the rings"] {
        assert!(ended.out.iter().any(|out| out == line), "{line}: {ended:#?}");
    }
}

/// The number of exchanges of each rank except rank 0 in [`wildcards`].
const EXCHANGES: usize = 500;

/// Each of the other ranks sends messages to rank 0, and waits for the answer to each. All receives are from any rank.
pub(crate) fn wildcards(world: &World) -> Result<(), Error> {
    let (me, mut got) = (world.rank(), [usize::MAX; 2]);
    if me > 0 {
        for round in 0..EXCHANGES {
            world.send(&[me, round], 0, 1)?;
            let status = world.recv(&mut got, ANY_SOURCE, 2)?;
            assert_eq!((status.source_rank(), got), (0, [me, round + 7]));
        }
        return world.barrier();
    }
    let mut rounds = vec![0; world.size()];
    for _ in 0..EXCHANGES * (world.size() - 1) {
        let status = world.recv(&mut got, ANY_SOURCE, 1)?;
        let from = status.source_rank();
        assert_eq!(got, [from, rounds[from]]);
        world.send(&[from, rounds[from] + 7], from, 2)?;
        rounds[from] += 1;
    }
    say(&format!("rounds {:?}", &rounds[1..]));
    world.barrier()
}

/// Rank 1 sends by shared memory, rank 2 by TCP. In a receive from any rank, MPJ Express polls its devices every two
/// seconds, so that it needs up to 2,000 s for these 1,000 exchanges.
fn wildcard_receives_from_two_devices_do_not_wait_for_a_poll() {
    let begin = Instant::now();
    let ended = run(&on("a:2,b:1", 3), "wildcards");
    let took = begin.elapsed();
    assert_eq!((ended.code, &ended.out[..]), (Some(0), &["rounds [500, 500]".to_owned()][..]), "{ended:#?}");
    assert!(took < limit(60), "{took:?}");
}

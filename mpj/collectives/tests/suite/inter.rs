//! Simulations of the collectives between two groups: each rank gets the items of the other group that the operation
//! defines, and nothing else.

use mpj_collectives::inter::{Groups, Root};
use mpj_collectives::{BufIndex, Span, Step};

use crate::algorithms::{combined, empty, own};
use crate::simulator::{Buffers, Report, Term, run};

/// The numbers of ranks of the two groups.
const SIZES: [(u32, u32); 8] = [(1, 1), (1, 3), (3, 1), (2, 2), (5, 8), (8, 5), (16, 33), (100, 7)];

const COUNT: usize = 3;

fn groups(rank: u32, (low, high): (u32, u32)) -> Groups {
    let (first, second) = (0..low, low..low + high);
    match rank < low {
        true => Groups { rank, local: first, remote: second },
        false => Groups { rank, local: second, remote: first },
    }
}

/// Simulates the steps that `add` adds for a rank, on its send and receive buffers and the temporary ones.
fn simulate(
    sizes: (u32, u32),
    add: impl Fn(&Groups, &mut Vec<Step>),
    user: impl Fn(u32) -> [Vec<Option<Term>>; 2],
) -> Report {
    let steps = |rank| {
        let mut steps = Vec::new();
        add(&groups(rank, sizes), &mut steps);
        steps
    };
    let bufs = |rank| {
        let mut bufs: Buffers = user(rank).into();
        bufs.extend([empty(1000), empty(1000)]);
        bufs
    };
    run(sizes.0 + sizes.1, steps, bufs).unwrap_or_else(|error| panic!("groups of {sizes:?}: {error}"))
}

fn received(report: &Report, rank: u32) -> &[Option<Term>] {
    &report.bufs[rank as usize][BufIndex::RECV.index()]
}

fn send_span(count: usize) -> Span {
    Span::new(BufIndex::SEND, 0, count)
}

/// Runs `test` with groups of each size and with some roots in both groups.
fn each_root(test: impl Fn((u32, u32), u32, &dyn Fn(u32) -> Root)) {
    for (low, high) in SIZES {
        for root in [0, low - 1, low, low + high / 2, low + high - 1] {
            test((low, high), root, &|rank| match (rank == root, (rank < low) == (root < low)) {
                (true, _) => Root::This,
                (false, true) => Root::Null,
                (false, false) => Root::Remote(root),
            });
        }
    }
}

#[test]
fn barrier_waits_for_both_groups() {
    for sizes in SIZES {
        let report = simulate(sizes, Groups::barrier, |_| [empty(0), empty(0)]);
        assert_eq!(report.rounds, (sizes.0 + sizes.1).next_power_of_two().ilog2());
    }
}

#[test]
fn bcast_reaches_the_other_group_only() {
    each_root(|sizes, root, root_of| {
        let add = |groups: &Groups, steps: &mut Vec<Step>| groups.bcast(root_of(groups.rank), COUNT, steps);
        let report = simulate(sizes, add, |rank| {
            [empty(0), if rank == root { own(root, COUNT) } else { empty(COUNT) }]
        });
        for rank in 0..sizes.0 + sizes.1 {
            let gets = root_of(rank) != Root::Null;
            let expected = if gets { own(root, COUNT) } else { empty(COUNT) };
            assert_eq!(received(&report, rank), expected, "rank {rank}, root {root}");
        }
    });
}

#[test]
fn gather_collects_the_other_group() {
    each_root(|sizes, root, root_of| {
        let blocks = |rank: u32| Span::new(BufIndex::RECV, rank as usize * COUNT, COUNT);
        let add = |groups: &Groups, steps: &mut Vec<Step>| {
            groups.gather(root_of(groups.rank), send_span(COUNT), &blocks, steps);
        };
        let others = groups(root, sizes).remote;
        let report = simulate(sizes, add, |rank| {
            [own(rank, COUNT), empty(if rank == root { others.len() * COUNT } else { 0 })]
        });
        let expected: Vec<_> = others.flat_map(|rank| own(rank, COUNT)).collect();
        assert_eq!(received(&report, root), expected, "root {root}");
    });
}

#[test]
fn scatter_distributes_to_the_other_group() {
    each_root(|sizes, root, root_of| {
        let others = groups(root, sizes).remote;
        let blocks = |rank: u32| Span::new(BufIndex::SEND, rank as usize, 1);
        let add = |groups: &Groups, steps: &mut Vec<Step>| {
            groups.scatter(root_of(groups.rank), &blocks, Span::new(BufIndex::RECV, 0, 1), steps);
        };
        let report = simulate(sizes, add, |rank| {
            [if rank == root { own(root, others.len()) } else { empty(0) }, empty(1)]
        });
        for rank in 0..sizes.0 + sizes.1 {
            let item = others.contains(&rank).then(|| Term::own((rank - others.start) as usize, root));
            assert_eq!(received(&report, rank), [item], "rank {rank}, root {root}");
        }
    });
}

#[test]
fn reduce_combines_the_other_group_in_order() {
    each_root(|sizes, root, root_of| {
        let add = |groups: &Groups, steps: &mut Vec<Step>| {
            groups.reduce(root_of(groups.rank), send_span(COUNT), steps);
        };
        let report = simulate(sizes, add, |rank| [own(rank, COUNT), empty(COUNT)]);
        let others = groups(root, sizes).remote;
        for rank in 0..sizes.0 + sizes.1 {
            let result =
                |item| (rank == root).then(|| combined(item, others.start, others.len() as u32)).flatten();
            let expected: Vec<_> = (0..COUNT).map(result).collect();
            assert_eq!(received(&report, rank), expected, "rank {rank}, root {root}");
        }
    });
}

#[test]
fn allreduce_gives_each_group_the_combination_of_the_other() {
    for sizes in SIZES {
        let add = |groups: &Groups, steps: &mut Vec<Step>| groups.allreduce(send_span(COUNT), steps);
        let report = simulate(sizes, add, |rank| [own(rank, COUNT), empty(COUNT)]);
        for rank in 0..sizes.0 + sizes.1 {
            let others = groups(rank, sizes).remote;
            let expected: Vec<_> =
                (0..COUNT).map(|item| combined(item, others.start, others.len() as u32)).collect();
            assert_eq!(received(&report, rank), expected, "rank {rank} of {sizes:?}");
        }
    }
}

/// Rank `r` of a group gets `r % 3` items, and the last one the rest.
#[test]
fn reduce_scatter_distributes_the_combination_of_the_other_group() {
    const TOTAL: usize = 120;
    let block = |rank: u32, size: u32| {
        let start = |rank: u32| (0..rank).map(|r| r as usize % 3).sum::<usize>();
        let end = if rank + 1 == size { TOTAL } else { start(rank + 1) };
        (start(rank), end - start(rank))
    };
    for sizes in SIZES {
        let size = |groups: &Groups| groups.local.len() as u32;
        let add = |groups: &Groups, steps: &mut Vec<Step>| {
            groups.reduce_scatter(send_span(TOTAL), &|rank| block(rank, size(groups)), steps);
        };
        let report = simulate(sizes, add, |rank| [own(rank, TOTAL), empty(TOTAL)]);
        for rank in 0..sizes.0 + sizes.1 {
            let groups = groups(rank, sizes);
            let (at, count) = block(rank - groups.local.start, size(&groups));
            let others = groups.remote;
            let mut expected: Vec<_> =
                (at..at + count).map(|item| combined(item, others.start, others.len() as u32)).collect();
            expected.resize(TOTAL, None);
            assert_eq!(received(&report, rank), expected, "rank {rank} of {sizes:?}");
        }
    }
}

#[test]
fn alltoall_exchanges_blocks_of_the_groups() {
    for sizes in SIZES {
        let blocks = |buf| move |rank: u32| Span::new(buf, rank as usize, 1);
        let add = |groups: &Groups, steps: &mut Vec<Step>| {
            groups.alltoall(&blocks(BufIndex::SEND), &blocks(BufIndex::RECV), steps);
        };
        let report = simulate(sizes, add, |rank| {
            let others = groups(rank, sizes).remote.len();
            [own(rank, others), empty(others)]
        });
        for rank in 0..sizes.0 + sizes.1 {
            let Groups { local, remote, .. } = groups(rank, sizes);
            let number = (rank - local.start) as usize;
            let expected: Vec<_> = remote.map(|from| Some(Term::own(number, from))).collect();
            assert_eq!(received(&report, rank), expected, "rank {rank} of {sizes:?}");
        }
    }
}

//! Simulations of every algorithm of the table, with up to 1,000 ranks: each rank gets the items that the operation
//! defines, and the number of rounds is the algorithm's.

use mpj_collectives::{
    ALGORITHMS, Algorithm, Arguments, BufIndex, Neighbor, Operation, Requirement, Span, Step,
};

use crate::simulator::{Buffers, Report, Term, run};

/// The simulated numbers of ranks.
const SIZES: [u32; 9] = [1, 2, 3, 5, 8, 13, 16, 33, 1000];

/// The number of items of a vector.
const COUNT: usize = 2;

fn roots(size: u32) -> impl Iterator<Item = u32> {
    let mut roots = vec![0, size / 2, size - 1];
    roots.dedup();
    roots.into_iter()
}

fn ceil_log2(size: u32) -> u32 {
    size.next_power_of_two().ilog2()
}

pub(crate) fn own(rank: u32, count: usize) -> Vec<Option<Term>> {
    (0..count).map(|item| Some(Term::own(item, rank))).collect()
}

pub(crate) fn empty(count: usize) -> Vec<Option<Term>> {
    vec![None; count]
}

/// Returns the combination of the items of `len` ranks from `first` on.
pub(crate) fn combined(item: usize, first: u32, len: u32) -> Option<Term> {
    Some(Term { item, first, len })
}

/// Runs `test` with each algorithm of an operation.
fn each(operation: Operation, test: impl Fn(&Algorithm)) {
    mpj_collectives::algorithms_of(operation).for_each(test);
}

fn steps(algorithm: &Algorithm, call: &Arguments<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    (algorithm.steps)(call, &mut steps);
    steps
}

/// Simulates an algorithm; `user` returns a rank's send and receive buffer. Adds the temporary buffers that its steps
/// name.
fn simulate<'a>(
    algorithm: &Algorithm,
    size: u32,
    call: impl Fn(u32) -> Arguments<'a>,
    user: impl Fn(u32) -> [Vec<Option<Term>>; 2],
) -> Report {
    let bufs = |rank| {
        let mut bufs: Buffers = user(rank).into();
        for step in steps(algorithm, &call(rank)) {
            if let Step::Recv { into, .. } | Step::Copy { into, .. } = step
                && into.count > 0
                && into.buf >= BufIndex::TEMP
            {
                bufs.resize(bufs.len().max(into.buf.index() + 1), Vec::new());
                let buf = &mut bufs[into.buf.index()];
                buf.resize(buf.len().max(into.at + into.count), None);
            }
        }
        bufs
    };
    run(size, |rank| steps(algorithm, &call(rank)), bufs)
        .unwrap_or_else(|error| panic!("{} {algorithm} on {size} ranks: {error}", algorithm.operation))
}

fn received(report: &Report, rank: u32) -> &[Option<Term>] {
    &report.bufs[rank as usize][BufIndex::RECV.index()]
}

/// Returns whether an item is the combination of all `size` ranks, in order of rank from `first` on, or from any rank.
fn is_all(item: Option<Term>, index: usize, size: u32, first: Option<u32>) -> bool {
    item.is_some_and(|term| {
        (term.item, term.len) == (index, size) && first.is_none_or(|first| size == 1 || term.first == first)
    })
}

#[test]
fn every_algorithm_has_a_test_here() {
    use Operation::*;
    let tested = [
        Barrier,
        Bcast,
        Reduce,
        Allreduce,
        ReduceScatter,
        ReduceScatterBlock,
        Scan,
        Exscan,
        Gather,
        Scatter,
        Allgather,
        Alltoall,
        Alltoallw,
        NeighborAllgather,
        NeighborAlltoall,
        NeighborAlltoallw,
    ];
    assert!(ALGORITHMS.iter().all(|algorithm| tested.contains(&algorithm.operation)));
}

/// No rank leaves a barrier before all have entered it: the last fence of a rank comes after messages from all others,
/// directly or by other ranks.
#[test]
fn barriers_wait_for_every_rank() {
    each(Operation::Barrier, |algorithm| {
        for size in SIZES.into_iter().filter(|size| *size < 100) {
            // Each message has a bit for each rank that has entered the barrier, as far as the sender knows.
            let all: Vec<Vec<Step>> =
                (0..size).map(|rank| steps(algorithm, &Arguments::new(rank, size))).collect();
            let mut heard: Vec<u128> = (0..size).map(|rank| 1 << rank).collect();
            let mut next = vec![0; size as usize];
            let mut sent = std::collections::HashMap::<(u32, u32), std::collections::VecDeque<u128>>::new();
            let mut awaited: Vec<Vec<u32>> = vec![Vec::new(); size as usize];
            let mut moved = true;
            while moved {
                moved = false;
                for rank in 0..size {
                    let at = rank as usize;
                    awaited[at].retain(|from| {
                        let message = sent.get_mut(&(*from, rank)).and_then(|queue| queue.pop_front());
                        message.inspect(|bits| heard[at] |= bits).is_none()
                    });
                    while let Some(step) = all[at].get(next[at]) {
                        match step {
                            Step::Fence if !awaited[at].is_empty() => break,
                            Step::Send { to, .. } => {
                                sent.entry((rank, *to)).or_default().push_back(heard[at]);
                            }
                            Step::Recv { from, .. } => awaited[at].push(*from),
                            _ => (),
                        }
                        next[at] += 1;
                        moved = true;
                    }
                }
                moved |= (0..size).any(|rank| {
                    awaited[rank as usize]
                        .iter()
                        .any(|from| sent.get(&(*from, rank)).is_some_and(|q| !q.is_empty()))
                });
            }
            let full = u128::MAX >> (128 - size);
            assert!(heard.iter().all(|bits| *bits == full), "{algorithm} on {size} ranks: {heard:x?}");
        }
        for size in SIZES {
            let report = simulate(algorithm, size, |rank| Arguments::new(rank, size), |_| [vec![], vec![]]);
            let rounds = match algorithm.name {
                "linear" => 2 * (size - 1),
                _ => ceil_log2(size),
            };
            assert_eq!(report.rounds, rounds, "{algorithm} on {size} ranks");
        }
    });
}

#[test]
fn bcast_copies_the_roots_items() {
    each(Operation::Bcast, |algorithm| {
        for size in SIZES {
            for root in roots(size) {
                let call = |rank| Arguments { root, count: COUNT, ..Arguments::new(rank, size) };
                let user = |rank| [vec![], if rank == root { own(root, COUNT) } else { empty(COUNT) }];
                let report = simulate(algorithm, size, call, user);
                assert!((0..size).all(|rank| received(&report, rank) == own(root, COUNT)));
                let rounds = if algorithm.name == "linear" { size - 1 } else { ceil_log2(size) };
                assert_eq!(report.rounds, rounds, "{algorithm} on {size} ranks");
            }
        }
    });
}

/// Runs `test` with each combination of the arguments of a reduction that can change the steps. Its last argument
/// returns the user's buffers.
fn each_reduction(
    algorithm: &Algorithm,
    count: impl Fn(u32) -> usize,
    test: impl Fn(u32, Arguments<'static>, &dyn Fn(u32) -> [Vec<Option<Term>>; 2]),
) {
    let needs_commutative = algorithm.requires.contains(&Requirement::Commutative);
    for size in SIZES {
        for (in_place, separate_bufs) in [(false, false), (false, true), (true, false), (true, true)] {
            for commutative in
                [false, true].into_iter().filter(|commutative| *commutative || !needs_commutative)
            {
                let count = count(size);
                let buf = if in_place { BufIndex::RECV } else { BufIndex::SEND };
                let own_span = Some(Span::new(buf, 0, count));
                let call =
                    Arguments { own: own_span, count, commutative, separate_bufs, ..Arguments::new(0, size) };
                test(size, call, &|rank| match in_place {
                    true => [vec![], own(rank, count)],
                    false => [own(rank, count), empty(count)],
                });
            }
        }
    }
}

#[test]
fn reduce_combines_in_rank_order() {
    each(Operation::Reduce, |algorithm| {
        each_reduction(
            algorithm,
            |_| COUNT,
            |size, call, user| {
                for root in roots(size) {
                    let in_place = call.own.is_some_and(|own| own.buf == BufIndex::RECV);
                    // Only the root has its items in place, and a receive buffer.
                    let send = Some(Span::new(BufIndex::SEND, 0, COUNT));
                    let call = |rank| {
                        let own = if in_place && rank == root { call.own } else { send };
                        Arguments { rank, root, own, ..call }
                    };
                    let user =
                        |rank| if rank == root { user(rank) } else { [own(rank, COUNT), empty(COUNT)] };
                    let report = simulate(algorithm, size, call, user);
                    let items = received(&report, root);
                    let first = if call(0).commutative { None } else { Some(0) };
                    assert!(
                        (0..COUNT).all(|item| is_all(items[item], item, size, first)),
                        "{algorithm}: {items:?}"
                    );
                    let rounds = match algorithm.name {
                        "linear" => size - 1,
                        _ => ceil_log2(size) + u32::from(!call(0).commutative && root != 0),
                    };
                    assert!(report.rounds <= rounds, "{algorithm} on {size} ranks: {} rounds", report.rounds);
                }
            },
        );
    });
}

#[test]
fn allreduce_gives_all_ranks_the_same_result() {
    each(Operation::Allreduce, |algorithm| {
        let count = |size: u32| match algorithm.requires.contains(&Requirement::ItemPerRank) {
            true => 2 * size as usize + 1,
            false => COUNT,
        };
        each_reduction(algorithm, count, |size, call, user| {
            let report = simulate(algorithm, size, |rank| Arguments { rank, ..call }, user);
            let items = received(&report, 0);
            let first = if call.commutative { None } else { Some(0) };
            for (index, item) in items.iter().enumerate() {
                assert!(is_all(*item, index, size, first), "{algorithm} on {size} ranks: {item:?}");
            }
            assert!((1..size).all(|rank| received(&report, rank) == items), "{algorithm} on {size} ranks");
            let (rounds, sent) = match algorithm.name {
                "linear" => (2 * (size - 1) + 1, call.count * (size as usize - 1)),
                "ring" => (2 * (size - 1), 2 * call.count.div_ceil(size as usize) * (size as usize - 1)),
                _ => (
                    size.ilog2() + 2 * u32::from(!size.is_power_of_two()),
                    call.count * (ceil_log2(size) as usize + 1),
                ),
            };
            assert!(report.rounds <= rounds && report.max_sent <= sent, "{algorithm} on {size} ranks");
        });
    });
}

/// Checks a reduction whose result is scattered in blocks of the lengths `len`, out of place and in place.
fn check_reduce_scatter(algorithm: &Algorithm, len: impl Fn(u32) -> usize) {
    let cases = SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]);
    for (size, in_place) in cases.filter(|(size, in_place)| !in_place || *size < 100) {
        let starts: Vec<usize> =
            (0..=size).scan(0, |at, r| Some(std::mem::replace(at, *at + len(r)))).collect();
        let total = starts[size as usize];
        let buf = if in_place { BufIndex::RECV } else { BufIndex::SEND };
        let send = |r: u32| Span::new(buf, starts[r as usize], len(r));
        let call = |rank| Arguments {
            count: len(rank),
            commutative: false,
            send: &send,
            ..Arguments::new(rank, size)
        };
        let user = |rank| match in_place {
            true => [vec![], own(rank, total)],
            false => [own(rank, total), empty(len(rank))],
        };
        let report = simulate(algorithm, size, call, user);
        for rank in 0..size {
            let expected = (starts[rank as usize]..).map(|item| combined(item, 0, size)).take(len(rank));
            let result = received(&report, rank).iter().copied().take(len(rank));
            assert!(result.eq(expected), "{algorithm} on {size} ranks, in place: {in_place}");
        }
        assert!(report.rounds < size.max(2));
    }
}

#[test]
fn reduce_scatter_combines_in_rank_order() {
    each(Operation::ReduceScatter, |algorithm| check_reduce_scatter(algorithm, |rank| rank as usize % 3));
    each(Operation::ReduceScatterBlock, |algorithm| check_reduce_scatter(algorithm, |_| COUNT));
}

#[test]
fn scan_combines_the_items_of_the_ranks_up_to_each() {
    each(Operation::Scan, |algorithm| {
        each_reduction(
            algorithm,
            |_| COUNT,
            |size, call, user| {
                if size > 100 && call.separate_bufs && algorithm.name != "linear" {
                    return;
                }
                let report = simulate(algorithm, size, |rank| Arguments { rank, ..call }, user);
                for rank in 0..size {
                    let items = received(&report, rank);
                    assert!((0..COUNT).all(|item| items[item] == combined(item, 0, rank + 1)), "{algorithm}");
                }
                let rounds = if algorithm.name == "linear" { 2 * size } else { ceil_log2(size) };
                assert!(report.rounds <= rounds, "{algorithm} on {size} ranks: {} rounds", report.rounds);
            },
        );
    });
}

#[test]
fn exscan_combines_the_items_of_the_ranks_below_each() {
    each(Operation::Exscan, |algorithm| {
        each_reduction(
            algorithm,
            |_| COUNT,
            |size, call, user| {
                if size > 100 && call.separate_bufs && algorithm.name != "linear" {
                    return;
                }
                let report = simulate(algorithm, size, |rank| Arguments { rank, ..call }, user);
                assert_eq!(received(&report, 0), user(0)[1], "the buffer of rank 0 is unchanged");
                for rank in 1..size {
                    let items = received(&report, rank);
                    assert!((0..COUNT).all(|item| items[item] == combined(item, 0, rank)), "{algorithm}");
                }
                let rounds = if algorithm.name == "linear" { 2 * size } else { ceil_log2(size) };
                assert!(report.rounds <= rounds, "{algorithm} on {size} ranks: {} rounds", report.rounds);
            },
        );
    });
}

/// Returns the starts of blocks of one to three items, the last of which is the total.
fn starts(size: u32) -> Vec<usize> {
    (0..=size).scan(0, |at, r| Some(std::mem::replace(at, *at + len(r)))).collect()
}

fn len(rank: u32) -> usize {
    1 + rank as usize % 3
}

fn gathered(size: u32) -> Vec<Option<Term>> {
    (0..size).flat_map(|rank| own(rank, len(rank))).collect()
}

#[test]
fn gather_collects_all_blocks_at_the_root() {
    each(Operation::Gather, |algorithm| {
        for size in SIZES {
            let starts = starts(size);
            let recv = |r: u32| Span::new(BufIndex::RECV, starts[r as usize], len(r));
            for root in roots(size) {
                let own_span = |rank| Some(Span::new(BufIndex::SEND, 0, len(rank)));
                let call =
                    |rank| Arguments { root, own: own_span(rank), recv: &recv, ..Arguments::new(rank, size) };
                let all = |rank| if rank == root { empty(starts[size as usize]) } else { vec![] };
                let user = |rank| [own(rank, len(rank)), all(rank)];
                let report = simulate(algorithm, size, call, user);
                assert_eq!(received(&report, root), gathered(size));
                assert_eq!(report.rounds, size - 1);
            }
        }
    });
}

#[test]
fn gather_works_with_one_buffer_per_rank() {
    each(Operation::Gather, |algorithm| {
        for (size, root) in SIZES.into_iter().flat_map(|size| roots(size).map(move |root| (size, root))) {
            let recv = |from: u32| Span::new(BufIndex::new(1 + from), 0, len(from));
            let own_span = |rank| Some(Span::new(BufIndex::SEND, 0, len(rank)));
            let call =
                |rank| Arguments { root, own: own_span(rank), recv: &recv, ..Arguments::new(rank, size) };
            let bufs = |rank: u32| {
                let separate_bufs = (0..if rank == root { size } else { 0 }).map(|from| empty(len(from)));
                std::iter::once(own(rank, len(rank))).chain(separate_bufs).collect::<Vec<_>>()
            };
            let report = run(size, |rank| steps(algorithm, &call(rank)), bufs).expect("a valid schedule");
            let of = |from: u32| &report.bufs[root as usize][1 + from as usize];
            assert!((0..size).all(|from| *of(from) == own(from, len(from))));
        }
    });
}

#[test]
fn scatter_sends_each_rank_its_block() {
    each(Operation::Scatter, |algorithm| {
        for size in SIZES {
            let starts = starts(size);
            let send = |r: u32| Span::new(BufIndex::SEND, starts[r as usize], len(r));
            for root in roots(size) {
                let into = |rank| Some(Span::new(BufIndex::RECV, 0, len(rank)));
                let call =
                    |rank| Arguments { root, into: into(rank), send: &send, ..Arguments::new(rank, size) };
                let all = |rank| if rank == root { own(rank, starts[size as usize]) } else { vec![] };
                let user = |rank| [all(rank), empty(len(rank))];
                let report = simulate(algorithm, size, call, user);
                for rank in 0..size {
                    let at = starts[rank as usize];
                    let expected = &own(root, starts[size as usize])[at..at + len(rank)];
                    assert_eq!(received(&report, rank), expected);
                }
                assert_eq!(report.rounds, size - 1);
            }
        }
    });
}

#[test]
fn allgather_sends_each_item_to_each_rank_once() {
    each(Operation::Allgather, |algorithm| {
        for (size, in_place) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
            if in_place && size > 100 {
                // In place, only the copy of a rank's own block differs: skip the slow simulation.
                continue;
            }
            let starts = starts(size);
            let recv = |r: u32| Span::new(BufIndex::RECV, starts[r as usize], len(r));
            let own_span = |rank| (!in_place).then(|| Span::new(BufIndex::SEND, 0, len(rank)));
            let call = |rank| Arguments { own: own_span(rank), recv: &recv, ..Arguments::new(rank, size) };
            let user = |rank: u32| {
                let mut all = empty(starts[size as usize]);
                if in_place {
                    all[starts[rank as usize]..][..len(rank)].copy_from_slice(&own(rank, len(rank)));
                }
                [own(rank, len(rank)), all]
            };
            let report = simulate(algorithm, size, call, user);
            let expected = gathered(size);
            assert!((0..size).all(|rank| received(&report, rank) == expected), "{algorithm}");
            assert_eq!(report.rounds, size - 1);
            assert!(report.max_sent <= 3 * (size as usize - 1));
        }
    });
}

#[test]
fn alltoall_sends_each_item_once() {
    each(Operation::Alltoall, |algorithm| {
        for (size, in_place) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
            if in_place && size > 100 {
                // In place, only the buffer from which the steps send differs: skip the slow simulation.
                continue;
            }
            let total = COUNT * size as usize;
            let block = |buf| move |rank: u32| Span::new(buf, COUNT * rank as usize, COUNT);
            let send = block(if in_place { BufIndex::new(2) } else { BufIndex::SEND });
            let recv = block(BufIndex::RECV);
            let call = |rank| Arguments { send: &send, recv: &recv, ..Arguments::new(rank, size) };
            let bufs = |rank| match in_place {
                true => [vec![], own(rank, total), own(rank, total)],
                false => [own(rank, total), empty(total), vec![]],
            };
            let report = run(size, |rank| steps(algorithm, &call(rank)), bufs).expect("a valid schedule");
            for rank in 0..size {
                let at = COUNT * rank as usize;
                let from = |r| (0..COUNT).map(move |item| Some(Term::own(at + item, r)));
                assert!(received(&report, rank).iter().copied().eq((0..size).flat_map(from)));
            }
            assert_eq!((report.rounds, report.max_sent), (size - 1, total - COUNT));
        }
    });
}

/// In an alltoallv each rank selects its algorithm by its own total, so ranks can use different ones.
#[test]
fn alltoall_algorithms_can_be_mixed_and_take_blocks_of_any_lengths() {
    let algorithms: Vec<&Algorithm> = mpj_collectives::algorithms_of(Operation::Alltoall).collect();
    let len = |from: u32, to: u32| (from as usize * 7 + to as usize * 3) % 4;
    let place = |rank: u32, lens: &dyn Fn(u32) -> usize| (0..rank).map(lens).sum::<usize>();
    for size in SIZES.into_iter().filter(|size| *size < 100) {
        let steps = |rank: u32| {
            let send = |to| Span::new(BufIndex::SEND, place(to, &|to| len(rank, to)), len(rank, to));
            let recv =
                |from| Span::new(BufIndex::RECV, place(from, &|from| len(from, rank)), len(from, rank));
            let arguments = Arguments { send: &send, recv: &recv, ..Arguments::new(rank, size) };
            steps(algorithms[rank as usize % algorithms.len()], &arguments)
        };
        let bufs = |rank| {
            let (sent, received) = (place(size, &|to| len(rank, to)), place(size, &|from| len(from, rank)));
            [own(rank, sent), empty(received)]
        };
        let report = run(size, steps, bufs).expect("all messages match");
        for rank in 0..size {
            let sent = |from: u32| {
                let at = place(rank, &|to| len(from, to));
                (at..at + len(from, rank)).map(move |item| Some(Term::own(item, from)))
            };
            assert!(received(&report, rank).iter().copied().eq((0..size).flat_map(sent)), "{size} ranks");
        }
    }
}

#[test]
fn alltoallw_sends_from_one_buffer_per_rank_into_another() {
    each(Operation::Alltoallw, |algorithm| {
        for size in SIZES.into_iter().filter(|size| *size < 100) {
            let len = |from: u32, to: u32| (from as usize * 7 + to as usize * 3) % 4;
            let steps = |rank: u32| {
                let send = |to| Span::new(BufIndex::new(to), 0, len(rank, to));
                let recv = |from| Span::new(BufIndex::new(size + from), 0, len(from, rank));
                steps(algorithm, &Arguments { send: &send, recv: &recv, ..Arguments::new(rank, size) })
            };
            let bufs = |rank| {
                let sent = (0..size).map(move |to| own(rank, len(rank, to)));
                sent.chain((0..size).map(move |from| empty(len(from, rank)))).collect::<Buffers>()
            };
            let report = run(size, steps, bufs).expect("a valid schedule");
            for (from, to) in (0..size).flat_map(|from| (0..size).map(move |to| (from, to))) {
                assert_eq!(report.bufs[to as usize][(size + from) as usize], own(from, len(from, to)));
            }
        }
    });
}

/// The rank before and the rank after in a ring, with the blocks 0 and 1. A rank is its own neighbour if it is alone, and
/// twice the neighbour of the only other one.
fn ring_neighbors(rank: u32, size: u32) -> ([Neighbor; 2], [Neighbor; 2]) {
    let before = Neighbor { rank: (rank + size - 1) % size, block: 0 };
    let after = Neighbor { rank: (rank + 1) % size, block: 1 };
    // The message to the rank before is the message from the rank after that one.
    ([after, before], [before, after])
}

#[test]
fn neighbours_of_a_ring_exchange_blocks() {
    for size in SIZES {
        let neighbors: Vec<_> = (0..size).map(|rank| ring_neighbors(rank, size)).collect();
        let block = |buf| move |block: u32| Span::new(buf, COUNT * block as usize, COUNT);
        let (send, recv) = (block(BufIndex::SEND), block(BufIndex::RECV));
        let call = |rank: u32| {
            let (sources, destinations) = &neighbors[rank as usize];
            Arguments {
                own: Some(send(0)),
                send: &send,
                recv: &recv,
                sources,
                destinations,
                ..Arguments::new(rank, size)
            }
        };
        let bufs = |rank| [own(rank, 2 * COUNT), empty(2 * COUNT)];
        let items = |from: u32, at: usize| (at..at + COUNT).map(move |item| Some(Term::own(item, from)));
        for (operation, [block_before, block_after]) in [
            (Operation::NeighborAllgather, [0, 0]),
            (Operation::NeighborAlltoall, [COUNT, 0]),
            (Operation::NeighborAlltoallw, [COUNT, 0]),
        ] {
            each(operation, |algorithm| {
                let report = simulate(algorithm, size, call, bufs);
                for rank in 0..size {
                    let (before, after) = ((rank + size - 1) % size, (rank + 1) % size);
                    let expected = items(before, block_before).chain(items(after, block_after));
                    assert!(
                        received(&report, rank).iter().copied().eq(expected),
                        "{algorithm}, {size} ranks"
                    );
                }
            });
        }
    }
}

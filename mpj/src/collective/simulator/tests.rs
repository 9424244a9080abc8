//! Simulations of every algorithm, with up to 1,000 ranks.

use super::super::step::{BufIndex, Span, Step};
use super::super::{all_to_all, reduce, rooted, scan};
use super::{Buffers, Report, Term, run};

/// The simulated numbers of ranks.
const SIZES: [u32; 9] = [1, 2, 3, 5, 8, 13, 16, 33, 1000];

fn roots(size: u32) -> impl Iterator<Item = u32> {
    let mut roots = vec![0, size / 2, size - 1];
    roots.dedup();
    roots.into_iter()
}

fn ceil_log2(size: u32) -> u32 {
    size.next_power_of_two().ilog2()
}

fn own(rank: u32, count: usize) -> Vec<Option<Term>> {
    (0..count).map(|item| Some(Term::own(item, rank))).collect()
}

fn empty(count: usize) -> Vec<Option<Term>> {
    vec![None; count]
}

/// Returns the combination of the items of `len` ranks from `first` on.
fn combined(item: usize, first: u32, len: u32) -> Option<Term> {
    Some(Term { item, first, len })
}

fn simulate<A: IntoIterator<Item = Vec<Option<Term>>>>(
    name: &str,
    size: u32,
    steps: impl Fn(u32) -> Vec<Step>,
    bufs: impl Fn(u32) -> A,
) -> Report {
    run(size, steps, bufs).unwrap_or_else(|error| panic!("{name} on {size} ranks: {error}"))
}

fn received(report: &Report, rank: u32) -> &[Option<Term>] {
    &report.bufs[rank as usize][BufIndex::RECV.index()]
}

#[test]
fn barrier_takes_log2_rounds() {
    for size in SIZES {
        let report = simulate("barrier", size, |rank| rooted::barrier(rank, size), |_| Buffers::new());
        assert_eq!(report.rounds, ceil_log2(size));
    }
}

#[test]
fn linear_barrier_sends_two_messages_per_other_rank() {
    for size in SIZES {
        let steps = |rank| rooted::barrier_linear(rank, size);
        let report = simulate("linear barrier", size, steps, |_| Buffers::new());
        // Rank 0 waits for all ranks before it releases the first.
        let at = |wanted: fn(&Step) -> bool| steps(0).iter().position(wanted);
        let (fence, release) =
            (at(|step| matches!(step, Step::Fence)), at(|step| matches!(step, Step::Send { .. })));
        assert!(size == 1 || fence < release);
        let messages = |step: &Step| matches!(step, Step::Send { .. });
        let sent: usize = (0..size).map(|rank| steps(rank).into_iter().filter(messages).count()).sum();
        assert_eq!((sent, report.rounds), (2 * (size as usize - 1), 2 * (size - 1)));
    }
}

#[test]
fn tree_bcast_takes_log2_rounds_and_linear_bcast_one_per_other_rank() {
    const COUNT: usize = 3;
    for size in SIZES {
        for root in roots(size) {
            let bufs = |rank| {
                let items = if rank == root { own(root, COUNT) } else { empty(COUNT) };
                [vec![], items, vec![], vec![]]
            };
            let report = simulate("bcast", size, |rank| rooted::bcast(rank, size, root, COUNT), bufs);
            assert!((0..size).all(|rank| received(&report, rank) == own(root, COUNT)));
            assert_eq!(report.rounds, ceil_log2(size));
            let steps = |rank| rooted::bcast_linear(rank, size, root, COUNT);
            let report = simulate("linear bcast", size, steps, bufs);
            assert!((0..size).all(|rank| received(&report, rank) == own(root, COUNT)));
            assert_eq!(report.rounds, size - 1);
        }
    }
}

#[test]
fn reductions_combine_in_rank_order() {
    const COUNT: usize = 2;
    for size in SIZES {
        for root in roots(size) {
            for commutative in [false, true] {
                let own_span = Span::new(BufIndex::SEND, 0, COUNT);
                let steps = |rank| reduce::reduce(rank, size, root, own_span, COUNT, commutative);
                let bufs = |rank| [own(rank, COUNT), empty(COUNT), empty(COUNT), empty(COUNT)];
                let report = simulate("reduce", size, steps, bufs);
                let first = if commutative { root } else { 0 };
                assert!((0..COUNT).all(|item| received(&report, root)[item] == combined(item, first, size)));
                assert!(report.rounds <= ceil_log2(size) + u32::from(first != root));
            }
        }
    }
}

/// Returns the buffers of a rank that receives from others into one temporary buffer, or into one for each.
fn with_temp(
    rank: u32,
    in_place: bool,
    others: u32,
    separate_bufs: bool,
    count: usize,
) -> Vec<Vec<Option<Term>>> {
    let user = match in_place {
        true => [vec![], own(rank, count)],
        false => [own(rank, count), empty(count)],
    };
    let temps = if separate_bufs { others } else { others.min(1) };
    user.into_iter().chain((0..temps).map(|_| empty(count))).collect()
}

#[test]
fn linear_reductions_combine_in_rank_order() {
    const COUNT: usize = 2;
    for size in SIZES {
        for (in_place, separate_bufs) in [(false, false), (false, true), (true, false), (true, true)] {
            let own_span = Span::new(if in_place { BufIndex::RECV } else { BufIndex::SEND }, 0, COUNT);
            let all = |report: &Report, rank: u32, len: u32| {
                (0..COUNT).all(|item| received(report, rank)[item] == combined(item, 0, len))
            };
            for root in roots(size) {
                let steps = |rank| reduce::reduce_linear(rank, size, root, own_span, COUNT, separate_bufs);
                let temps = |rank| if rank == root { size - 1 } else { 0 };
                let bufs = |rank| with_temp(rank, in_place, temps(rank), separate_bufs, COUNT);
                let report = simulate("linear reduce", size, steps, bufs);
                assert!(all(&report, root, size));
                assert_eq!(report.rounds, size - 1);
            }
            let steps = |rank| reduce::allreduce_linear(rank, size, own_span, COUNT, separate_bufs);
            let temps = |rank| if rank == 0 { size - 1 } else { 0 };
            let bufs = |rank| with_temp(rank, in_place, temps(rank), separate_bufs, COUNT);
            let report = simulate("linear allreduce", size, steps, bufs);
            assert!((0..size).all(|rank| all(&report, rank, size)));
            let steps = |rank| scan::scan_linear(rank, size, own_span, COUNT, separate_bufs);
            let bufs = |rank| with_temp(rank, in_place, rank, separate_bufs, COUNT);
            let report = simulate("linear scan", size, steps, bufs);
            assert!((0..size).all(|rank| all(&report, rank, rank + 1)));
        }
    }
}

#[test]
fn recursive_doubling_combines_in_rank_order() {
    const COUNT: usize = 2;
    for size in SIZES {
        for in_place in [false, true] {
            let buf = if in_place { BufIndex::RECV } else { BufIndex::SEND };
            let own_span = Span::new(buf, 0, COUNT);
            let bufs = |rank| match in_place {
                true => [vec![], own(rank, COUNT), empty(COUNT), vec![]],
                false => [own(rank, COUNT), empty(COUNT), empty(COUNT), vec![]],
            };
            let steps = |rank| reduce::allreduce_recursive_doubling(rank, size, own_span, COUNT);
            let report = simulate("allreduce", size, steps, bufs);
            let expected: Vec<Option<Term>> = (0..COUNT).map(|item| combined(item, 0, size)).collect();
            assert!((0..size).all(|rank| received(&report, rank) == expected));
            assert!(report.rounds <= size.ilog2() + 2 * u32::from(!size.is_power_of_two()));
        }
    }
}

#[test]
fn ring_allreduce_takes_two_rounds_per_other_rank() {
    for size in SIZES {
        let count = 2 * size as usize + 1;
        let block = reduce::block_range(0, size, count).1;
        let steps = |rank| reduce::allreduce_ring(rank, size, Span::new(BufIndex::SEND, 0, count), count);
        let bufs = |rank| [own(rank, count), empty(count), empty(block), vec![]];
        let report = simulate("allreduce around a ring", size, steps, bufs);
        // The reduction of each block begins at another rank.
        let items = received(&report, 0);
        assert!(
            items.iter().zip(0..).all(|(term, item)| term.is_some_and(|t| t.item == item && t.len == size))
        );
        assert!((1..size).all(|rank| received(&report, rank) == items));
        assert_eq!(report.rounds, 2 * (size - 1));
        assert!(report.max_sent <= 2 * block * (size as usize - 1));
    }
}

#[test]
fn reduce_scatter_combines_in_rank_order() {
    for size in SIZES {
        let len = |rank: u32| rank as usize % 3;
        let starts: Vec<usize> =
            (0..=size).scan(0, |at, r| Some(std::mem::replace(at, *at + len(r)))).collect();
        let total = starts[size as usize];
        let steps = |rank| reduce::reduce_scatter(rank, size, &|r| (starts[r as usize], len(r)), len(rank));
        let bufs = |rank| [own(rank, total), empty(len(rank)), empty(len(rank)), empty(len(rank))];
        let report = simulate("reduce_scatter", size, steps, bufs);
        for rank in 0..size {
            let expected = (starts[rank as usize]..).map(|item| combined(item, 0, size));
            assert!(received(&report, rank).iter().copied().eq(expected.take(len(rank))));
        }
        assert!(report.rounds < size.max(2));
    }
}

#[test]
fn scan_combines_in_rank_order() {
    const COUNT: usize = 2;
    for size in SIZES {
        let own_span = Span::new(BufIndex::SEND, 0, COUNT);
        let bufs = |rank| [own(rank, COUNT), empty(COUNT), empty(COUNT), vec![]];
        let report = simulate("scan", size, |rank| scan::scan(rank, size, own_span, COUNT), bufs);
        for rank in 0..size {
            assert!((0..COUNT).all(|item| received(&report, rank)[item] == combined(item, 0, rank + 1)));
        }
        assert_eq!(report.rounds, ceil_log2(size));
    }
}

/// Returns a function from a rank to the start and length of its block of one to three items, and the total.
fn blocks(size: u32) -> (impl Fn(u32) -> (usize, usize), usize) {
    let len = |rank: u32| 1 + rank as usize % 3;
    let starts: Vec<usize> = (0..=size).scan(0, |at, r| Some(std::mem::replace(at, *at + len(r)))).collect();
    let total = starts[size as usize];
    (move |rank: u32| (starts[rank as usize], len(rank)), total)
}

fn gathered(size: u32, of: impl Fn(u32) -> usize) -> Vec<Option<Term>> {
    (0..size).flat_map(|rank| own(rank, of(rank))).collect()
}

#[test]
fn gather_and_scatter_take_one_round_per_other_rank() {
    for size in SIZES {
        let (block, total) = blocks(size);
        let whole = |buf, rank| Some(Span::new(buf, 0, block(rank).1));
        for root in roots(size) {
            let bufs = |rank| [own(rank, block(rank).1), empty(total), vec![], vec![]];
            let into = |rank| Span::new(BufIndex::RECV, block(rank).0, block(rank).1);
            let steps = |rank| rooted::gather(rank, size, root, whole(BufIndex::SEND, rank), &into);
            let report = simulate("gather", size, steps, bufs);
            assert_eq!(received(&report, root), gathered(size, |rank| block(rank).1));
            assert_eq!(report.rounds, size - 1);

            let bufs = |rank| [own(rank, total), empty(block(rank).1), vec![], vec![]];
            let steps = |rank| rooted::scatter(rank, size, root, &block, whole(BufIndex::RECV, rank));
            let report = simulate("scatter", size, steps, bufs);
            for rank in 0..size {
                let (at, count) = block(rank);
                assert_eq!(received(&report, rank), &own(root, total)[at..at + count]);
            }
            assert_eq!(report.rounds, size - 1);
        }
    }
}

#[test]
fn gather_into_one_buffer_per_rank_is_correct() {
    for size in SIZES {
        let (block, _) = blocks(size);
        let len = |rank| block(rank).1;
        for root in roots(size) {
            let bufs = |rank: u32| {
                let separate_bufs = (0..if rank == root { size } else { 0 }).map(|from| empty(len(from)));
                std::iter::once(own(rank, len(rank))).chain(separate_bufs).collect::<Vec<_>>()
            };
            let into = |from: u32| Span::new(BufIndex::new(1 + from), 0, len(from));
            let own_span = |rank| Some(Span::new(BufIndex::SEND, 0, len(rank)));
            let report = simulate(
                "gather",
                size,
                |rank| rooted::gather(rank, size, root, own_span(rank), &into),
                bufs,
            );
            assert!(
                (0..size).all(|from| report.bufs[root as usize][1 + from as usize] == own(from, len(from)))
            );
            assert_eq!(report.rounds, size - 1);
        }
    }
}

#[test]
fn allgather_sends_each_item_to_each_rank_once() {
    for size in SIZES {
        let (block, total) = blocks(size);
        for is_linear in [false, true] {
            let own_span = |rank| Some(Span::new(BufIndex::SEND, 0, block(rank).1));
            let bufs = |rank| [own(rank, block(rank).1), empty(total), vec![], vec![]];
            let steps = |rank| all_to_all::allgather(rank, size, own_span(rank), &block, is_linear);
            let report = simulate("allgather", size, steps, bufs);
            let expected = gathered(size, |rank| block(rank).1);
            assert!((0..size).all(|rank| received(&report, rank) == expected));
            assert_eq!(report.rounds, size - 1);
            assert!(report.max_sent <= 3 * (size as usize - 1));
        }
    }
}

#[test]
fn alltoall_sends_each_item_once() {
    for size in SIZES {
        let block = |rank: u32| (2 * rank as usize, 2);
        let total = 2 * size as usize;
        for (is_linear, in_place) in [(false, false), (true, false), (false, true), (true, true)] {
            if in_place && size > 100 {
                // In place, only the buffer from which the steps send differs: skip the slow simulation.
                continue;
            }
            let buf = if in_place { BufIndex::TEMP } else { BufIndex::SEND };
            let steps = |rank| all_to_all::alltoall(rank, size, (buf, &block), &block, is_linear);
            let bufs = |rank| match in_place {
                true => [vec![], own(rank, total), own(rank, total), vec![]],
                false => [own(rank, total), empty(total), vec![], vec![]],
            };
            let report = simulate("alltoall", size, steps, bufs);
            for rank in 0..size {
                let at = block(rank).0;
                let from = |r| [Some(Term::own(at, r)), Some(Term::own(at + 1, r))];
                assert!(received(&report, rank).iter().copied().eq((0..size).flat_map(from)));
            }
            assert_eq!((report.rounds, report.max_sent), (size - 1, total - 2));
        }
    }
}

#[test]
fn invalid_schedules_are_detected() {
    let span = |at| Span::new(BufIndex::RECV, at, 1);
    let bufs = |rank| [own(rank, 2), own(rank, 2), empty(2), vec![]];
    let assert_detected = |steps: [Vec<Step>; 2], error: &str| {
        let result = run(2, |rank| steps[rank as usize].clone(), bufs).map(|report| report.rounds);
        assert!(result.as_ref().is_err_and(|result| result.contains(error)), "{result:?} is not: {error}");
    };
    let (send, receive) = (|to| Step::Send { to, from: span(0) }, |from| Step::Recv { from, into: span(1) });
    assert_detected(
        [vec![send(1), Step::Fence, receive(1)], vec![send(0), Step::Fence, receive(0)]],
        "is unmatched",
    );
    assert_detected([vec![receive(1)], vec![]], "is unmatched");
    assert_detected([vec![receive(1), receive(1)], vec![send(0), send(0)]], "into items in use");
    assert_detected(
        [vec![send(1), Step::Recv { from: 1, into: span(0) }], vec![receive(0), send(0)]],
        "into items in use",
    );
    assert_detected(
        [vec![Step::Send { to: 1, from: Span::new(BufIndex::RECV, 0, 2) }], vec![receive(0)]],
        "which expects 1",
    );
    assert_detected(
        [vec![Step::Copy { from: Span::new(BufIndex::TEMP, 0, 1), into: span(0) }], vec![]],
        "unwritten items",
    );
    assert_detected([vec![Step::Copy { from: span(1), into: span(2) }], vec![]], "exceeds the 2 items");
    let reduce = |order| Step::ReduceLocal { from: Span::new(BufIndex::TEMP, 1, 1), into: span(1), order };
    let exchange = |order| {
        vec![Step::Recv { from: 1, into: Span::new(BufIndex::TEMP, 1, 1) }, Step::Fence, reduce(order)]
    };
    let send_one = vec![Step::Send { to: 0, from: span(1) }];
    let right = run(
        2,
        |rank| if rank == 0 { exchange(crate::op::OperandOrder::IncomingLast) } else { send_one.clone() },
        bufs,
    );
    assert_eq!(right.expect("in order").bufs[0][BufIndex::RECV.index()][1], combined(1, 0, 2));
    let early = vec![
        Step::Recv { from: 1, into: Span::new(BufIndex::TEMP, 1, 1) },
        reduce(crate::op::OperandOrder::IncomingLast),
    ];
    assert_detected([early, send_one], "unwritten items");
}

//! Simulations of every algorithm, with up to 1,000 ranks: results, rounds and message counts.

use super::super::step::{BufIndex, Span, Step};
use super::super::{all, reduce, rooted, scan};
use super::{Areas, Report, Term, run};

/// The simulated numbers of ranks; the last is far larger than a job on a test machine.
const SIZES: [u32; 9] = [1, 2, 3, 5, 8, 13, 16, 33, 1000];

/// The first rank, the last one, and one in between.
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
    areas: impl Fn(u32) -> A,
) -> Report {
    run(size, steps, areas).unwrap_or_else(|why| panic!("{name} on {size} ranks: {why}"))
}

fn received(report: &Report, rank: u32) -> &[Option<Term>] {
    &report.areas[rank as usize][BufIndex::RECV.number()]
}

#[test]
fn barriers_take_as_many_rounds_as_there_are_doublings() {
    for size in SIZES {
        let report = simulate("barrier", size, |rank| rooted::barrier(rank, size), |_| Areas::new());
        assert_eq!(report.rounds, ceil_log2(size));
    }
}

#[test]
fn barriers_at_one_rank_send_two_messages_a_rank() {
    for size in SIZES {
        let steps = |rank| rooted::barrier_flat(rank, size);
        let report = simulate("flat barrier", size, steps, |_| Areas::new());
        // No rank leaves the barrier before all have entered it.
        let at = |wanted: fn(&Step) -> bool| steps(0).iter().position(wanted);
        let (line, told) =
            (at(|step| matches!(step, Step::Fence)), at(|step| matches!(step, Step::Send { .. })));
        assert!(size == 1 || line < told);
        let messages = |step: &Step| matches!(step, Step::Send { .. });
        let sent: usize = (0..size).map(|rank| steps(rank).into_iter().filter(messages).count()).sum();
        assert_eq!((sent, report.rounds), (2 * (size as usize - 1), 2 * (size - 1)));
    }
}

#[test]
fn broadcasts_reach_everybody_in_as_many_rounds_as_there_are_doublings() {
    const COUNT: usize = 3;
    for size in SIZES {
        for root in roots(size) {
            let areas = |rank| {
                let items = if rank == root { own(root, COUNT) } else { empty(COUNT) };
                [vec![], items, vec![], vec![]]
            };
            let report = simulate("bcast", size, |rank| rooted::bcast(rank, size, root, COUNT), areas);
            assert!((0..size).all(|rank| received(&report, rank) == own(root, COUNT)));
            assert_eq!(report.rounds, ceil_log2(size));
            let steps = |rank| rooted::bcast_linear(rank, size, root, COUNT);
            let report = simulate("flat bcast", size, steps, areas);
            assert!((0..size).all(|rank| received(&report, rank) == own(root, COUNT)));
            assert_eq!(report.rounds, size - 1);
        }
    }
}

#[test]
fn reductions_are_in_order_of_rank() {
    const COUNT: usize = 2;
    for size in SIZES {
        for root in roots(size) {
            for commutative in [false, true] {
                let mine = Span::new(BufIndex::SEND, 0, COUNT);
                let steps = |rank| reduce::reduce(rank, size, root, mine, COUNT, commutative);
                let areas = |rank| [own(rank, COUNT), empty(COUNT), empty(COUNT), empty(COUNT)];
                let report = simulate("reduce", size, steps, areas);
                let first = if commutative { root } else { 0 };
                assert!((0..COUNT).all(|item| received(&report, root)[item] == combined(item, first, size)));
                assert!(report.rounds <= ceil_log2(size) + u32::from(first != root));
            }
        }
    }
}

/// Returns the areas of a rank that receives from others into one temporary area, or into one for each.
fn with_rooms(rank: u32, in_place: bool, others: u32, apart: bool, count: usize) -> Vec<Vec<Option<Term>>> {
    let lent = match in_place {
        true => [vec![], own(rank, count)],
        false => [own(rank, count), empty(count)],
    };
    let rooms = if apart { others } else { others.min(1) };
    lent.into_iter().chain((0..rooms).map(|_| empty(count))).collect()
}

#[test]
fn flat_reductions_are_in_order_of_rank_also_in_place() {
    const COUNT: usize = 2;
    for size in SIZES {
        for (in_place, apart) in [(false, false), (false, true), (true, false), (true, true)] {
            let mine = Span::new(if in_place { BufIndex::RECV } else { BufIndex::SEND }, 0, COUNT);
            let all = |report: &Report, rank: u32, len: u32| {
                (0..COUNT).all(|item| received(report, rank)[item] == combined(item, 0, len))
            };
            for root in roots(size) {
                let steps = |rank| reduce::reduce_flat(rank, size, root, mine, COUNT, apart);
                let rooms = |rank| if rank == root { size - 1 } else { 0 };
                let areas = |rank| with_rooms(rank, in_place, rooms(rank), apart, COUNT);
                let report = simulate("flat reduce", size, steps, areas);
                assert!(all(&report, root, size));
                assert_eq!(report.rounds, size - 1);
            }
            let steps = |rank| reduce::allreduce_flat(rank, size, mine, COUNT, apart);
            let rooms = |rank| if rank == 0 { size - 1 } else { 0 };
            let areas = |rank| with_rooms(rank, in_place, rooms(rank), apart, COUNT);
            let report = simulate("flat allreduce", size, steps, areas);
            assert!((0..size).all(|rank| all(&report, rank, size)));
            let steps = |rank| scan::scan_flat(rank, size, mine, COUNT, apart);
            let areas = |rank| with_rooms(rank, in_place, rank, apart, COUNT);
            let report = simulate("flat scan", size, steps, areas);
            assert!((0..size).all(|rank| all(&report, rank, rank + 1)));
        }
    }
}

#[test]
fn short_allreduces_are_in_order_of_rank_also_in_place() {
    const COUNT: usize = 2;
    for size in SIZES {
        for in_place in [false, true] {
            let area = if in_place { BufIndex::RECV } else { BufIndex::SEND };
            let mine = Span::new(area, 0, COUNT);
            let areas = |rank| match in_place {
                true => [vec![], own(rank, COUNT), empty(COUNT), vec![]],
                false => [own(rank, COUNT), empty(COUNT), empty(COUNT), vec![]],
            };
            let steps = |rank| reduce::allreduce_recursive_doubling(rank, size, mine, COUNT);
            let report = simulate("allreduce", size, steps, areas);
            let expected: Vec<Option<Term>> = (0..COUNT).map(|item| combined(item, 0, size)).collect();
            assert!((0..size).all(|rank| received(&report, rank) == expected));
            assert!(report.rounds <= size.ilog2() + 2 * u32::from(!size.is_power_of_two()));
        }
    }
}

#[test]
fn long_allreduces_send_each_item_twice() {
    for size in SIZES {
        let count = 2 * size as usize + 1;
        let block = reduce::ring_block(0, size, count).1;
        let steps = |rank| reduce::allreduce_ring(rank, size, Span::new(BufIndex::SEND, 0, count), count);
        let areas = |rank| [own(rank, count), empty(count), empty(block), vec![]];
        let report = simulate("allreduce around a ring", size, steps, areas);
        // The reduction of each block begins at a different rank, which is the same on all ranks.
        let items = received(&report, 0);
        assert!(
            items.iter().zip(0..).all(|(term, item)| term.is_some_and(|t| t.item == item && t.len == size))
        );
        assert!((1..size).all(|rank| received(&report, rank) == items));
        assert_eq!(report.rounds, 2 * (size - 1));
        assert!(report.most_sent <= 2 * block * (size as usize - 1));
    }
}

#[test]
fn scattered_reductions_are_in_order_of_rank() {
    for size in SIZES {
        // Rank r gets r mod 3 items.
        let len = |rank: u32| rank as usize % 3;
        let starts: Vec<usize> =
            (0..=size).scan(0, |at, r| Some(std::mem::replace(at, *at + len(r)))).collect();
        let total = starts[size as usize];
        let steps = |rank| reduce::reduce_scatter(rank, size, &|r| (starts[r as usize], len(r)), len(rank));
        let areas = |rank| [own(rank, total), empty(len(rank)), empty(len(rank)), empty(len(rank))];
        let report = simulate("reduce_scatter", size, steps, areas);
        for rank in 0..size {
            let expected = (starts[rank as usize]..).map(|item| combined(item, 0, size));
            assert!(received(&report, rank).iter().copied().eq(expected.take(len(rank))));
        }
        assert!(report.rounds < size.max(2));
    }
}

#[test]
fn scans_are_in_order_of_rank() {
    const COUNT: usize = 2;
    for size in SIZES {
        let mine = Span::new(BufIndex::SEND, 0, COUNT);
        let areas = |rank| [own(rank, COUNT), empty(COUNT), empty(COUNT), vec![]];
        let report = simulate("scan", size, |rank| scan::scan(rank, size, mine, COUNT), areas);
        for rank in 0..size {
            assert!((0..COUNT).all(|item| received(&report, rank)[item] == combined(item, 0, rank + 1)));
        }
        assert_eq!(report.rounds, ceil_log2(size));
    }
}

/// Returns the start and the number of each rank's items among those of all: one, two or three each.
fn blocks(size: u32) -> (impl Fn(u32) -> (usize, usize), usize) {
    let len = |rank: u32| 1 + rank as usize % 3;
    let starts: Vec<usize> = (0..=size).scan(0, |at, r| Some(std::mem::replace(at, *at + len(r)))).collect();
    let total = starts[size as usize];
    (move |rank: u32| (starts[rank as usize], len(rank)), total)
}

/// Returns every rank's own items, one rank after the other.
fn gathered(size: u32, of: impl Fn(u32) -> usize) -> Vec<Option<Term>> {
    (0..size).flat_map(|rank| own(rank, of(rank))).collect()
}

#[test]
fn gathers_and_scatters_take_a_round_a_rank() {
    for size in SIZES {
        let (block, total) = blocks(size);
        let whole = |area, rank| Some(Span::new(area, 0, block(rank).1));
        for root in roots(size) {
            let areas = |rank| [own(rank, block(rank).1), empty(total), vec![], vec![]];
            let into = |rank| Span::new(BufIndex::RECV, block(rank).0, block(rank).1);
            let steps = |rank| rooted::gather(rank, size, root, whole(BufIndex::SEND, rank), &into);
            let report = simulate("gather", size, steps, areas);
            assert_eq!(received(&report, root), gathered(size, |rank| block(rank).1));
            assert_eq!(report.rounds, size - 1);

            let areas = |rank| [own(rank, total), empty(block(rank).1), vec![], vec![]];
            let steps = |rank| rooted::scatter(rank, size, root, &block, whole(BufIndex::RECV, rank));
            let report = simulate("scatter", size, steps, areas);
            for rank in 0..size {
                let (at, count) = block(rank);
                assert_eq!(received(&report, rank), &own(root, total)[at..at + count]);
            }
            assert_eq!(report.rounds, size - 1);
        }
    }
}

#[test]
fn gathers_may_place_each_ranks_items_in_memory_of_their_own() {
    for size in SIZES {
        let (block, _) = blocks(size);
        let len = |rank| block(rank).1;
        for root in roots(size) {
            let areas = |rank: u32| {
                let apart = (0..if rank == root { size } else { 0 }).map(|from| empty(len(from)));
                std::iter::once(own(rank, len(rank))).chain(apart).collect::<Vec<_>>()
            };
            let into = |from: u32| Span::new(BufIndex::of(1 + from), 0, len(from));
            let mine = |rank| Some(Span::new(BufIndex::SEND, 0, len(rank)));
            let report =
                simulate("gather", size, |rank| rooted::gather(rank, size, root, mine(rank), &into), areas);
            assert!(
                (0..size).all(|from| report.areas[root as usize][1 + from as usize] == own(from, len(from)))
            );
            assert_eq!(report.rounds, size - 1);
        }
    }
}

#[test]
fn allgathers_send_each_item_to_everybody_once() {
    for size in SIZES {
        let (block, total) = blocks(size);
        for is_direct in [false, true] {
            let mine = |rank| Some(Span::new(BufIndex::SEND, 0, block(rank).1));
            let areas = |rank| [own(rank, block(rank).1), empty(total), vec![], vec![]];
            let steps = |rank| all::allgather(rank, size, mine(rank), &block, is_direct);
            let report = simulate("allgather", size, steps, areas);
            let expected = gathered(size, |rank| block(rank).1);
            assert!((0..size).all(|rank| received(&report, rank) == expected));
            assert_eq!(report.rounds, size - 1);
            assert!(report.most_sent <= 3 * (size as usize - 1));
        }
    }
}

#[test]
fn alltoalls_send_each_item_once_also_in_place() {
    for size in SIZES {
        let block = |rank: u32| (2 * rank as usize, 2);
        let total = 2 * size as usize;
        for (is_direct, in_place) in [(false, false), (true, false), (false, true), (true, true)] {
            if in_place && size > 100 {
                // The second half sends the same number of messages, and no new items.
                continue;
            }
            let area = if in_place { BufIndex::TEMP } else { BufIndex::SEND };
            let steps = |rank| all::alltoall(rank, size, (area, &block), &block, is_direct);
            let areas = |rank| match in_place {
                true => [vec![], own(rank, total), own(rank, total), vec![]],
                false => [own(rank, total), empty(total), vec![], vec![]],
            };
            let report = simulate("alltoall", size, steps, areas);
            for rank in 0..size {
                let at = block(rank).0;
                let from = |r| [Some(Term::own(at, r)), Some(Term::own(at + 1, r))];
                assert!(received(&report, rank).iter().copied().eq((0..size).flat_map(from)));
            }
            assert_eq!((report.rounds, report.most_sent), (size - 1, total - 2));
        }
    }
}

/// The simulator detects each of these errors.
#[test]
fn wrong_schedules_are_found() {
    let span = |at| Span::new(BufIndex::RECV, at, 1);
    let areas = |rank| [own(rank, 2), own(rank, 2), empty(2), vec![]];
    let find = |steps: [Vec<Step>; 2], why: &str| {
        let told = run(2, |rank| steps[rank as usize].clone(), areas).map(|report| report.rounds);
        assert!(told.as_ref().is_err_and(|told| told.contains(why)), "{told:?} is not: {why}");
    };
    let (send, receive) = (|to| Step::Send { to, from: span(0) }, |from| Step::Recv { from, into: span(1) });
    find([vec![send(1), Step::Fence, receive(1)], vec![send(0), Step::Fence, receive(0)]], "no other side");
    find([vec![receive(1)], vec![]], "no other side");
    find([vec![receive(1), receive(1)], vec![send(0), send(0)]], "into what is in use");
    find(
        [vec![send(1), Step::Recv { from: 1, into: span(0) }], vec![receive(0), send(0)]],
        "into what is in use",
    );
    find(
        [vec![Step::Send { to: 1, from: Span::new(BufIndex::RECV, 0, 2) }], vec![receive(0)]],
        "which expects 1",
    );
    find([vec![Step::Copy { from: Span::new(BufIndex::TEMP, 0, 1), into: span(0) }], vec![]], "not there");
    find([vec![Step::Copy { from: span(1), into: span(2) }], vec![]], "leaves its 2 items");
    let fold = |order| Step::ReduceLocal { from: Span::new(BufIndex::TEMP, 1, 1), into: span(1), order };
    let crossed =
        |order| vec![Step::Recv { from: 1, into: Span::new(BufIndex::TEMP, 1, 1) }, Step::Fence, fold(order)];
    let give = vec![Step::Send { to: 0, from: span(1) }];
    let right = run(
        2,
        |rank| if rank == 0 { crossed(crate::op::OperandOrder::IncomingLast) } else { give.clone() },
        areas,
    );
    assert_eq!(right.expect("in order").areas[0][BufIndex::RECV.number()][1], combined(1, 0, 2));
    let early = vec![
        Step::Recv { from: 1, into: Span::new(BufIndex::TEMP, 1, 1) },
        fold(crate::op::OperandOrder::IncomingLast),
    ];
    find([early, give], "not there");
}

//! Collectives, measured after a barrier and back to back. Follows the C program `coll.c` (see [`super`]).

use std::path::Path;

use mpj::coll::{self, Algorithm, Operation, Requirement, Rules};
use mpj::{Error, Intracomm, Op, World};

use super::Failure;
use super::memory::{PAGE, Pages};
use super::plot::{Curve, CurveStyle, Lines, Page, Panel, Point};
use super::report::Report;
use super::stats::{now_ns, quantile_f64, repeats};

/// In bytes. The C program uses the first, the third, the fifth and the last.
const SIZES: [usize; 7] = [8, 128, 1024, 8192, 32768, 262_144, 1_048_576];

/// Returns `max_bytes` rounded down to whole elements, if that is not 0, and the sizes below that.
fn sizes(max_bytes: usize) -> Vec<usize> {
    let max = max_bytes / size_of::<f64>() * size_of::<f64>();
    let mut sizes: Vec<usize> = SIZES.into_iter().filter(|bytes| *bytes < max).collect();
    sizes.extend((max > 0).then_some(max));
    sizes
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
    Allgather,
    Alltoall,
    Gather,
    Scatter,
    ReduceScatter,
    ReduceScatterBlock,
    Scan,
    Exscan,
    Alltoallw,
}

const CALLS: [(Call, &str); 13] = [
    (Call::Barrier, "barrier"),
    (Call::Bcast, "bcast"),
    (Call::Reduce, "reduce"),
    (Call::Allreduce, "allreduce"),
    (Call::Allgather, "allgather"),
    (Call::Alltoall, "alltoall"),
    (Call::Gather, "gather"),
    (Call::Scatter, "scatter"),
    (Call::ReduceScatter, "reduce_scatter"),
    (Call::ReduceScatterBlock, "reduce_scatter_block"),
    (Call::Scan, "scan"),
    (Call::Exscan, "exscan"),
    (Call::Alltoallw, "alltoallw"),
];

impl Call {
    /// Calls the operation; `n` is the number of elements of a vector, or of the block of each rank.
    #[inline]
    fn once(
        self,
        world: &Intracomm,
        (send, recv): (&mut [f64], &mut [f64]),
        counts: &mut [usize],
        n: usize,
    ) -> Result<(), Error> {
        let all = n * world.size();
        match self {
            Call::Barrier => world.barrier(),
            Call::Bcast => world.bcast(&mut send[..n], 0),
            Call::Reduce => world.reduce(&send[..n], &mut recv[..n], Op::Sum, 0),
            Call::Allreduce => world.allreduce(&send[..n], &mut recv[..n], Op::Sum),
            Call::Allgather => world.allgather(&send[..n], &mut recv[..all]),
            Call::Alltoall => world.alltoall(&send[..all], &mut recv[..all]),
            Call::Gather => world.gather(&send[..n], &mut recv[..all], 0),
            Call::Scatter => world.scatter(&send[..all], &mut recv[..n], 0),
            Call::ReduceScatter => {
                let (each, rest) = (n / world.size(), n % world.size());
                let blocks = counts.iter_mut().enumerate();
                blocks.for_each(|(rank, count)| *count = each + usize::from(rank < rest));
                let mine = counts[world.rank()];
                world.reduce_scatter(&send[..n], &mut recv[..mine], counts, Op::Sum)
            }
            Call::ReduceScatterBlock => {
                let each = n / world.size();
                world.reduce_scatter_block(&send[..each * world.size()], &mut recv[..each], Op::Sum)
            }
            Call::Scan => world.scan(&send[..n], &mut recv[..n], Op::Sum),
            Call::Exscan => world.exscan(&send[..n], &mut recv[..n], Op::Sum),
            Call::Alltoallw => {
                let send: Vec<&[f64]> = send[..all].chunks_exact(n).collect();
                let mut recv: Vec<&mut [f64]> = recv[..all].chunks_exact_mut(n).collect();
                world.alltoallw(&send, &mut recv)
            }
        }
    }
}

/// A series of measurements: one call, by the algorithms that the rules of its communicator select.
#[derive(Debug)]
struct Series {
    call: Call,
    name: String,
    comm: Intracomm,
    /// The only algorithm that the rules select.
    algorithm: Option<&'static Algorithm>,
}

impl Series {
    /// Returns whether the algorithm can be used for `n` elements.
    fn fits(&self, n: usize) -> bool {
        let needs = |algorithm: &Algorithm| algorithm.requires.contains(&Requirement::ItemPerRank);
        n >= self.comm.size() || !self.algorithm.is_some_and(needs)
    }
}

/// Returns the series of all calls, or those of every algorithm of every call.
fn series(world: &World, all_algorithms: bool) -> Result<Vec<Series>, Failure> {
    let mut all = Vec::new();
    for (call, name) in CALLS {
        let operation = Operation::ALL.iter().find(|operation| operation.name() == name);
        let algorithms = operation
            .filter(|_| all_algorithms)
            .into_iter()
            .flat_map(|operation| coll::algorithms_of(*operation));
        for algorithm in algorithms {
            let mut rules = Rules::default();
            rules.set(algorithm.operation, algorithm.name)?;
            let comm = world.dup_with_rules(rules)?;
            let name = format!("{name}:{}", algorithm.name);
            all.push(Series { call, name, comm, algorithm: Some(algorithm) });
        }
        if !all_algorithms {
            let comm = Intracomm::clone(world);
            all.push(Series { call, name: name.to_owned(), comm, algorithm: None });
        }
    }
    Ok(all)
}

pub(crate) fn run(
    world: &World,
    ms: f64,
    max_bytes: usize,
    all_algorithms: bool,
    svg: Option<&Path>,
) -> Result<(), Failure> {
    let ranks = world.size();
    let sizes = sizes(max_bytes);
    let all_series = series(world, all_algorithms)?;
    let rows = |series: &Series| match series.call {
        Call::Barrier => 1,
        _ => sizes.iter().filter(|bytes| series.fits(**bytes / size_of::<f64>())).count(),
    };
    let rows = all_series.iter().map(rows).sum();
    let report = Report::begin(world, rows)?;
    let elements = (sizes.last().unwrap_or(&0) * ranks + PAGE) / size_of::<f64>();
    let (mut send, mut recv) = (Pages::filled(elements, 1.0)?, Pages::filled(elements, 0.0)?);

    let mut counts = vec![0; ranks];
    let (mut curves, mut barrier) = (Vec::new(), None);
    for series in all_series {
        let Series { call, ref name, ref comm, .. } = series;
        let barrier_bytes = (call == Call::Barrier).then_some(0);
        let sizes: Vec<usize> = barrier_bytes.map_or_else(|| sizes.clone(), |bytes| vec![bytes]);
        let mut points = Vec::new();
        for bytes in sizes {
            let n = bytes / size_of::<f64>();
            if !series.fits(n) {
                continue;
            }
            let mut once = || call.once(comm, (&mut send, &mut recv), &mut counts, n);
            once()?;
            world.barrier()?;
            let start = now_ns();
            for _ in 0..3 {
                once()?;
                world.barrier()?;
            }
            let estimate = (now_ns() - start) as f64 / 3.0;
            let mut iterations = repeats(ms * 1e6, estimate + 1.0, 5, 20_000);
            world.bcast(&mut iterations, 0)?;

            let mut times = vec![0.0; iterations as usize];
            let mut slowest = vec![0.0; iterations as usize];
            for time in &mut times {
                world.barrier()?;
                let start = now_ns();
                once()?;
                *time = (now_ns() - start) as f64 / 1e3;
            }
            world.reduce(&times, &mut slowest, Op::Max, 0)?;
            world.barrier()?;
            let start = now_ns();
            for _ in 0..iterations {
                once()?;
            }
            let each = (now_ns() - start) as f64 / 1e3 / iterations as f64;
            let mut back_to_back = 0.0;
            world.reduce(&each, &mut back_to_back, Op::Max, 0)?;

            let median = quantile_f64(&mut slowest, 0.5);
            let min = slowest[0];
            report.note_spread(median, min);
            report.row(format_args!(
                "COLL,{name},{ranks},{bytes},{iterations},{median:.2},{min:.2},{back_to_back:.2}"
            ))?;
            let high = quantile_f64(&mut slowest, 0.99);
            points.push(Point { x: bytes as f64, y: median, low: min, high });
        }
        match points[..] {
            [] => (),
            // The page states the time of the default barrier, because every measurement calls it.
            [only] if call == Call::Barrier && series.algorithm.is_none() => barrier = Some(only.y),
            [_] if call == Call::Barrier => (),
            _ => curves.push(Curve { label: name.clone(), style: CurveStyle::of(curves.len()), points }),
        }
    }
    report.finish(world, svg, || page(curves, ranks, barrier))
}

fn page(curves: Vec<Curve>, ranks: usize, barrier: Option<f64>) -> Page {
    let lines = Lines {
        title: "One call after a barrier: time of the slowest rank".to_owned(),
        finding: barrier.map(|us| format!("A barrier alone takes {us:.2} µs")).unwrap_or_default(),
        x: "bytes of the vector (bcast, reductions, scans) or of the block of each rank (others)",
        y: "time, µs",
        curves,
        ..Lines::default()
    };
    Page {
        title: format!("Collective operations of {ranks} ranks"),
        notes: vec![
            "Each rank measures from its own exit from a barrier to the end of its call; the slowest rank counts. With \
             more ranks than cores, other ranks may complete the call before a rank starts it."
                .to_owned(),
            "Lines: medians; bars: minimum to p99. Lower is better.".to_owned(),
        ],
        panels: vec![Panel::Lines(lines)],
        ..Page::default()
    }
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn largest_size_is_measured() {
        assert_eq!(sizes(16384), [8, 128, 1024, 8192, 16384]);
        assert_eq!(sizes(1030), [8, 128, 1024]);
        assert_eq!((sizes(8), sizes(7)), (vec![8], vec![]));
        assert_eq!(sizes(2 << 20).last(), Some(&(2 << 20)));
    }
}

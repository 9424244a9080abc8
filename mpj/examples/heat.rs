//! Simulates heat on a plate. The ranks form a grid, and each has a block of the plate with a border of ghost points.
//! A step computes the interior while the edges of the neighbours arrive in the ghosts, and then the edges.
//!
//! ```sh
//! cargo run --release -p mpj --example heat          # four ranks, as threads
//! mpjrun -n 6 target/release/examples/heat
//! ```
#![expect(clippy::print_stdout, reason = "a program's result")]

use std::process::ExitCode;

use mpj::topology::{Cart, Dim, Reorder, dims};
use mpj::{BoxError, Datatype, Launch, Op, SplitViews, ViewSpec, World};

/// The number of points of a block in each direction, without ghosts, and the length of a row with ghosts.
const N: usize = 40;
const ROW: usize = N + 2;
const STEPS: usize = 60;

fn main() -> ExitCode {
    mpj::run_with(Launch::threads(4), rank)
}

fn rank(world: World) -> Result<(), BoxError> {
    // A periodic grid: heat that leaves the plate on one side enters it on the other.
    let shape: Vec<Dim> = dims(world.size(), &[None, None])?.into_iter().map(Dim::periodic).collect();
    let grid = world.cart(&shape, Reorder::ByHost)?.ok_or("every rank has a place in the grid")?;
    let row = Datatype::of::<f64>().contiguous(N)?;
    let column = Datatype::of::<f64>().vector(N, 1, ROW as isize)?;
    // Above, below, left, right: the ghosts that are received, and the edges that are sent.
    let ghosts = [(1, &row), ((N + 1) * ROW + 1, &row), (ROW, &column), (ROW + N + 1, &column)];
    let edges = [(ROW + 1, &row), (N * ROW + 1, &row), (ROW + 1, &column), (ROW + N, &column)];
    let specs = |list: [(usize, &Datatype); 4]| list.map(|(at, datatype)| ViewSpec::new(at, datatype, 1));
    let halo = SplitViews::new(ROW * ROW, &specs(ghosts), &specs(edges))?;

    let mut block = vec![0.0; ROW * ROW];
    block[ROW + 1] = if grid.rank() == 0 { 1000.0 } else { 0.0 }; // a hot corner, in the edges sent up and left
    let mut next = block.clone();
    for _ in 0..STEPS {
        step(&grid, &halo, &mut block, &mut next)?;
        std::mem::swap(&mut block, &mut next);
    }
    let heat: f64 = (1..=N).map(|i| block[i * ROW + 1..=i * ROW + N].iter().sum::<f64>()).sum();
    let total = grid.allreduce_value(heat, Op::Sum)?;
    if grid.rank() == 0 {
        println!("{} × {} ranks: {total:.6} of 1000 units of heat are left", shape[0].size, shape[1].size);
    }
    if (total - 1000.0).abs() < 1e-6 { Ok(()) } else { Err("heat was lost".into()) }
}

/// Computes one step: the interior while the messages are under way, then the points next to the ghosts.
fn step(grid: &Cart, halo: &SplitViews<f64>, block: &mut [f64], next: &mut [f64]) -> mpj::Result<()> {
    let ((up, down), (left, right)) = (grid.shift(0, 1)?, grid.shift(1, 1)?);
    let (mut ghosts, edges, rest) = halo.split_with_rest(block)?;
    grid.scope(|s| {
        // The tag is the direction in which a message travels: down, up, right, left.
        let sources = ghosts.iter_mut().zip([(up, 0), (down, 1), (left, 2), (right, 3)]);
        let receives: Vec<_> = sources.map(|(ghost, (from, tag))| s.irecv(ghost, from, tag)).collect();
        for (edge, (to, tag)) in edges.iter().zip([(up, 1), (down, 0), (left, 3), (right, 2)]) {
            s.isend(edge, to, tag)?;
        }
        for i in 2..N {
            let row = |i: usize| rest.get(i * ROW + 1..i * ROW + N + 1).expect("no ghosts");
            let [above, here, below] = [row(i - 1), row(i), row(i + 1)];
            for j in 1..N - 1 {
                next[i * ROW + j + 1] = point(here[j], [above[j], below[j], here[j - 1], here[j + 1]]);
            }
        }
        receives.into_iter().try_for_each(|receive| receive?.wait().map(drop))
    })?;
    let boundary = (1..=N).flat_map(|k| [(1, k), (N, k), (k, 1), (k, N)]);
    for at in boundary.map(|(i, j)| i * ROW + j) {
        next[at] = point(block[at], [block[at - ROW], block[at + ROW], block[at - 1], block[at + 1]]);
    }
    Ok(())
}

fn point(here: f64, around: [f64; 4]) -> f64 {
    0.5 * here + 0.125 * around.iter().sum::<f64>()
}

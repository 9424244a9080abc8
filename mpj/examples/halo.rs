//! Simulates heat on a plate that is divided into blocks, one for each rank. Each step exchanges the edges of the
//! blocks, both rows and columns, in place.
//!
//! ```sh
//! cargo run --release --example halo           # four ranks, as threads
//! mpjrun -n 6 target/release/examples/halo     # six processes
//! ```
#![expect(clippy::print_stdout, reason = "a program's result")]

use std::process::ExitCode;

use mpj::{ArrayOrder, Datatype, Launch, SplitViews, View, ViewSpec, World};

/// The number of points of the plate in each direction.
const POINTS: usize = 60;
const STEPS: usize = 100;

fn main() -> ExitCode {
    mpj::run_with(Launch::threads(4), |world| {
        let plate = simulate(&world)?;
        if world.rank() == 0 {
            let same = plate == serial();
            println!("{} ranks, {POINTS} × {POINTS} points, {STEPS} steps", world.size());
            println!("equal to the serial result: {}", if same { "yes" } else { "NO" });
            if !same {
                world.abort(1, "the result is wrong");
            }
        }
        Ok::<(), mpj::Error>(())
    })
}

/// One rank's block: its points, and a border of ghost points, which are the neighbours' edges.
struct Block {
    /// The number of rows and columns, without the ghosts.
    size: [usize; 2],
    /// The position of the first row and column on the plate.
    start: [usize; 2],
    /// The ranks above, below, to the left and to the right.
    neighbours: [Option<usize>; 4],
    points: Vec<f64>,
}

impl Block {
    fn of(rank: usize, ranks: usize) -> Block {
        let blocks = factors(ranks);
        let at = [rank / blocks[1], rank % blocks[1]];
        let start = [0, 1].map(|d| POINTS * at[d] / blocks[d]);
        let size = [0, 1].map(|d| POINTS * (at[d] + 1) / blocks[d] - start[d]);
        let up = (at[0] > 0).then(|| rank - blocks[1]);
        let down = (at[0] + 1 < blocks[0]).then(|| rank + blocks[1]);
        let left = (at[1] > 0).then(|| rank - 1);
        let right = (at[1] + 1 < blocks[1]).then(|| rank + 1);
        let width = size[1] + 2;
        let mut points = vec![0.0; (size[0] + 2) * width];
        for row in 0..size[0] {
            for column in 0..size[1] {
                points[(row + 1) * width + column + 1] = initial(start[0] + row, start[1] + column);
            }
        }
        Block { size, start, neighbours: [up, down, left, right], points }
    }

    fn width(&self) -> usize {
        self.size[1] + 2
    }

    /// Describes the ghosts, which are written, and the edges, which are read: above, below, left, right.
    fn halo(&self) -> mpj::Result<SplitViews<f64>> {
        let [rows, columns] = self.size;
        let width = self.width();
        let row = Datatype::of::<f64>().contiguous(columns)?;
        let column = Datatype::of::<f64>().vector(rows, 1, width as isize)?;
        let point = |row: usize, column: usize| row * width + column;
        let ghosts = [
            ViewSpec::new(point(0, 1), &row, 1),
            ViewSpec::new(point(rows + 1, 1), &row, 1),
            ViewSpec::new(point(1, 0), &column, 1),
            ViewSpec::new(point(1, columns + 1), &column, 1),
        ];
        let edges = [
            ViewSpec::new(point(1, 1), &row, 1),
            ViewSpec::new(point(rows, 1), &row, 1),
            ViewSpec::new(point(1, 1), &column, 1),
            ViewSpec::new(point(1, columns), &column, 1),
        ];
        Ok(SplitViews::new(self.points.len(), &ghosts, &edges)?)
    }

    /// Receives the neighbours' edges into the ghosts. The program packs nothing: messages read and write the block.
    fn exchange(&mut self, world: &World, halo: &SplitViews<f64>) -> mpj::Result<()> {
        let (mut ghosts, edges) = halo.split(&mut self.points)?;
        world.scope(|s| {
            let mut receives = Vec::new();
            for (ghost, from) in ghosts.iter_mut().zip(self.neighbours) {
                receives.push(s.irecv(ghost, from, 0)?);
            }
            for (edge, to) in edges.iter().zip(self.neighbours) {
                s.isend(edge, to, 0)?;
            }
            receives.into_iter().try_for_each(|receive| receive.wait().map(|_| ()))
        })
    }
}

/// Returns the plate after all steps at rank 0, and an empty vector elsewhere.
fn simulate(world: &World) -> mpj::Result<Vec<f64>> {
    let mut block = Block::of(world.rank(), world.size());
    let halo = block.halo()?;
    let mut next = block.points.clone();
    for _ in 0..STEPS {
        block.exchange(world, &halo)?;
        step(&block.points, &mut next, block.size);
        std::mem::swap(&mut block.points, &mut next);
    }
    collect(world, &block)
}

/// Moves the value of every point towards the mean of its neighbours.
fn step(points: &[f64], next: &mut [f64], [rows, columns]: [usize; 2]) {
    let width = columns + 2;
    for row in 1..=rows {
        for at in row * width + 1..=row * width + columns {
            let around = points[at - width] + points[at + width] + points[at - 1] + points[at + 1];
            next[at] = 0.5 * points[at] + 0.125 * around;
        }
    }
}

/// Collects the blocks at rank 0: each block is sent without its ghosts, and received at its position on the plate.
fn collect(world: &World, block: &Block) -> mpj::Result<Vec<f64>> {
    let inner = |size: [usize; 2], of: [usize; 2], start: [usize; 2]| {
        Datatype::of::<f64>().subarray(&of, &size, &start, ArrayOrder::C)
    };
    let mine = inner(block.size, block.size.map(|points| points + 2), [1, 1])?;
    let mine = View::new(&block.points, 0, &mine, 1)?;
    if world.rank() > 0 {
        world.send(&mine, 0, 1)?;
        return Ok(Vec::new());
    }
    let mut plate = vec![0.0; POINTS * POINTS];
    let mut types = Vec::new();
    for rank in 0..world.size() {
        let Block { size, start, .. } = Block::of(rank, world.size());
        types.push(inner(size, [POINTS; 2], start)?);
    }
    let places: Vec<ViewSpec> = types.iter().map(|place| ViewSpec::new(0, place, 1)).collect();
    let places = SplitViews::new(plate.len(), &places, &[])?;
    let (mut places, _) = places.split(&mut plate)?;
    world.scope(|s| {
        s.isend(&mine, 0, 1)?;
        let mut receives = Vec::new();
        for (place, rank) in places.iter_mut().zip(0..) {
            receives.push(s.irecv(place, rank, 1)?);
        }
        receives.into_iter().try_for_each(|receive| receive.wait().map(|_| ()))
    })?;
    drop(places);
    Ok(plate)
}

/// Returns the plate after all steps, computed as one block without messages.
fn serial() -> Vec<f64> {
    let mut points = Block::of(0, 1).points;
    let mut next = points.clone();
    for _ in 0..STEPS {
        step(&points, &mut next, [POINTS; 2]);
        std::mem::swap(&mut points, &mut next);
    }
    let rows = points.chunks(POINTS + 2).skip(1).take(POINTS);
    rows.flat_map(|row| row[1..=POINTS].to_vec()).collect()
}

/// Returns the initial value of a point. The hot spot is off centre, so symmetry does not hide a wrong exchange.
fn initial(row: usize, column: usize) -> f64 {
    if (10..25).contains(&row) && (30..40).contains(&column) {
        100.0
    } else {
        (row * 7 + column) as f64 / 64.0
    }
}

/// Returns the two factors of a number that are closest to each other.
fn factors(ranks: usize) -> [usize; 2] {
    let small = (1..=ranks).take_while(|f| f * f <= ranks).filter(|f| ranks.is_multiple_of(*f)).last();
    small.map_or([1, 1], |small| [small, ranks / small])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_against_serial(world: World) -> mpj::Result<()> {
        let plate = simulate(&world)?;
        if world.rank() == 0 {
            assert!(plate == serial(), "the result differs from the serial one");
        }
        Ok(())
    }

    #[mpj::test(ranks = 4)]
    fn four_blocks_give_the_serial_result(world: World) -> mpj::Result<()> {
        check_against_serial(world)
    }

    #[mpj::test(ranks = 7)]
    fn seven_strips_of_different_widths_give_the_serial_result(world: World) -> mpj::Result<()> {
        check_against_serial(world)
    }
}

//! Multiplies a matrix by a vector. Each rank has some *columns* of the matrix, which rank 0 stores by rows: a derived
//! datatype describes a column, so no rank packs anything.
//!
//! ```sh
//! cargo run --release -p mpj --example matvec      # four ranks, as threads
//! mpjrun -n 3 target/release/examples/matvec
//! ```
#![expect(clippy::print_stdout, reason = "a program's result")]

use std::process::ExitCode;

use mpj::{Datatype, Launch, Op, View, World};

const ROWS: usize = 300;
/// The number of columns of each rank.
const COLUMNS: usize = 50;

fn main() -> ExitCode {
    mpj::run_with(Launch::threads(4), rank)
}

fn rank(world: World) -> mpj::Result<()> {
    let width = COLUMNS * world.size();
    // A column: ROWS numbers, each `width` after the previous one. `resized` makes the next column start one later.
    let number = size_of::<f64>() as i64;
    let column = Datatype::of::<f64>().vector(ROWS, 1, width as isize)?.resized(0, number)?;

    // Rank 0 scatters the columns of its matrix, and the numbers of its vector.
    let matrix = if world.rank() == 0 { element_matrix(width) } else { vec![0.0; ROWS * width] };
    let vector: Vec<f64> = (0..width).map(|j| (j % 7) as f64 - 3.0).collect();
    let mut mine = vec![0.0; COLUMNS * ROWS]; // received column by column
    world.scatter(&View::new(&matrix, 0, &column, width)?, &mut mine, 0)?;
    let mut factors = [0.0; COLUMNS];
    world.scatter(&vector, &mut factors, 0)?;

    // Each rank adds up its columns, multiplied by its part of the vector. A reduction adds the ranks' sums.
    let mut partial = vec![0.0; ROWS];
    for (column, factor) in mine.chunks_exact(ROWS).zip(factors) {
        partial.iter_mut().zip(column).for_each(|(sum, element)| *sum += element * factor);
    }
    let mut product = vec![0.0; ROWS];
    world.reduce(&partial, &mut product, Op::Sum, 0)?;

    if world.rank() == 0 {
        let row = |i: usize| (0..width).map(|j| matrix[i * width + j] * vector[j]).sum::<f64>();
        let same = (0..ROWS).all(|i| product[i] == row(i)); // whole numbers: the sums are exact
        println!("{ROWS} × {width} by {} ranks: {}", world.size(), if same { "correct" } else { "WRONG" });
        if !same {
            world.abort(1, "the product is wrong");
        }
    }
    Ok(())
}

fn element_matrix(width: usize) -> Vec<f64> {
    (0..ROWS * width).map(|at| ((at / width) * 3 + (at % width) * 5) as f64 % 11.0).collect()
}

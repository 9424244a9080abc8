//! A master distributes tasks of different lengths. It keeps one receive pending for each worker, and gives the next
//! task to the worker whose result arrives first (`wait_any`).
//!
//! ```sh
//! cargo run --release -p mpj --example workers     # four ranks, as threads
//! mpjrun -n 5 target/release/examples/workers
//! ```
#![expect(clippy::print_stdout, reason = "a program's result")]

use std::process::ExitCode;

use mpj::{Launch, Request, World, wait_any};

const TASKS: u64 = 60;
/// The tags of tasks and of the message that ends a worker.
const TASK: i32 = 1;
const STOP: i32 = 2;

fn main() -> ExitCode {
    mpj::run_with(Launch::threads(4), |world| if world.rank() == 0 { master(&world) } else { worker(&world) })
}

fn master(world: &World) -> mpj::Result<()> {
    let mut tasks = (0..TASKS).map(|task| 27 + 13 * task);
    let mut pending = Vec::new();
    for worker in 1..world.size() {
        pending.extend(assign(world, worker, tasks.next())?);
    }
    let (mut answers, mut steps) = (0, 0);
    while let Some((_index, answer)) = wait_any(&mut pending) {
        let ([answer], status) = answer?;
        (answers, steps) = (answers + 1, steps + answer);
        pending.extend(assign(world, status.source_rank(), tasks.next())?);
    }
    println!("{answers} tasks by {} workers: {steps} steps", world.size() - 1);
    let expected: u64 = (0..TASKS).map(|task| work(27 + 13 * task)).sum();
    if world.size() > 1 && steps != expected {
        world.abort(1, "the sum of the answers is wrong");
    }
    Ok(())
}

/// Sends a task and posts a receive for its answer, or ends the worker.
fn assign(world: &World, worker: usize, task: Option<u64>) -> mpj::Result<Option<Request<[u64; 1]>>> {
    let Some(task) = task else {
        world.send(&[0u64; 0], worker, STOP)?;
        return Ok(None);
    };
    world.send(&[task], worker, TASK)?;
    world.irecv([0], worker, TASK).map(Some)
}

fn worker(world: &World) -> mpj::Result<()> {
    loop {
        let mut task = [0u64];
        if world.recv(&mut task, 0, mpj::ANY_TAG)?.tag() == STOP {
            return Ok(());
        }
        world.send(&[work(task[0])], 0, TASK)?;
    }
}

/// Counts the steps of the Collatz sequence from `n` to 1.
fn work(n: u64) -> u64 {
    let next = |n: &u64| (*n != 1).then(|| if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 });
    std::iter::successors(Some(n), next).count() as u64 - 1
}

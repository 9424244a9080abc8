//! The loops of `mpj-perf pingpong` and `mpj-perf coll` with rsmpi, on the MPI library whose `mpicc` is found: the lines
//! `PP,same,bytes,iterations,median us` and `COLL,operation,ranks,bytes,iterations,median us`.

use std::time::Instant;

use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

const SIZES: [usize; 4] = [8, 1024, 65_536, 1_048_576];
const BUDGET_S: f64 = 0.02;

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the number of iterations that fit the time of a measurement, the same on all ranks.
fn repeats(world: &SimpleCommunicator, each_s: f64, least: f64) -> usize {
    let mut count = (BUDGET_S / (each_s + 1e-9)).clamp(least, 20_000.0) as u64;
    world.process_at_rank(0).broadcast_into(&mut count);
    count as usize
}

fn pingpong(world: &SimpleCommunicator, send: &[u8], recv: &mut [u8]) {
    let (rank, other) = (world.rank(), world.process_at_rank(1 - world.rank()));
    let mut exchange = || {
        let begun = Instant::now();
        if rank == 0 {
            other.send(send);
        }
        other.receive_into(recv);
        if rank == 1 {
            other.send(send);
        }
        begun.elapsed().as_secs_f64()
    };
    let estimate = (0..23).map(|_| exchange()).sum::<f64>() / 23.0;
    let count = repeats(world, estimate, 10.0);
    let mut times: Vec<f64> = (0..count).map(|_| exchange()).collect();
    if rank == 0 {
        println!("PP,same,{},{count},{:.3}", send.len(), median(&mut times) / 2.0 * 1e6);
    }
}

/// Prints the median time of the slowest rank for one call after a barrier.
fn collective(world: &SimpleCommunicator, name: &str, bytes: usize, mut call: impl FnMut()) {
    call();
    world.barrier();
    let begun = Instant::now();
    for _ in 0..3 {
        call();
        world.barrier();
    }
    let count = repeats(world, begun.elapsed().as_secs_f64() / 3.0, 5.0);
    let mut times = vec![0.0; count];
    for time in &mut times {
        world.barrier();
        let begun = Instant::now();
        call();
        *time = begun.elapsed().as_secs_f64() * 1e6;
    }
    let mut slowest = vec![0.0; count];
    world.all_reduce_into(&times[..], &mut slowest[..], SystemOperation::max());
    if world.rank() == 0 {
        println!("COLL,{name},{},{bytes},{count},{:.2}", world.size(), median(&mut slowest));
    }
}

fn main() {
    let universe = mpi::initialize().expect("MPI starts");
    let world = universe.world();
    let (send, mut recv) = (vec![1u8; 1 << 20], vec![2u8; 1 << 20]);
    for bytes in SIZES {
        pingpong(&world, &send[..bytes], &mut recv[..bytes]);
    }
    collective(&world, "barrier", 0, || world.barrier());
    for bytes in [8, 32_768] {
        let n = bytes / size_of::<f64>();
        let (mut mine, mut all) = (vec![1f64; 2 * n], vec![0f64; 2 * n]);
        collective(&world, "bcast", bytes, || world.process_at_rank(0).broadcast_into(&mut mine[..n]));
        collective(&world, "allreduce", bytes, || {
            world.all_reduce_into(&mine[..n], &mut all[..n], SystemOperation::sum());
        });
        collective(&world, "alltoall", bytes, || world.all_to_all_into(&mine[..], &mut all[..]));
    }
}

//! Estimates π by random points: each rank counts its points that fall into a quarter of a circle, and a reduction
//! adds the counts.
//!
//! ```sh
//! cargo run --release -p mpj --example pi          # four ranks, as threads
//! mpjrun -n 8 target/release/examples/pi 1000000   # eight processes, a million points each
//! ```
#![expect(clippy::print_stdout, reason = "a program's result")]

use std::process::ExitCode;

use mpj::{BoxError, Launch, Op, World};

fn main() -> ExitCode {
    mpj::run_with(Launch::threads(4), rank)
}

fn rank(world: World) -> Result<(), BoxError> {
    let points: u64 = std::env::args().nth(1).map_or(Ok(200_000), |points| points.parse())?;
    let mut random = Random(world.rank() as u64 + 1);
    let inside = (0..points).filter(|_| random.next().hypot(random.next()) < 1.0).count() as u64;

    let mut totals = [0u64; 2];
    world.allreduce(&[inside, points], &mut totals, Op::Sum)?;
    let pi = 4.0 * totals[0] as f64 / totals[1] as f64;
    // The standard deviation of the estimate is 4 √(p (1 − p) / n), with p = π / 4.
    let deviation = 1.64 / (totals[1] as f64).sqrt();
    if world.rank() == 0 {
        println!("π ≈ {pi:.5} ± {deviation:.5} from {} points", totals[1]);
    }
    if (pi - std::f64::consts::PI).abs() > 6.0 * deviation {
        return Err("the estimate is too far from π".into());
    }
    Ok(())
}

/// A generator of random numbers (splitmix64), with a different start for each rank.
struct Random(u64);

impl Random {
    /// Returns a number from 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 11) as f64 / (1u64 << 53) as f64
    }
}

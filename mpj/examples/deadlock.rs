//! A job that hangs: each rank first receives from the next one, so no rank ever sends. It shows how to find the error.
//!
//! ```text
//! $ mpjrun -n 4 deadlock           # Ctrl-C prints what each rank waits for, and the cycle 0 → 1 → 2 → 3 → 0
//! $ mpjrun -n 4 --timeout 2 deadlock
//! $ MPJ_TIMEOUT=2 deadlock         # without a launcher: four threads
//! ```

use std::process::ExitCode;

use mpj::{Launch, World, run_with};

fn main() -> ExitCode {
    run_with(Launch::threads(4), rank)
}

fn rank(world: World) -> mpj::Result<()> {
    let next = (world.rank() + 1) % world.size();
    let mut number = [0u64];
    world.recv(&mut number, next, 7)?;
    world.send(&number, next, 7)
}

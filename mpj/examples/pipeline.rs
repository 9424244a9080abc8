//! A pipeline: each rank receives numbers from the rank before it, works on them, and sends them on. Its tasks are
//! asynchronous, and run on the smallest executor: requests are futures, which need no particular runtime.
//!
//! ```sh
//! cargo run --release -p mpj --example pipeline      # four ranks, as threads
//! mpjrun -n 3 target/release/examples/pipeline
//! ```
#![expect(clippy::print_stdout, reason = "a program's result")]

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{Thread, current, park};

use mpj::{Launch, World};

const ITEMS: usize = 40;
const LENGTH: usize = 1000;

fn main() -> ExitCode {
    mpj::run_with(Launch::threads(4), |world| block_on(rank(world)))
}

async fn rank(world: World) -> mpj::Result<()> {
    let before = world.rank().checked_sub(1);
    let after = (world.rank() + 1 < world.size()).then_some(world.rank() + 1);
    let mut sending = None;
    // The next item arrives while this one is worked on. At the first rank, `None` is the null process: nothing arrives.
    let mut receiving = world.irecv(vec![0u64; LENGTH], before, 0)?;
    for item in 0..ITEMS {
        let (mut numbers, _status) = receiving.await?;
        receiving = world.irecv(vec![0; LENGTH], before.filter(|_| item + 1 < ITEMS), 0)?;
        if before.is_none() {
            numbers.fill(item as u64);
        }
        numbers.iter_mut().for_each(|number| *number = 3 * *number + 1);
        if let Some(earlier) = sending.take() {
            earlier.await?;
        }
        if after.is_some() {
            sending = Some(world.isend(numbers, after, 0)?);
        } else {
            let expected = (0..world.size()).fold(item as u64, |number, _| 3 * number + 1);
            assert!(numbers.iter().all(|number| *number == expected), "item {item} is wrong");
        }
    }
    if let Some(last) = sending {
        last.await?;
    }
    if after.is_none() {
        println!("{ITEMS} items of {LENGTH} numbers went through {} ranks", world.size());
    }
    Ok(())
}

/// Runs a future: the thread parks until the future is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => park(),
        }
    }
}

//! Progress outside of calls: by a progress thread, and by an event loop that watches the driver descriptor.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

use mpj::raw::Buf;
use mpj::{DriverFd, Error, SendBuf, World};
use rustix::event::{PollFd, PollFlags, poll};

use crate::Test;
use crate::job::{limit, run};
use crate::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("transfers_complete_while_processes_compute", transfers_complete_while_processes_compute),
    ("event_loops_complete_futures", event_loops_complete_futures),
];

const LEN: usize = 4 << 20;

/// Sets the flag when it is dropped.
struct Tracked(Vec<u8>, Arc<AtomicBool>);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the bytes stay at their address as long as the value lives.
unsafe impl SendBuf for Tracked {
    fn send_buf(&self) -> Buf {
        Buf::slice(&self.0[..])
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

/// Sends to the other rank, and computes without a call into the library until that rank has received the message.
pub(crate) fn exchange_while_computing(world: &World) -> Result<(), Error> {
    let (me, other) = (world.rank(), 1 - world.rank());
    for round in 0..3u8 {
        let receiving = world.irecv(vec![0u8; LEN], other, 0)?;
        world.barrier()?;
        let received = Arc::new(AtomicBool::new(false));
        let message = Tracked(vec![me as u8 + round; LEN], Arc::clone(&received));
        drop(world.issend(message, other, 0)?);
        let begun = Instant::now();
        while !received.load(Ordering::SeqCst) {
            assert!(begun.elapsed() < limit(20), "the progress thread makes no progress");
            std::hint::spin_loop();
        }
        assert_eq!(receiving.wait()?.0, vec![other as u8 + round; LEN]);
    }
    say(&format!("rank {me} has computed"));
    Ok(())
}

fn transfers_complete_while_processes_compute() {
    for how in ["--devices shmdev", "--devices niodev", "--devices smdev"] {
        let ended = run(&format!("-n 2 {how} -x MPJ_PROGRESS=thread"), "compute");
        let done = ended.out.iter().filter(|line| line.ends_with("has computed")).count();
        assert_eq!((ended.code, done, ended.err.len()), (Some(0), 2, 0), "{how}: {ended:#?}");
    }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls `future` after each wake. Otherwise waits for the descriptor, without a time limit.
fn block_on<F: IntoFuture>(driver: &DriverFd, future: F) -> F::Output {
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Arc::clone(&flag).into();
    let mut future = pin!(future.into_future());
    loop {
        while flag.0.swap(false, Ordering::SeqCst) {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return value;
            }
        }
        poll(&mut [PollFd::new(driver, PollFlags::IN)], None).unwrap();
        driver.progress();
    }
}

pub(crate) fn run_event_loop(world: &World) -> Result<(), Error> {
    let (me, size) = (world.rank(), world.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    let driver = world.driver_fd()?;
    for round in 0..50 {
        let len = if round % 10 == 9 { LEN / 8 } else { 5 };
        let receiving = world.irecv(vec![0u32; len], left, round)?;
        if round % 7 == me as i32 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let sending = world.isend(vec![me as u32; len], right, round)?;
        assert_eq!(block_on(&driver, receiving)?.0, vec![left as u32; len]);
        block_on(&driver, sending)?;
    }
    // The last rank leaves while the others wait for a message from it: its exit wakes their event loops.
    if me + 1 < size {
        let failed = block_on(&driver, world.irecv([0u8], size - 1, 99)?).unwrap_err();
        assert_eq!(failed.error().failed_rank(), Some(size as u32 - 1), "{failed}");
    }
    say(&format!("rank {me} is done"));
    Ok(())
}

fn event_loops_complete_futures() {
    for how in ["--devices shmdev", "--devices niodev", "--devices smdev", "--devices shmdev,niodev"] {
        for n in [2, 3] {
            let ended = run(&format!("-n {n} {how}"), "event-loop");
            let done = ended.out.iter().filter(|line| line.ends_with("is done")).count();
            assert_eq!((ended.code, done, ended.err.len()), (Some(0), n, 0), "{how}: {ended:#?}");
        }
    }
}

//! The progress thread of a rank: transfers complete while the program computes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mpj::raw::Buf;
use mpj::{Op, SendBuf, World};

use crate::common::{job, samples};

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

/// Computes without a call of the library until `done`. Returns the time, or `None` after 20 s.
fn compute_until(done: &AtomicBool) -> Option<Duration> {
    let begun = Instant::now();
    while !done.load(Ordering::SeqCst) {
        if begun.elapsed() > Duration::from_secs(20) {
            return None;
        }
        std::hint::spin_loop();
    }
    Some(begun.elapsed())
}

/// Both ranks send to each other, and compute until their messages have been received.
fn exchange_while_computing(world: &World) -> mpj::Result<bool> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let receiving = world.irecv(vec![0u8; LEN], other, 0)?;
    world.barrier()?;
    let done = Arc::new(AtomicBool::new(false));
    drop(world.issend(Tracked(samples::<u8>(me, 0, LEN), Arc::clone(&done)), other, 0)?);
    let is_done = compute_until(&done).is_some();
    assert_eq!(receiving.wait()?.0, samples::<u8>(other, 0, LEN));
    Ok(is_done)
}

#[mpj::test(ranks = 2)]
fn transfer_completes_while_both_ranks_compute(world: World) -> Result<(), mpj::BoxError> {
    world.engine().start_progress_thread()?;
    for _ in 0..3 {
        assert!(exchange_while_computing(&world)?, "the progress thread makes progress");
    }
    Ok(())
}

/// A waiting thread takes the progress lock from the progress thread, which takes it back later.
#[mpj::test(ranks = 2)]
fn waits_alternate_with_computation(world: World) -> Result<(), mpj::BoxError> {
    world.engine().start_progress_thread()?;
    let (me, other) = (world.rank() as u32, 1 - world.rank());
    for round in 0..30 {
        for step in 0..20 {
            let mut got = [0u32; 2];
            world.sendrecv(&[round, me], other, step, &mut got, other, step)?;
            assert_eq!(got, [round, 1 - me]);
        }
        std::thread::sleep(Duration::from_millis(u64::from(round) % 3));
        let mut total = [0u32];
        world.allreduce(&[me + round], &mut total, Op::Sum)?;
        assert_eq!(total, [1 + 2 * round]);
    }
    assert!(exchange_while_computing(&world)?);
    Ok(())
}

#[test]
fn job_with_progress_threads_reports_failures() {
    let failed = job(3, |world| {
        world.engine().start_progress_thread()?;
        if world.rank() == 2 {
            return Err("no input".to_owned());
        }
        world.recv(&mut [0u8; 4], 2, 0).map(drop).map_err(|e| e.to_string())
    });
    assert_eq!(failed.unwrap_err().to_string(), "rank 2 returned an error: no input");
}

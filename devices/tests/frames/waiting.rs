//! Threads of one rank that wait at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use mpj_devices::{Fault, Pattern};

use crate::bench::Bench;

/// Longer than any of this takes on a machine that is busy with other things.
const BOUND: Duration = Duration::from_secs(60);

/// What a thread waits for may act on the engine, as a collective does that takes its receives back: it is asked
/// without a lock that this takes, also while another thread has the turn.
#[test]
fn a_condition_may_cancel_while_another_thread_waits() {
    let (told, done) = channel();
    std::thread::spawn(move || {
        let bench = Bench::new();
        let (holds, over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut asked = 0;
                bench.engine.wait_until(|| {
                    asked += 1;
                    // Asked a second time, it has taken the turn.
                    holds.store(asked > 1, Ordering::SeqCst);
                    over.load(Ordering::SeqCst).then_some(())
                });
            });
            while !holds.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            for _ in 0..5 {
                // These find the turn taken, and soon park.
                let (mut asked, began) = (0, Instant::now());
                bench.engine.wait_until(|| {
                    let posted = bench.post_bytes(1, 8);
                    assert!(bench.engine.cancel(&bench.world, posted.completion().unwrap()));
                    assert_eq!(posted.finish().unwrap().0, Err(Fault::Cancelled));
                    asked += 1;
                    (asked >= 20 && began.elapsed() > Duration::from_millis(30)).then_some(())
                });
            }
            over.store(true, Ordering::SeqCst);
        });
        let _ = told.send(bench.engine.iprobe(&bench.world, Pattern { source: 1, tag: 1 }));
    });
    assert_eq!(done.recv_timeout(BOUND), Ok(Ok(None)), "the rank hangs");
}

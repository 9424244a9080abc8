//! Threads of one rank that wait at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use mpj_devices::{Fault, Mode, Pattern};

use super::device::lock;
use super::fixture::Fixture;

const HANG_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn wait_condition_can_cancel_while_another_thread_waits() {
    let (send, done) = channel();
    std::thread::spawn(move || {
        let fixture = Fixture::new();
        let (holds_lock, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut evaluations = 0;
                fixture.engine.wait_until(|| {
                    evaluations += 1;
                    // At the second evaluation, this thread holds the progress lock.
                    holds_lock.store(evaluations > 1, Ordering::SeqCst);
                    is_over.load(Ordering::SeqCst).then_some(())
                });
            });
            while !holds_lock.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            for _ in 0..5 {
                // These waits find the progress lock held, and soon park.
                let (mut evaluations, began) = (0, Instant::now());
                fixture.engine.wait_until(|| {
                    let posted = fixture.post_bytes(1, 8);
                    assert!(fixture.engine.cancel_receive(&fixture.world, posted.completion().unwrap()));
                    assert_eq!(posted.finish().unwrap().0, Err(Fault::Cancelled));
                    evaluations += 1;
                    (evaluations >= 20 && began.elapsed() > Duration::from_millis(30)).then_some(())
                });
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let _ = send.send(fixture.engine.iprobe(&fixture.world, Pattern { source: 1, tag: 1 }));
    });
    assert_eq!(done.recv_timeout(HANG_LIMIT), Ok(Ok(None)), "the rank hangs");
}

/// A thread parks while another one holds the progress lock. When the lock is released, the parked thread takes it,
/// even if nothing has moved. Otherwise it would poll only after its park time.
#[test]
fn parked_thread_takes_over_a_released_progress_lock() {
    const TRIES: usize = 5;
    const ROUNDS: usize = 8;
    const SOON: Duration = Duration::from_millis(10);
    let fixture = Fixture::new();
    let polls = || fixture.wire.polls.load(Ordering::SeqCst);
    let polls_soon = |_| {
        let is_over = AtomicBool::new(false);
        let stopped = lock(&fixture.wire.steps);
        std::thread::scope(|scope| {
            let before = polls();
            scope.spawn(|| fixture.engine.progress());
            while polls() == before {
                std::thread::yield_now();
            }
            scope.spawn(|| fixture.engine.wait_until(|| is_over.load(Ordering::SeqCst).then_some(())));
            // Wait until the park time of that thread has grown to its maximum of 64 ms.
            std::thread::sleep(Duration::from_millis(200));
            let before = polls();
            drop(stopped);
            let began = Instant::now();
            while polls() == before {
                std::thread::sleep(Duration::from_micros(200));
            }
            let took = began.elapsed();
            is_over.store(true, Ordering::SeqCst);
            took < SOON
        })
    };
    let mostly_soon = || (0..ROUNDS).filter(|round| polls_soon(*round)).count() > ROUNDS / 2;
    assert!((0..TRIES).any(|_| mostly_soon()), "in each of {TRIES} tries most polls came late");
}

/// A thread that finds an endpoint full wakes a sleeping thread of its rank. The sleeping thread has retried only
/// frames that were queued before it slept, and might otherwise sleep for up to 100 ms.
#[test]
fn full_endpoint_wakes_a_sleeping_thread_of_the_rank() {
    const TRIES: usize = 5;
    const ROUNDS: usize = 8;
    const SOON: Duration = Duration::from_millis(10);
    let fixture = Fixture::new();
    fixture.stop_endpoints(true);
    let polls = || fixture.wire.polls.load(Ordering::SeqCst);
    let is_over = AtomicBool::new(false);
    let polls_soon = || {
        // The sleeping thread polls periodically: start 20 ms after one of its polls.
        let before = polls();
        while polls() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        let before = polls();
        let began = Instant::now();
        fixture.send(1, vec![1], Mode::Standard).unwrap();
        while polls() == before {
            std::thread::sleep(Duration::from_micros(200));
        }
        began.elapsed() < SOON
    };
    std::thread::scope(|scope| {
        scope.spawn(|| fixture.engine.wait_until(|| is_over.load(Ordering::SeqCst).then_some(())));
        std::thread::sleep(Duration::from_millis(200));
        let mostly_soon = || (0..ROUNDS).filter(|_| polls_soon()).count() > ROUNDS / 2;
        let is_woken = (0..TRIES).any(|_| mostly_soon());
        is_over.store(true, Ordering::SeqCst);
        assert!(is_woken, "in each of {TRIES} tries most polls came late");
    });
}

#[test]
fn long_waits_of_several_threads_poll_rarely() {
    let (fixture, is_over) = (Fixture::new(), AtomicBool::new(false));
    let began = Instant::now();
    // Counts the evaluations after the first 500 ms, in which the thread may spin.
    let wait = || {
        let mut polls = 0;
        fixture.engine.wait_until(|| {
            polls += u32::from(began.elapsed() > Duration::from_millis(500));
            is_over.load(Ordering::SeqCst).then_some(())
        });
        polls
    };
    std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(wait));
        std::thread::sleep(Duration::from_millis(1500));
        is_over.store(true, Ordering::SeqCst);
        let polls = threads.map(|thread| thread.join().unwrap());
        assert!(polls.iter().all(|polls| *polls < 100), "{polls:?} polls in a second");
    });
}

//! Several threads of one rank that wait at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use mpj_devices::{Fault, Mode, Pattern};

use super::bench::Bench;
use super::device::lock;

/// An upper bound for each test, even on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// A wait condition may use the engine, as a collective does that cancels its receives. It is evaluated without any
/// lock that this needs, even while another thread holds the progress lock.
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
                    // At its second evaluation the thread holds the progress lock.
                    holds.store(asked > 1, Ordering::SeqCst);
                    over.load(Ordering::SeqCst).then_some(())
                });
            });
            while !holds.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            for _ in 0..5 {
                // These waits find the progress lock taken, and soon park.
                let (mut asked, began) = (0, Instant::now());
                bench.engine.wait_until(|| {
                    let posted = bench.post_bytes(1, 8);
                    assert!(bench.engine.cancel_receive(&bench.world, posted.completion().unwrap()));
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

/// A thread parks while another thread that tests holds the progress lock. When that thread releases the lock, the
/// parked thread takes it, even if nothing has moved. Otherwise it would poll only after 64 ms.
#[test]
fn who_parks_while_another_tests_in_vain_goes_on_when_that_has_looked() {
    const TRIES: usize = 5;
    const ROUNDS: usize = 8;
    const SOON: Duration = Duration::from_millis(10);
    let bench = Bench::new();
    let looks = || bench.wire.looks.load(Ordering::SeqCst);
    let goes_on = |_| {
        let over = AtomicBool::new(false);
        let stopped = lock(&bench.wire.steps);
        std::thread::scope(|scope| {
            let before = looks();
            scope.spawn(|| bench.engine.progress());
            while looks() == before {
                std::thread::yield_now();
            }
            scope.spawn(|| bench.engine.wait_until(|| over.load(Ordering::SeqCst).then_some(())));
            // Wait until its park time has grown to the maximum.
            std::thread::sleep(Duration::from_millis(200));
            let before = looks();
            drop(stopped);
            let began = Instant::now();
            while looks() == before {
                std::thread::sleep(Duration::from_micros(200));
            }
            let took = began.elapsed();
            over.store(true, Ordering::SeqCst);
            took < SOON
        })
    };
    // On a busy machine whole tries are late, but hardly one is in time by chance.
    let mostly_soon = || (0..ROUNDS).filter(|round| goes_on(*round)).count() > ROUNDS / 2;
    assert!(
        (0..TRIES).any(|_| mostly_soon()),
        "in none of {TRIES} tries it went on soon more often than not"
    );
}

/// A thread that finds no room wakes another thread of its rank that sleeps. The sleeping thread has retried only
/// frames that were queued before it slept, and would poll again only after 100 ms.
#[test]
fn who_finds_no_room_while_another_sleeps_has_that_one_look_again() {
    const TRIES: usize = 5;
    const ROUNDS: usize = 8;
    const SOON: Duration = Duration::from_millis(10);
    let bench = Bench::new();
    bench.stop_links(true);
    let looks = || bench.wire.looks.load(Ordering::SeqCst);
    let over = AtomicBool::new(false);
    let looks_soon = || {
        // While idle, the sleeping thread polls periodically: start at a fixed time after one of its polls.
        let before = looks();
        while looks() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        let before = looks();
        let began = Instant::now();
        bench.send(1, vec![1], Mode::Standard).unwrap();
        while looks() == before {
            std::thread::sleep(Duration::from_micros(200));
        }
        began.elapsed() < SOON
    };
    std::thread::scope(|scope| {
        scope.spawn(|| bench.engine.wait_until(|| over.load(Ordering::SeqCst).then_some(())));
        std::thread::sleep(Duration::from_millis(200));
        let mostly_soon = || (0..ROUNDS).filter(|_| looks_soon()).count() > ROUNDS / 2;
        let is_told = (0..TRIES).any(|_| mostly_soon());
        over.store(true, Ordering::SeqCst);
        assert!(is_told, "in none of {TRIES} tries it looked soon more often than not");
    });
}

/// Each poll by a sleeping thread is a wake-up, which costs a core far more than the poll.
#[test]
fn a_thread_that_waits_for_long_beside_another_looks_seldom() {
    let (bench, over) = (Bench::new(), AtomicBool::new(false));
    let began = Instant::now();
    // Counts the polls that come after the first 500 ms, in which the thread may spin.
    let wait = || {
        let mut looks = 0;
        bench.engine.wait_until(|| {
            looks += u32::from(began.elapsed() > Duration::from_millis(500));
            over.load(Ordering::SeqCst).then_some(())
        });
        looks
    };
    std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(wait));
        std::thread::sleep(Duration::from_millis(1500));
        over.store(true, Ordering::SeqCst);
        let looks = threads.map(|thread| thread.join().unwrap());
        assert!(looks.iter().all(|looks| *looks < 100), "{looks:?} looks in a second");
    });
}

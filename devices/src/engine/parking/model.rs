//! Models of threads that park while the holder of the progress lock notifies. Waits have no time limit here, so a
//! missed notification is a deadlock, which loom reports.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{LONGEST, ParkBackoff, Parking};
use crate::sync::try_lock;

struct ParkedRank {
    parking: Parking,
    has_work: AtomicBool,
    progress_lock: Mutex<()>,
}

impl ParkedRank {
    fn new() -> Arc<Self> {
        Arc::new(ParkedRank {
            parking: Parking::new(),
            has_work: AtomicBool::new(false),
            progress_lock: Mutex::new(()),
        })
    }

    /// Waits for new work as the engine's wait loop does while another thread holds the progress lock.
    fn wait(&self, mut limit: ParkBackoff) {
        while !self.has_work.load(Ordering::Relaxed) {
            self.parking.park(&mut limit, || self.has_work.load(Ordering::Relaxed));
        }
    }
}

/// Threads park with the shortest limit, and one notification follows when all are counted. A thread that is not yet
/// counted might miss the notification, and then only the time limit would end its wait.
fn notification_wakes(threads: usize) {
    loom::model(move || {
        let rank = ParkedRank::new();
        let parked: Vec<_> = (0..threads)
            .map(|_| {
                let rank = Arc::clone(&rank);
                thread::spawn(move || rank.wait(ParkBackoff::default()))
            })
            .collect();
        while rank.parking.count.load(Ordering::Relaxed) != threads {
            thread::yield_now();
        }
        rank.has_work.store(true, Ordering::Relaxed);
        rank.parking.notify();
        parked.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(rank.parking.count.load(Ordering::Relaxed), 0, "no thread is counted any more");
    });
}

#[test]
fn notification_between_check_and_wait_is_not_lost() {
    notification_wakes(1);
}

#[test]
fn notification_wakes_all_parked_threads() {
    notification_wakes(2);
}

/// The condition `ready` may call `notify`, which wakes other threads and makes this call of `park` return.
#[test]
fn condition_runs_without_the_lock() {
    loom::model(|| {
        let rank = ParkedRank::new();
        let other = {
            let rank = Arc::clone(&rank);
            thread::spawn(move || rank.wait(ParkBackoff::default()))
        };
        while rank.parking.count.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        rank.parking.park(&mut ParkBackoff::default(), || {
            rank.has_work.store(true, Ordering::Relaxed);
            rank.parking.notify();
            false
        });
        other.join().unwrap();
    });
}

#[test]
fn long_park_misses_no_notification() {
    loom::model(|| {
        let rank = ParkedRank::new();
        let other = {
            let rank = Arc::clone(&rank);
            thread::spawn(move || rank.wait(ParkBackoff(LONGEST)))
        };
        rank.has_work.store(true, Ordering::Relaxed);
        rank.parking.notify();
        other.join().unwrap();
    });
}

#[test]
fn long_park_takes_over_the_progress_lock() {
    loom::model(|| {
        let rank = ParkedRank::new();
        let progress_lock = rank.progress_lock.lock().unwrap();
        let other = {
            let rank = Arc::clone(&rank);
            thread::spawn(move || {
                let mut progress_lock = try_lock(&rank.progress_lock);
                while progress_lock.is_none() {
                    rank.parking.park(&mut ParkBackoff(LONGEST), || {
                        progress_lock = try_lock(&rank.progress_lock);
                        progress_lock.is_some()
                    });
                }
            })
        };
        drop(progress_lock);
        rank.parking.notify();
        other.join().unwrap();
    });
}

//! Models of threads that park while the holder of the progress lock notifies. Waits have no time limit here, so a
//! missed notification is a deadlock, which loom reports.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{LONGEST, ParkBackoff, Parking};
use crate::sync::try_lock;

struct ParkedRank {
    parking: Parking,
    news: AtomicBool,
    progress_lock: Mutex<()>,
}

impl ParkedRank {
    fn new() -> Arc<Self> {
        Arc::new(ParkedRank {
            parking: Parking::new(),
            news: AtomicBool::new(false),
            progress_lock: Mutex::new(()),
        })
    }

    /// Waits for new work as the engine's wait loop does while another thread holds the progress lock.
    fn wait(&self, mut limit: ParkBackoff) {
        while !self.news.load(Ordering::Relaxed) {
            self.parking.park(&mut limit, || self.news.load(Ordering::Relaxed));
        }
    }
}

/// Threads park with the shortest limit, and one notification follows when all are counted. A thread that is not yet
/// counted might miss a notification, which only the limit of its wait ends.
fn notification_wakes(threads: usize) {
    loom::model(move || {
        let scene = ParkedRank::new();
        let parked: Vec<_> = (0..threads)
            .map(|_| {
                let scene = Arc::clone(&scene);
                thread::spawn(move || scene.wait(ParkBackoff::default()))
            })
            .collect();
        while scene.parking.count.load(Ordering::Relaxed) != threads {
            thread::yield_now();
        }
        scene.news.store(true, Ordering::Relaxed);
        scene.parking.notify();
        parked.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(scene.parking.count.load(Ordering::Relaxed), 0, "no thread is counted any more");
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
        let scene = ParkedRank::new();
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.wait(ParkBackoff::default()))
        };
        while scene.parking.count.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        scene.parking.park(&mut ParkBackoff::default(), || {
            scene.news.store(true, Ordering::Relaxed);
            scene.parking.notify();
            false
        });
        other.join().unwrap();
    });
}

/// The notification can come before or after the other thread is counted.
#[test]
fn long_park_misses_no_notification() {
    loom::model(|| {
        let scene = ParkedRank::new();
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.wait(ParkBackoff(LONGEST)))
        };
        scene.news.store(true, Ordering::Relaxed);
        scene.parking.notify();
        other.join().unwrap();
    });
}

/// The parked thread must take over the progress lock that the notifying thread has released.
#[test]
fn long_park_takes_over_the_progress_lock() {
    loom::model(|| {
        let scene = ParkedRank::new();
        let progress_lock = scene.progress_lock.lock().unwrap();
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                let mut progress_lock = try_lock(&scene.progress_lock);
                while progress_lock.is_none() {
                    scene.parking.park(&mut ParkBackoff(LONGEST), || {
                        progress_lock = try_lock(&scene.progress_lock);
                        progress_lock.is_some()
                    });
                }
            })
        };
        drop(progress_lock);
        scene.parking.notify();
        other.join().unwrap();
    });
}

//! Models of threads that park while the holder of the progress lock notifies. Waits have no time limit here, so a
//! missed notification is a deadlock, which loom reports.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{LONGEST, ParkBackoff, Parking};
use crate::sync::try_lock;

struct Scene {
    parking: Parking,
    news: AtomicBool,
    progress_lock: Mutex<()>,
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Scene {
            parking: Parking::new(),
            news: AtomicBool::new(false),
            progress_lock: Mutex::new(()),
        })
    }

    /// Waits for new work as the engine's waiting loop does while another thread holds the progress lock.
    fn wait(&self, mut limit: ParkBackoff) {
        while !self.news.load(Ordering::Relaxed) {
            self.parking.park(&mut limit, || self.news.load(Ordering::Relaxed));
        }
    }
}

/// Threads park for a short time, and one notification follows when all are counted. A thread that is not yet counted
/// might miss a notification; the limit of its wait covers that.
fn all_are_told(threads: usize) {
    loom::model(move || {
        let scene = Scene::new();
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
        assert_eq!(scene.parking.count.load(Ordering::Relaxed), 0, "nobody is counted any more");
    });
}

#[test]
fn news_between_the_look_and_the_wait_is_not_lost() {
    all_are_told(1);
}

#[test]
fn news_is_for_all_who_wait() {
    all_are_told(2);
}

/// A condition may notify by itself: other threads, and its own thread, which then checks again.
#[test]
fn a_condition_is_asked_without_the_lock() {
    loom::model(|| {
        let scene = Scene::new();
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

/// The notifying thread does not know whether a thread is counted yet.
#[test]
fn news_is_not_missed_by_who_parks_for_long() {
    loom::model(|| {
        let scene = Scene::new();
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.wait(ParkBackoff(LONGEST)))
        };
        scene.news.store(true, Ordering::Relaxed);
        scene.parking.notify();
        other.join().unwrap();
    });
}

/// The parking thread is not notified of new work. It must take over the progress lock, which the other thread
/// releases.
#[test]
fn a_turn_that_is_given_up_is_taken_by_who_parks_for_long() {
    loom::model(|| {
        let scene = Scene::new();
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

//! Models of threads that park while the holder of the turn brings news: a wait that nobody ends is a deadlock, which
//! loom reports, as its waits have no limit of time.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::Parking;

#[derive(Default)]
struct Scene {
    parking: Parking,
    news: AtomicBool,
}

impl Scene {
    /// Waits as the engine's waiting loop does, with the turn taken.
    fn wait(&self) {
        while !self.news.load(Ordering::Relaxed) {
            self.parking.park(|| self.news.load(Ordering::Relaxed));
        }
    }
}

/// Some threads park; when all are counted there is news. Who is not counted is not promised to be told: that is what
/// the limit of the wait is for.
fn all_are_told(threads: usize) {
    loom::model(move || {
        let scene = Arc::new(Scene::default());
        let parked: Vec<_> = (0..threads)
            .map(|_| {
                let scene = Arc::clone(&scene);
                thread::spawn(move || scene.wait())
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

/// A condition may bring news itself, to others and to its own thread, which then looks again.
#[test]
fn a_condition_is_asked_without_the_lock() {
    loom::model(|| {
        let scene = Arc::new(Scene::default());
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.wait())
        };
        while scene.parking.count.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        scene.parking.park(|| {
            scene.news.store(true, Ordering::Relaxed);
            scene.parking.notify();
            false
        });
        other.join().unwrap();
    });
}

//! A model of a sleeping owner and ringing threads. Both fences are full ones, since loom has no others.

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::Doorbell;

/// Several threads write their work and ring; the owner sleeps until it has seen all of it.
fn rings(ringers: u32, times: u32) {
    loom::model(move || {
        let bell = Arc::new(Doorbell::new().unwrap());
        let news: Arc<Vec<AtomicU32>> = Arc::new((0..ringers).map(|_| AtomicU32::new(0)).collect());
        let threads: Vec<_> = (0..ringers as usize)
            .map(|me| {
                let (bell, news) = (Arc::clone(&bell), Arc::clone(&news));
                thread::spawn(move || {
                    for time in 1..=times {
                        news[me].store(time, Ordering::Relaxed);
                        bell.ring();
                    }
                })
            })
            .collect();
        let seen = || news.iter().map(|news| news.load(Ordering::Relaxed)).sum::<u32>();
        let mut known = 0;
        while known < ringers * times {
            // The model has no time limit: a lost ring is an endless sleep.
            bell.sleep(&[], Duration::MAX, || seen() > known);
            known = seen();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn no_ring_is_lost() {
    rings(1, 2);
}

#[test]
fn no_ring_of_two_is_lost() {
    rings(2, 1);
}

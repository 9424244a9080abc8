//! A model of a sleeping owner and ringing threads. Both fences are full, because loom has no `membarrier`.

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::Doorbell;

/// Several threads write their work and ring; the owner sleeps repeatedly until it has seen all of it.
fn owner_sees_all_work(ringers: u32, times: u32) {
    loom::model(move || {
        let bell = Arc::new(Doorbell::new().unwrap());
        let work: Arc<Vec<AtomicU32>> = Arc::new((0..ringers).map(|_| AtomicU32::new(0)).collect());
        let threads: Vec<_> = (0..ringers as usize)
            .map(|me| {
                let (bell, work) = (Arc::clone(&bell), Arc::clone(&work));
                thread::spawn(move || {
                    for time in 1..=times {
                        work[me].store(time, Ordering::Relaxed);
                        bell.ring();
                    }
                })
            })
            .collect();
        let seen = || work.iter().map(|work| work.load(Ordering::Relaxed)).sum::<u32>();
        let mut known = 0;
        while known < ringers * times {
            bell.sleep(&[], Duration::MAX, || seen() > known);
            known = seen();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn no_ring_is_lost() {
    owner_sees_all_work(1, 2);
}

#[test]
fn no_ring_of_two_threads_is_lost() {
    owner_sees_all_work(2, 1);
}

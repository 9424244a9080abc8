//! Models in which the owner of a bias and other threads lock the same value.

use loom::thread;

use super::*;

/// A lock and two counters that it protects. Loom reports concurrent accesses to the counters.
struct Pair(Mutex<()>, UnsafeCell<(u32, u32)>);

// SAFETY: the lock is held during each access, which is what the models check.
unsafe impl Sync for Pair {}
// SAFETY: as above.
unsafe impl Send for Pair {}

impl Pair {
    fn new(bias: &Arc<Bias>) -> Arc<Self> {
        Arc::new(Pair(Mutex::new(bias, ()), UnsafeCell::new((0, 0))))
    }

    fn count(&self) {
        let _guard = self.0.lock();
        self.change();
    }

    fn try_count(&self) -> u32 {
        let guard = self.0.try_lock();
        if guard.is_some() {
            self.change();
        }
        u32::from(guard.is_some())
    }

    fn change(&self) {
        // SAFETY: the lock is held.
        self.1.with_mut(|pair| unsafe {
            (*pair).0 += 1;
            (*pair).1 += 1;
        });
    }

    fn counted(&self) -> u32 {
        let _guard = self.0.lock();
        // SAFETY: the lock is held.
        let (one, other) = self.1.with(|pair| unsafe { *pair });
        assert_eq!(one, other);
        one
    }
}

#[test]
fn lock_excludes_the_owner() {
    loom::model(|| {
        let pair = Pair::new(&Bias::new());
        let other = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || pair.count())
        };
        pair.count();
        pair.count();
        other.join().unwrap();
        assert_eq!(pair.counted(), 3);
    });
}

#[test]
fn two_threads_revoke_the_bias_concurrently() {
    loom::model(|| {
        let bias = Bias::new();
        let (pair, other_pair) = (Pair::new(&bias), Pair::new(&bias));
        let others =
            [Arc::clone(&pair), Arc::clone(&other_pair)].map(|pair| thread::spawn(move || pair.count()));
        pair.count();
        other_pair.count();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((pair.counted(), other_pair.counted()), (2, 2));
    });
}

#[test]
fn try_lock_excludes_the_owner() {
    loom::model(|| {
        let pair = Pair::new(&Bias::new());
        let other = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || pair.try_count())
        };
        let here = pair.try_count();
        let there = other.join().unwrap();
        assert_eq!(pair.counted(), here + there);
    });
}

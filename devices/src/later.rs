//! What users have given away is dropped when this thread holds nothing of a rank's: a drop may take long, wait for messages,
//! and panic.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// How often this thread has begun to hold something.
    static HOLDS: Cell<u32> = const { Cell::new(0) };
    /// Whether something is to be dropped later.
    static ANY: Cell<bool> = const { Cell::new(false) };
    /// Whether it does so now.
    static DROPS: Cell<bool> = const { Cell::new(false) };
    static LATER: RefCell<Vec<Box<dyn Any + Send>>> = const { RefCell::new(Vec::new()) };
}

/// What keeps this thread from dropping what users have given away, until it is dropped.
#[derive(Debug)]
pub(crate) struct DeferDrops(());

impl DeferDrops {
    #[inline]
    pub(crate) fn begin() -> Self {
        HOLDS.set(HOLDS.get() + 1);
        DeferDrops(())
    }
}

impl Drop for DeferDrops {
    #[inline]
    fn drop(&mut self) {
        HOLDS.set(HOLDS.get() - 1);
    }
}

/// Drops what a user has given away: at once, or, while this thread makes progress for its rank, when it has done so. A
/// [`KeepAlive`](crate::KeepAlive) whose own drop runs code of others calls it.
///
/// A panic of a drop that was put off is told by the panic hook and goes no further: the call that is under way then has nothing
/// to do with it.
pub fn drop_deferred<T: Send + 'static>(value: T) {
    if !is_deferring() {
        return drop(value);
    }
    let mut value = Some(value);
    let kept = LATER.try_with(|later| later.borrow_mut().push(Box::new(value.take())));
    // A thread that is ending drops `value` here.
    ANY.set(kept.is_ok());
}

/// Drops what a panic has thrown, which may be anything of a user's: its own drop may panic, and goes no further either.
pub fn drop_panic_payload(thrown: Box<dyn Any + Send>) {
    // What that throws may do so again, and is kept.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
        std::mem::forget(again);
    }
}

/// Has what users have given away dropped when the thread goes on, and not while `f` runs.
#[doc(hidden)]
pub fn with_deferred_drops<T>(f: impl FnOnce() -> T) -> T {
    let _hold = DeferDrops::begin();
    f()
}

/// Whether this thread holds something.
#[inline]
pub(crate) fn is_deferring() -> bool {
    HOLDS.get() > 0
}

/// Whether this thread has put something off that it is not about to drop.
#[inline]
pub(crate) fn has_deferred() -> bool {
    ANY.get() && !DROPS.get()
}

/// Drops what this thread has put off, if it holds nothing.
#[inline]
pub(crate) fn run_deferred_drops() {
    if ANY.get() && !is_deferring() {
        drop_all();
    }
}

#[cold]
fn drop_all() {
    // A drop that waits may have others put off, which come after it: the stack has an end.
    if DROPS.replace(true) {
        return;
    }
    while let Ok(Some(value)) = LATER.try_with(|later| later.borrow_mut().pop()) {
        // The hook has told of a panic.
        if let Err(thrown) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            drop_panic_payload(thrown);
        }
    }
    ANY.set(false);
    DROPS.set(false);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct Counted(Arc<AtomicU32>, bool);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1, "wanted");
        }
    }

    #[test]
    fn a_drop_waits_until_nothing_is_held_and_its_panic_hurts_nobody() {
        let drops = Arc::new(AtomicU32::new(0));
        let count = || drops.load(Ordering::Relaxed);
        let outer = DeferDrops::begin();
        {
            let _inner = DeferDrops::begin();
            for panics in [false, true, false] {
                drop_deferred(Counted(Arc::clone(&drops), panics));
            }
        }
        run_deferred_drops();
        assert!(count() == 0 && has_deferred());
        drop(outer);
        run_deferred_drops();
        assert!(count() == 3 && !has_deferred());
        drop_deferred(Counted(Arc::clone(&drops), false));
        assert_eq!(count(), 4);
    }
}

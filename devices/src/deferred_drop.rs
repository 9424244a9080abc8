//! Deferred drops: a user's value is dropped after this thread has released the locks of its rank, because a drop can
//! take a long time, wait for messages, or panic.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

thread_local! {
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    static PENDING: Cell<bool> = const { Cell::new(false) };
    static DROPPING: Cell<bool> = const { Cell::new(false) };
    static DEFERRED: RefCell<Vec<Box<dyn Any + Send>>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
pub(crate) struct DeferDrops(());

impl DeferDrops {
    #[inline]
    pub(crate) fn begin() -> Self {
        GUARDS.set(GUARDS.get() + 1);
        DeferDrops(())
    }
}

impl Drop for DeferDrops {
    #[inline]
    fn drop(&mut self) {
        GUARDS.set(GUARDS.get() - 1);
    }
}

/// Drops a user's value at once, or, if this thread defers drops because it makes progress for its rank, later. Call
/// this function in the drop of a [`KeepAlive`](crate::KeepAlive) for values whose drop runs foreign code.
///
/// The panic of a deferred drop is not propagated, because the call that runs the drop is unrelated to it; the panic
/// hook reports the panic.
pub fn drop_deferred<T: Send + 'static>(value: T) {
    if !is_deferring() {
        return drop(value);
    }
    let mut value = Some(value);
    let deferred = DEFERRED.try_with(|later| later.borrow_mut().push(Box::new(value.take())));
    // If the thread is ending, `value` is dropped at the end of this function.
    PENDING.set(deferred.is_ok());
}

/// Wakes a task, at the time at which [`drop_deferred`] would drop a value: a waker runs foreign code.
pub(crate) fn wake_deferred(waker: Waker) {
    drop_deferred(WakeOnDrop(Some(waker)));
}

struct WakeOnDrop(Option<Waker>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        let woken = catch_unwind(AssertUnwindSafe(|| self.0.take().map(Waker::wake)));
        // The panic hook has reported the panic of a waker. The operation of the task is complete.
        woken.map_or_else(drop_panic_payload, drop);
    }
}

/// Drops the payload of a panic, which may be any value of a user. A panic of that drop is not propagated.
pub fn drop_panic_payload(thrown: Box<dyn Any + Send>) {
    // The drop of the second payload may panic, too, so it is leaked.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
        std::mem::forget(again);
    }
}

/// Runs `f`, and defers the drops of users' values until it has returned.
#[doc(hidden)]
pub fn with_deferred_drops<T>(f: impl FnOnce() -> T) -> T {
    let _guard = DeferDrops::begin();
    f()
}

#[inline]
pub(crate) fn is_deferring() -> bool {
    GUARDS.get() > 0
}

/// Returns whether this thread has deferred drops and is not running them now.
#[inline]
pub(crate) fn has_deferred() -> bool {
    PENDING.get() && !DROPPING.get()
}

/// Runs the deferred drops, unless this thread still defers them.
#[doc(hidden)]
#[inline]
pub fn run_deferred_drops() {
    if PENDING.get() && !is_deferring() {
        drop_all();
    }
}

#[cold]
fn drop_all() {
    // A drop that waits may defer other drops. The loop of the outer call runs them, which bounds the stack.
    if DROPPING.replace(true) {
        return;
    }
    while let Ok(Some(value)) = DEFERRED.try_with(|later| later.borrow_mut().pop()) {
        // The hook has reported the panic.
        if let Err(thrown) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            drop_panic_payload(thrown);
        }
    }
    PENDING.set(false);
    DROPPING.set(false);
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
    fn deferred_drop_runs_after_the_guard_and_its_panic_is_caught() {
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

//! Deferred drops: a user's value is dropped after this thread has released the locks of its rank, because a drop can
//! take a long time, wait for messages, or panic.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// A deferred drop can wait for a message that depends on another deferred drop, or on a task that is not woken yet, so
/// the wait runs them. At this depth they stay deferred, because the stack of a thread is limited.
const MAX_NESTING: u32 = 16;

thread_local! {
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    static PENDING: Cell<bool> = const { Cell::new(false) };
    static NESTING: Cell<u32> = const { Cell::new(0) };
    /// The value at the back is dropped next.
    static DEFERRED: RefCell<VecDeque<Box<dyn Any + Send>>> = const { RefCell::new(VecDeque::new()) };
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
    defer(value, VecDeque::push_front);
}

/// Wakes a task, at the time at which [`drop_deferred`] would drop a value: a waker runs foreign code. Tasks are woken
/// before values are dropped, because a drop might wait for a task.
pub(crate) fn wake_deferred(waker: Waker) {
    defer(WakeOnDrop(Some(waker)), VecDeque::push_back);
}

type Push = fn(&mut VecDeque<Box<dyn Any + Send>>, Box<dyn Any + Send>);

fn defer<T: Send + 'static>(value: T, push: Push) {
    if !is_deferring() {
        return drop(value);
    }
    let mut value = Some(value);
    let deferred = DEFERRED.try_with(|later| push(&mut later.borrow_mut(), Box::new(value.take())));
    // If the thread is ending, `value` is dropped at the end of this function.
    PENDING.set(deferred.is_ok());
}

struct WakeOnDrop(Option<Waker>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        let woken = catch_unwind(AssertUnwindSafe(|| self.0.take().map(Waker::wake)));
        // The panic hook has already reported a panic of the waker.
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

/// Returns whether this thread has deferred drops that it may run when it holds no lock.
#[inline]
pub(crate) fn has_deferred() -> bool {
    PENDING.get() && NESTING.get() < MAX_NESTING
}

/// Runs the deferred drops, unless this thread still defers them, or is running one.
#[doc(hidden)]
#[inline]
pub fn run_deferred_drops() {
    if PENDING.get() && !is_deferring() && NESTING.get() == 0 {
        while drop_next() {}
    }
}

/// As [`run_deferred_drops`], for a call that waits or polls. If a deferred drop has made this call, runs the next one
/// only, because that might be the one for which the call waits.
#[inline]
pub(crate) fn run_deferred_drops_of_wait() {
    run_deferred_drops();
    if has_deferred() && !is_deferring() {
        drop_next();
    }
}

/// Runs the next deferred drop; returns whether there was one.
#[cold]
fn drop_next() -> bool {
    let Ok(Some(value)) = DEFERRED.try_with(|later| later.borrow_mut().pop_back()) else {
        PENDING.set(false);
        return false;
    };
    NESTING.set(NESTING.get() + 1);
    // The hook has reported the panic.
    if let Err(thrown) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        drop_panic_payload(thrown);
    }
    NESTING.set(NESTING.get() - 1);
    true
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

    /// Calls a function when it is dropped.
    struct Calls(Option<Box<dyn FnOnce() + Send>>);

    impl Drop for Calls {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(|call| call());
        }
    }

    #[test]
    fn deferred_drop_that_waits_runs_the_next_one() {
        let drops = Arc::new(AtomicU32::new(0));
        let guard = DeferDrops::begin();
        let seen = Arc::clone(&drops);
        drop_deferred(Calls(Some(Box::new(move || {
            run_deferred_drops();
            assert_eq!(seen.load(Ordering::Relaxed), 0, "this call does not wait");
            run_deferred_drops_of_wait();
            assert_eq!(seen.load(Ordering::Relaxed), 1);
            seen.fetch_add(10, Ordering::Relaxed);
        }))));
        for _ in 0..2 {
            drop_deferred(Counted(Arc::clone(&drops), false));
        }
        drop(guard);
        run_deferred_drops();
        assert!(drops.load(Ordering::Relaxed) == 12 && !has_deferred());
    }
}

//! Waits and polls that must not unwind, because a pending operation uses memory of the caller.

use crate::run::print_suppressed_panic;

/// Runs `wait`. If it panics, the process aborts: unwinding would release memory that other ranks and threads access.
///
/// `wait` runs code of this library, and drops of buffers that operations own; a panic in either is a defect. Panics of
/// user-defined operations do not reach this function.
#[inline]
pub(crate) fn abort_on_unwind<R>(wait: impl FnOnce() -> R) -> R {
    let guard = AbortGuard;
    let result = wait();
    std::mem::forget(guard);
    result
}

struct AbortGuard;

impl Drop for AbortGuard {
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "an abort is better than a use of freed memory")]
    fn drop(&mut self) {
        print_suppressed_panic();
        std::process::abort();
    }
}

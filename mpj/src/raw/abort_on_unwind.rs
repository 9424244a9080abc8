//! Waits that must not unwind, because a pending operation uses memory of the caller.

use crate::run::print_suppressed_panic;

/// Runs `wait`, which returns when no operation uses the caller's memory any more. If it panics, the process aborts.
///
/// Unwinding would release the memory while other ranks and threads read and write it. Such a wait runs only code of
/// this library and the drops of buffers that were given away; a panic in either is a defect.
#[inline]
pub(crate) fn abort_on_unwind<R>(wait: impl FnOnce() -> R) -> R {
    let guard = AbortGuard;
    let result = wait();
    std::mem::forget(guard);
    result
}

/// Aborts the process when it is dropped.
struct AbortGuard;

impl Drop for AbortGuard {
    #[cold]
    #[expect(
        clippy::disallowed_methods,
        reason = "a use of freed memory is worse than the end of the process"
    )]
    fn drop(&mut self) {
        print_suppressed_panic();
        std::process::abort();
    }
}

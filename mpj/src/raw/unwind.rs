//! Waits that a panic must not leave: those for operations that use memory of the caller.

use crate::run::tell_quiet;

/// Runs `wait`, which returns when no operation uses the caller's memory any more. If it panics, the process ends.
///
/// To unwind would give the memory back while others read and write it. What runs in such a wait is this library and the
/// drop of buffers that were given away; neither panics, but for a defect.
#[inline]
pub(crate) fn abort_on_unwind<R>(wait: impl FnOnce() -> R) -> R {
    let guard = Abort;
    let result = wait();
    std::mem::forget(guard);
    result
}

/// Ends the process when it is dropped.
struct Abort;

impl Drop for Abort {
    #[cold]
    #[expect(
        clippy::disallowed_methods,
        reason = "a use of freed memory is worse than the end of the process"
    )]
    fn drop(&mut self) {
        tell_quiet();
        std::process::abort();
    }
}

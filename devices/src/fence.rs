//! A pair of fences. The one on the rare side pays the cost of both.
//!
//! For example, a sender writes a message and then reads the receiver's sleep flag. A receiver sets its sleep flag and
//! then polls for messages once more. At least one of the two must see the other's write, which requires a full fence
//! on both sides. With the `membarrier` system call, the receiver executes the fence for both. If the system does not
//! support that call, [`LightFence`] is a full fence.

use std::sync::OnceLock;
use std::sync::atomic::compiler_fence;

use crate::sync::atomic::{Ordering, fence};
use crate::sys::membarrier;

/// Returns whether a light fence may be a compiler fence, because [`heavy_fence`] on the other side makes all threads
/// execute a full fence. In a loom model both sides use full fences.
pub(crate) fn is_asymmetric() -> bool {
    if cfg!(loom) {
        return false;
    }
    static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
    *IS_REGISTERED.get_or_init(membarrier::register)
}

/// The frequent side's fence, such as a sender's between its write and its read of the sleep flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LightFence {
    asymmetric: bool,
}

impl LightFence {
    pub(crate) fn new() -> Self {
        LightFence { asymmetric: is_asymmetric() }
    }

    #[inline]
    pub(crate) fn fence(self) {
        if self.asymmetric { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
    }
}

/// The rare side's fence, such as a sleeping thread's between setting the flag and the last poll. Returns false if
/// light fences are compiler fences and the kernel has now refused `membarrier`, for example because the program
/// restricts its own system calls.
pub(crate) fn heavy_fence() -> bool {
    let all_threads_fenced = is_asymmetric() && membarrier::run();
    if !all_threads_fenced {
        fence(Ordering::SeqCst);
    }
    all_threads_fenced || !is_asymmetric()
}

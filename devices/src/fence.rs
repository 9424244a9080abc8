//! A fence whose cost is paid by a thread that goes to sleep, not by a sender.
//!
//! A sender writes a message and then reads the receiver's sleep flag. A receiver sets its sleep flag and then polls
//! for messages once more. At least one of the two must see the other's write, which requires a full fence on both
//! sides. The `membarrier` system call lets the sleeping thread execute the fence for both. If the system refuses that
//! call, [`LightFence`] is a full fence.

use std::sync::OnceLock;
use std::sync::atomic::compiler_fence;

use crate::sync::atomic::{Ordering, fence};
use crate::sys::membarrier;

/// Returns whether a compiler fence is enough here, because [`heavy_fence`] on the other side makes this thread fence,
/// too. In a model both sides use full fences.
pub(crate) fn is_asymmetric() -> bool {
    if cfg!(loom) {
        return false;
    }
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(membarrier::register)
}

/// The sender's side: between its write and its read of the sleep flag.
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

/// The sleeping side: between setting the flag and the last poll. Returns whether the other threads have fenced, too,
/// if they need to: a kernel that once supported the call may refuse it later, for example if the program restricts its
/// own system calls.
pub(crate) fn heavy_fence() -> bool {
    let all = is_asymmetric() && membarrier::run();
    if !all {
        fence(Ordering::SeqCst);
    }
    all || !is_asymmetric()
}

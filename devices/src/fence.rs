//! A fence whose cost falls on whoever goes to sleep, not on whoever sends.
//!
//! A sender writes a message and then looks whether its receiver sleeps; a receiver says that it sleeps and then looks
//! for messages once more. One of the two must see the other, which takes a full fence on both sides. The `membarrier`
//! system call makes the sleeper pay for both; where it is refused, [`Light`] is a full fence.

use std::sync::OnceLock;
use std::sync::atomic::compiler_fence;

use crate::sync::atomic::{Ordering, fence};
use crate::sys::membarrier;

/// Returns whether a compiler fence is enough here, because [`heavy_fence`] on the other side makes this thread fence, too. In a
/// model both sides fence fully.
pub(crate) fn is_asymmetric() -> bool {
    if cfg!(loom) {
        return false;
    }
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(membarrier::register)
}

/// The sender's side, after its write and before its look at the sleeper's flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Light {
    asymmetric: bool,
}

impl Light {
    pub(crate) fn new() -> Self {
        Light { asymmetric: is_asymmetric() }
    }

    #[inline]
    pub(crate) fn fence(self) {
        if self.asymmetric { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
    }
}

/// The sleeper's side, after it has raised its flag and before its last look. Returns whether the others have fenced, too, if
/// they need to: a kernel that once has promised may refuse later, as when a program forbids itself system calls.
pub(crate) fn heavy_fence() -> bool {
    let all = is_asymmetric() && membarrier::run();
    if !all {
        fence(Ordering::SeqCst);
    }
    all || !is_asymmetric()
}

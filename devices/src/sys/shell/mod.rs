//! No system at all: what std has suffices for ranks that are threads of one process; everything else is refused.

mod errno;
mod event;
mod memory;
mod poll;
pub(crate) mod socket;
mod wakeup;

pub(crate) use errno::Errno;
pub(crate) use event::Event;
pub(crate) use memory::{Shared, SharedView};
pub(crate) use poll::{Interest, Poll, Readiness};
pub(crate) use wakeup::Wakeup;

/// Several processes can map one memory.
#[cfg(feature = "conformance")]
pub(crate) const HAS_SHARED_MEMORY: bool = false;

/// No number has the meaning everywhere.
pub(crate) const NOT_SUPPORTED: i32 = 0;

/// There are no fences from outside: both sides of a doorbell make their own.
pub(crate) mod membarrier {
    pub(crate) fn register() -> bool {
        false
    }

    pub(crate) fn run() -> bool {
        false
    }
}

pub(crate) fn random(_bytes: &mut [u8]) -> bool {
    false
}

/// # Safety
/// None: there are no descriptors.
pub(crate) unsafe fn descriptor<'a>(_number: i32) -> Option<super::BorrowedFd<'a>> {
    None
}

pub(crate) fn unblock(_descriptor: super::BorrowedFd<'_>) -> Result<(), Errno> {
    Err(Errno::UNSUPPORTED)
}

#[cfg(all(debug_assertions, feature = "conformance"))]
pub(crate) fn kill_me() {
    std::process::abort()
}

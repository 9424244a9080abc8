//! A platform without system calls: std suffices for ranks that are threads of one process. Most other calls fail.

mod errno;
mod event;
mod memory;
mod poll;
pub(crate) mod socket;
mod timer;
mod wakeup;

pub(crate) use errno::Errno;
pub(crate) use event::EventFd;
pub(crate) use memory::{SegmentView, SharedStorage};
pub(crate) use poll::{Interest, Poll, Readiness};
pub(crate) use timer::Timer;
pub(crate) use wakeup::Wakeup;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

pub(crate) fn interfaces() -> Result<Vec<super::Interface>, Errno> {
    Err(Errno::UNSUPPORTED)
}

pub(crate) fn allowed() -> Vec<usize> {
    Vec::new()
}

pub(crate) fn run_on(_: impl Iterator<Item = usize>) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

pub(crate) fn numa_node(_cpu: usize) -> usize {
    0
}

pub(crate) fn place(cpu: usize) -> [usize; 3] {
    [0, 0, cpu]
}

#[cfg(feature = "conformance")]
pub(crate) const HAS_SHARED_MEMORY: bool = false;

// Platforms have no common number for this error.
pub(crate) const NOT_SUPPORTED: i32 = 0;

pub(crate) mod membarrier {
    pub(crate) fn register() -> bool {
        false
    }

    pub(crate) fn run() -> bool {
        false
    }
}

/// Returns the nanoseconds since the first call. All ranks are in one process, so its own clock suffices.
pub(crate) fn monotonic_ns() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

pub(crate) fn thread_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn memlock_limit() -> Option<usize> {
    None
}

pub(crate) fn page_size() -> usize {
    4096
}

pub(crate) fn raise_descriptor_limit() {}

pub(crate) fn random(_bytes: &mut [u8]) -> bool {
    false
}

/// # Safety
/// This can always be called: it returns no descriptor.
pub(crate) unsafe fn borrow_fd<'a>(_number: i32) -> Option<super::BorrowedFd<'a>> {
    None
}

pub(crate) fn set_nonblocking(_descriptor: super::BorrowedFd<'_>) -> Result<(), Errno> {
    Err(Errno::UNSUPPORTED)
}

#[cfg(all(debug_assertions, feature = "conformance"))]
pub(crate) fn kill_self() {
    std::process::abort()
}

mod cores;
mod event;
mod interfaces;
pub(crate) mod membarrier;
mod poll;
pub(crate) mod socket;
mod timer;
mod wakeup;

pub(crate) use cores::{allowed, numa_node, place, run_on};
pub(crate) use event::EventFd;
pub(crate) use interfaces::interfaces;
pub(crate) use mpj_pool::{SegmentView, SharedStorage};
pub(crate) use poll::{Interest, Poll, Readiness};
pub(crate) use rustix::io::Errno;
pub(crate) use rustix::param::page_size;
pub(crate) use timer::Timer;
pub(crate) use wakeup::Wakeup;

use std::os::fd::BorrowedFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::thread::{CapabilitySet, capabilities};

#[cfg(feature = "conformance")]
pub(crate) const HAS_SHARED_MEMORY: bool = true;

pub(crate) const NOT_SUPPORTED: i32 = Errno::OPNOTSUPP.raw_os_error();

pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // This does not use rustix, which calls the vDSO directly: that fails under valgrind.
    // SAFETY: the pointer is valid for writes, and every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // Both values are at least 0. Their types have 32 bits on some systems.
    let (seconds, rest) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000_000 + rest.unwrap_or(0)
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: the call takes no arguments and always succeeds.
    let number = unsafe { libc::syscall(libc::SYS_gettid) };
    number as u32
}

/// Returns how many bytes of memory this process may lock, or `None` if no limit applies to this thread.
pub(crate) fn memlock_limit() -> Option<usize> {
    let limit = getrlimit(Resource::Memlock).current?;
    let has_right = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    // The capability lifts the limit only in the initial user namespace, which maps all user ids to themselves.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_initial_namespace = map.split_whitespace().eq(["0", "0", "4294967295"]);
    (!(has_right && is_initial_namespace)).then_some(usize::try_from(limit).unwrap_or(usize::MAX))
}

pub(crate) fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If this fails, the call that needs a descriptor reports the error.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Fills `bytes` with unpredictable values. Returns false if the system cannot provide them.
pub(crate) fn random(bytes: &mut [u8]) -> bool {
    let len = bytes.len();
    getrandom(bytes, GetRandomFlags::empty()) == Ok(len)
}

#[cfg(all(debug_assertions, feature = "conformance"))]
pub(crate) fn kill_self() {
    // If this fails, the test that sets the kill point notices that the process survives.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

/// Borrows a descriptor by its number, or returns `None` if the number is negative.
///
/// # Safety
/// If the number is not negative, it is a descriptor that is open for `'a`.
pub(crate) unsafe fn borrow_fd<'a>(number: i32) -> Option<BorrowedFd<'a>> {
    // SAFETY: the caller's promise; the check excludes -1.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}

pub(crate) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::io::ioctl_fionbio(descriptor, true)
}

/// Makes a descriptor's number refer to `file`, and makes calls on that file fail instead of blocking.
#[cfg(test)]
pub(crate) fn replace_file_of(number: BorrowedFd<'_>, file: std::os::fd::OwnedFd) -> std::io::Result<()> {
    use std::os::fd::{AsFd, AsRawFd};

    set_nonblocking(file.as_fd())?;
    // SAFETY: both are open, and the owner of the number continues to own it.
    match unsafe { libc::dup2(file.as_raw_fd(), number.as_raw_fd()) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

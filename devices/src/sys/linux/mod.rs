//! Linux: eventfd, memfd, epoll, membarrier, abstract sockets, memory of other processes.

mod event;
pub(crate) mod membarrier;
mod poll;
mod remote;
pub(crate) mod socket;
mod wakeup;

pub(crate) use event::Event;
pub(crate) use mpj_pool::{Shared, SharedView};
pub(crate) use poll::{Interest, Poll, Readiness};
pub(crate) use remote::{RemotePiece, own_process, read_process};
pub(crate) use rustix::io::Errno;
pub(crate) use wakeup::Wakeup;

use std::os::fd::BorrowedFd;

use rustix::rand::{GetRandomFlags, getrandom};

/// Several processes can map one memory.
#[cfg(feature = "conformance")]
pub(crate) const HAS_SHARED_MEMORY: bool = true;

/// The number of the error of what a system cannot do.
pub(crate) const NOT_SUPPORTED: i32 = Errno::OPNOTSUPP.raw_os_error();

/// Fills `bytes` with what nobody can guess; false if there is none.
pub(crate) fn random(bytes: &mut [u8]) -> bool {
    let len = bytes.len();
    getrandom(bytes, GetRandomFlags::empty()) == Ok(len)
}

/// Ends this process as if it had died.
#[cfg(all(debug_assertions, feature = "conformance"))]
pub(crate) fn kill_me() {
    // The test that asks for it sees the signal, or that there was none.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

/// Returns a descriptor by its number.
///
/// # Safety
/// It is open for `'a`.
pub(crate) unsafe fn descriptor<'a>(number: i32) -> Option<BorrowedFd<'a>> {
    // SAFETY: the caller's promise, and -1 is none that is open.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}

/// Has calls on a descriptor fail instead of waiting.
pub(crate) fn unblock(descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::io::ioctl_fionbio(descriptor, true)
}

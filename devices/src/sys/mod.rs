//! The operating system: all system calls of this crate that std does not have. Only tests make others.
//!
//! Each platform has a folder, such as `linux` and `fallback`, which provides these items:
//! * `Errno`: the error numbers that devices distinguish, which convert to `io::Error`; `NOT_SUPPORTED`: the number of
//!   the error for an unsupported operation;
//! * `EventFd`: an event of this process; `signal` makes it readable, `wait` sleeps until it or another descriptor is
//!   readable or until a timeout, `clear` makes it unreadable. A signal before the wait ends the wait;
//! * `Wakeup`: a socket with a number as its `name`; any process that knows the name can make it readable. `send` makes
//!   the socket of a name readable, `clear` consumes the signals to this socket. Sending to a name that does not
//!   exist is not an error. `exists` says whether a socket has the name; true if that cannot be determined;
//! * `membarrier`: `register` returns whether this process can use `run`, which makes every thread of every registered
//!   process execute a full fence, and returns false if it failed;
//! * `SharedStorage`, `SegmentView`: memory that several processes map, that no process can truncate, and of which each
//!   process reserves the part that it uses, as in `mpj-pool`; `HAS_SHARED_MEMORY`: whether such memory exists;
//! * `Poll`, `Interest`, `Readiness`: reports which of many sockets are readable or writable, level-triggered. Its
//!   descriptor is readable when it has events;
//! * `Timer`: a descriptor that is readable after a time; `clear` makes it unreadable;
//! * `interfaces`: the addresses of the network interfaces of this host;
//! * `socket`: stream sockets that do not block, are not inherited and raise no signal;
//! * `borrow_fd`: borrows a descriptor by its number; `set_nonblocking`: for descriptors that a library has opened;
//! * `allowed`: the logical processors on which this thread may run; `run_on`: restricts the thread to some of them;
//!   `place`: the location of one; `numa_node`: its NUMA node;
//! * `monotonic_ns`: a clock that all processes of a host share; `thread_id`: unique on the host while the thread
//!   lives;
//! * `memlock_limit`: how much memory this process may lock, if a limit applies to this thread; `page_size`: the size
//!   of a page; the system locks whole pages;
//! * `raise_descriptor_limit`: raises this process's limit of open descriptors to its maximum;
//! * `random`: unpredictable bytes; `kill_self`: ends the process without cleanup, for tests of sudden death.
//!
//! `linux` implements all of them. `fallback` is for every other system, and for Linux with `--cfg mpj_portable`. It
//! implements what ranks in the threads of one process need: `EventFd`, `monotonic_ns` and `thread_id`. So `smdev` and
//! the engine run on other Unix systems and on Windows. To support a platform, copy `fallback` and implement the rest.

use std::net::IpAddr;

/// An address of a network interface of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// The number of leading bits that the addresses of its subnet share; 0 if it has no subnet.
    pub(crate) prefix: u32,
    /// Whether it can send: it is up and has a carrier.
    pub(crate) is_up: bool,
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[allow(unsafe_code, reason = "calls that neither std nor rustix has")]
mod linux;
#[cfg(all(target_os = "linux", not(mpj_portable)))]
pub(crate) use linux::*;

#[cfg(not(all(target_os = "linux", not(mpj_portable))))]
#[allow(unsafe_code, reason = "declares the unsafe functions of the interface")]
mod fallback;
#[cfg(not(all(target_os = "linux", not(mpj_portable))))]
pub(crate) use fallback::*;

#[cfg(unix)]
pub(crate) use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
#[cfg(windows)]
pub(crate) use std::os::windows::io::{BorrowedHandle as BorrowedFd, OwnedHandle as OwnedFd};

//! The operating system: all calls that std does not have. No other module of the crate makes such calls.
//!
//! A platform provides these items, in its own folder beside `linux` and `shell`:
//! * `OwnedFd`, `BorrowedFd`: descriptors, which a process can pass to another;
//! * `Errno`: error numbers, with the names that `niodev` distinguishes, which convert to `io::Error`; `NOT_SUPPORTED`:
//!   the number of that error;
//! * `EventFd`: a counter of this process; `signal` makes it readable, `wait` sleeps until it or another descriptor is
//!   readable or until a timeout, `clear` makes it unreadable. A signal before the wait ends the wait;
//! * `Wakeup`: a socket that every process which knows its `name`, a number, can make readable. `send` makes the socket
//!   of a name readable, `clear` makes the own socket unreadable. Sending to a name that does not exist is not an
//!   error. `exists` says whether a socket has the name; it returns true if that cannot be determined;
//! * `membarrier`: `register` returns whether `run` will work in this process; `run` makes every thread of every
//!   registered process execute a full fence, or returns false. Then both sides of a doorbell must use their own
//!   fences;
//! * `SharedStorage`, `SegmentView`: memory that several processes map, that no process can truncate, and of which each
//!   process reserves the part that it uses, as in `mpj-pool`; `HAS_SHARED_MEMORY`: whether such memory exists;
//! * `Poll`: reports which of many sockets are readable or writable, level-triggered. It is itself a descriptor, which
//!   is readable when it has events;
//! * `socket`: stream sockets that do not block, are not inherited and raise no signal; gathered writes; the number of
//!   bytes that the peer's host has not acknowledged;
//! * `borrow_fd`: borrows a descriptor by its number; `set_nonblocking`: for descriptors that a library has opened;
//! * `read_process`: copies from the memory of another process of the same user, if the system permits it, in the order
//!   of the pieces; `write_process`: copies to it; `own_pid`: the number by which other processes name this one;
//!   `Process`: a process that may have exited;
//! * `allowed`: the logical processors on which this thread may run; `run_on`: restricts the thread to some of them;
//!   `place`: the location of one;
//! * `monotonic_ns`: a clock that all processes of a host share; `thread_id`: unique on the host while the thread
//!   lives;
//! * `memlock_limit`: how much memory this process may lock, if a limit applies to this thread;
//! * `raise_descriptors`: raises this process's limit of open descriptors to its maximum;
//! * `random`: unpredictable bytes; `kill_self`: ends the process without cleanup, for tests of sudden death.
//!
//! `linux` implements all of them. `shell` has the same names and rejects every call, except that a doorbell works
//! among threads: `smdev`, the engine and matching run on every platform with Rust. `shell` is the choice on every
//! other system, and on Linux with `--cfg mpj_portable`. To support a new platform, copy `shell` and fill it in.

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[allow(unsafe_code, reason = "calls that neither std nor rustix has")]
mod linux;
#[cfg(all(target_os = "linux", not(mpj_portable)))]
pub(crate) use linux::*;

#[cfg(not(all(target_os = "linux", not(mpj_portable))))]
#[allow(unsafe_code, reason = "stands in for a type that keeps an unsafe contract")]
mod shell;
#[cfg(not(all(target_os = "linux", not(mpj_portable))))]
pub(crate) use shell::*;

#[cfg(unix)]
pub(crate) use std::os::fd::{BorrowedFd, OwnedFd};
#[cfg(windows)]
pub(crate) use std::os::windows::io::{BorrowedHandle as BorrowedFd, OwnedHandle as OwnedFd};

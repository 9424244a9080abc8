//! The operating system: every call that std has none for, and nothing else of the crate names one.
//!
//! A platform gives, in a folder or file of its own beside `linux` and `shell`:
//! * `OwnedFd`, `BorrowedFd`: descriptors, which a process can hand to another;
//! * `Errno`: error numbers, with the names that `niodev` tells apart, which turn into `io::Error`; `NOT_SUPPORTED`: the
//!   number of that error;
//! * `Event`: a counter of this process; `signal` makes it readable, `wait` sleeps until it or another descriptor is
//!   readable or time is up, `clear` makes it unreadable. A signal before the wait ends the wait;
//! * `Wakeup`: what another process makes readable that knows its `name`, a number; `send` does so for any name, `clear`
//!   makes one's own unreadable. A name that nobody has is no error; `is_there` says whether anybody has it, which lasts as long as
//!   the socket does, and so no longer than its process; it says yes where that cannot be found out;
//! * `membarrier`: `register` says whether `run` will work in this process, `run` makes every thread of every registered
//!   process pass a full fence, or says that it did not: then both sides of a doorbell fence for themselves;
//! * `SharedStorage`, `SegmentView`: memory that several processes map and nobody can truncate, and of which each reserves what it
//!   uses, as in `mpj-pool`;
//!   `HAS_SHARED_MEMORY`: whether there is such memory at all;
//! * `Poll`: which of many sockets are readable or writable, level-triggered, itself a descriptor that is readable when
//!   there is news;
//! * `socket`: streams that do not block, are not inherited, and raise no signal; writing from several places at once;
//!   how much the peer's host has not acknowledged;
//! * `descriptor`: one by its number, `unblock`: has calls on it fail instead of waiting, for what a library has opened;
//! * `read_process`: copies out of the memory of another process of the same user, if the system lets it, in the order in
//!   which the pieces are given; `write_process`: copies into it; `own_process`: by what others name this one;
//!   `Process`: one of that name, which may end;
//! * `allowed`: the logical processors that this thread may run on; `run_on` keeps it on some of them; `place`: where one
//!   is, so that neighbours can be told;
//! * `now`: the nanoseconds of a clock that never goes back, the same one for all processes of a host; `thread`: this thread's
//!   number, which no other of the host has while it lives;
//! * `lockable`: how much memory this process may lock, if there is a limit for this thread;
//! * `raise_descriptors`: raises this process's limit of open descriptors as far as it may;
//! * `random`: bytes nobody can guess; `kill_me`: an end without farewell, for tests of such ends.
//!
//! `linux` has all of it. `shell` has the same names and refuses every call, except that a doorbell works among threads:
//! with it `smdev`, the engine and matching run wherever Rust does. It is chosen on every other system, and on Linux by
//! `--cfg mpj_portable`, so that it is compiled and tested here. To bring up a platform, copy it and fill it in.

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

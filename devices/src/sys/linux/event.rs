//! The descriptor of a doorbell: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use smallvec::{SmallVec, smallvec};

#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    /// Makes one. If the process has as many descriptors open as it may, raises that limit first: each rank that is a thread
    /// takes one.
    ///
    /// # Errors
    /// No descriptor is left, and what to do about it.
    pub(crate) fn new() -> io::Result<Self> {
        let make = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let made = make().or_else(|error| {
            if error != Errno::MFILE {
                return Err(error);
            }
            super::raise_descriptors();
            make()
        });
        made.map(Event).map_err(|error| {
            let advice = match error {
                Errno::MFILE => "; each rank takes a file descriptor: raise `ulimit -Hn`",
                Errno::NFILE => "; the host has no file descriptors left: raise fs.file-max",
                _ => "",
            };
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("eventfd: {error}{advice}"))
        })
    }

    /// Makes it readable.
    pub(crate) fn signal(&self) {
        // A full counter (EAGAIN) means that it is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Waits until it or one of `also` is readable, or for `credit_limit`.
    pub(crate) fn wait(&self, also: &[BorrowedFd<'_>], limit: Duration) {
        // A rank of few devices sleeps without allocating.
        let mut fds: SmallVec<[PollFd<'_>; 4]> =
            smallvec![PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        fds.extend(also.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        // An interrupted poll is a short sleep.
        let _ = rustix::event::poll(&mut fds, Some(&limit));
    }

    /// Makes it unreadable again.
    pub(crate) fn clear(&self) {
        // Nothing to read (EAGAIN) means that the limit or another descriptor ended the sleep.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

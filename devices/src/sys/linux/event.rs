//! The descriptor of a doorbell: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    /// Makes one.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Event(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub(crate) fn signal(&self) {
        // A full counter (EAGAIN) means that it is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Waits until it or one of `also` is readable, or for `limit`.
    pub(crate) fn wait(&self, also: &[BorrowedFd<'_>], limit: Duration) {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(1 + also.len());
        fds.push(PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN));
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

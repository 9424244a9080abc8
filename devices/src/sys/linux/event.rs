//! The descriptor of a doorbell: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use smallvec::{SmallVec, smallvec};

#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// Creates an eventfd. If the process has reached its limit of open descriptors, this raises the limit and tries
    /// again: each rank that is a thread needs a descriptor.
    ///
    /// # Errors
    /// The error of the system. If no descriptor is left, the message advises how to raise the limit.
    pub(crate) fn new() -> io::Result<Self> {
        let make = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let made = make().or_else(|error| {
            if error != Errno::MFILE {
                return Err(error);
            }
            super::raise_descriptor_limit();
            make()
        });
        made.map(EventFd).map_err(|error| {
            let advice = match error {
                Errno::MFILE => "; each rank takes a file descriptor: raise `ulimit -Hn`",
                Errno::NFILE => "; the host has no file descriptors left: raise fs.file-max",
                _ => "",
            };
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("eventfd: {error}{advice}"))
        })
    }

    pub(crate) fn signal(&self) {
        // EAGAIN means that the counter is full, and so already readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Waits until the event or one of `descriptors` is readable, at most for `limit`.
    #[cfg_attr(loom, allow(dead_code, reason = "models of doorbells use a counter"))]
    pub(crate) fn wait(&self, descriptors: &[BorrowedFd<'_>], limit: Duration) {
        // A rank with few devices sleeps without an allocation.
        let mut fds: SmallVec<[PollFd<'_>; 4]> =
            smallvec![PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        fds.extend(descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        // If a signal interrupts the poll, the sleep ends early.
        let _ = rustix::event::poll(&mut fds, Some(&limit));
    }

    /// Returns the descriptor that is readable after a signal.
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.0.as_fd())
    }

    pub(crate) fn clear(&self) {
        // EAGAIN means that the event was not signalled.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

//! A counter that replaces the eventfd in models. A wait has no time limit, so loom reports a sleep that nothing ends
//! as a deadlock.

use std::io;
use std::time::Duration;

use crate::sync::{Condvar, Mutex, lock};
use crate::sys::BorrowedFd;

#[derive(Debug)]
pub(super) struct EventFd {
    count: Mutex<u64>,
    signalled: Condvar,
}

impl EventFd {
    pub(super) fn new() -> io::Result<Self> {
        Ok(EventFd { count: Mutex::new(0), signalled: Condvar::new() })
    }

    pub(super) fn signal(&self) {
        *lock(&self.count) += 1;
        self.signalled.notify_all();
    }

    pub(super) fn wait(&self, _descriptors: &[BorrowedFd<'_>], _limit: Duration) {
        let mut count = lock(&self.count);
        while *count == 0 {
            count = self.signalled.wait(count).expect("models end at a panic");
        }
    }

    pub(super) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn clear(&self) {
        *lock(&self.count) = 0;
    }
}

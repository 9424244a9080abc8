//! The event of a doorbell: a flag that wakes threads of this process. It ignores other descriptors.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::sys::BorrowedFd;

#[derive(Debug, Default)]
pub(crate) struct EventFd {
    signalled: Mutex<bool>,
    condvar: Condvar,
}

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(EventFd::default())
    }

    pub(crate) fn signal(&self) {
        *self.signalled.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.condvar.notify_all();
    }

    pub(crate) fn wait(&self, _descriptors: &[BorrowedFd<'_>], limit: Duration) {
        let signalled = self.signalled.lock().unwrap_or_else(PoisonError::into_inner);
        // The caller polls after every sleep, so the result does not matter, even if another thread has panicked.
        let _ = self.condvar.wait_timeout_while(signalled, limit, |signalled| !*signalled);
    }

    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn clear(&self) {
        *self.signalled.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

//! A counter that replaces the eventfd in models. It has no time limit: a sleep that is never ended is an error in a
//! model.

use std::io;
use std::time::Duration;

use crate::sync::{Condvar, Mutex, lock};
use crate::sys::BorrowedFd;

#[derive(Debug)]
pub(super) struct EventFd {
    count: Mutex<u64>,
    news: Condvar,
}

impl EventFd {
    pub(super) fn new() -> io::Result<Self> {
        Ok(EventFd { count: Mutex::new(0), news: Condvar::new() })
    }

    pub(super) fn signal(&self) {
        *lock(&self.count) += 1;
        self.news.notify_all();
    }

    pub(super) fn wait(&self, _also: &[BorrowedFd<'_>], _limit: Duration) {
        let mut count = lock(&self.count);
        while *count == 0 {
            count = self.news.wait(count).expect("models end at a panic");
        }
    }

    pub(super) fn clear(&self) {
        *lock(&self.count) = 0;
    }
}

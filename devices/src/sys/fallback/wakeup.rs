//! Sockets by which processes wake each other, which this platform does not have.

use std::convert::Infallible;

use super::Errno;
use crate::sys::BorrowedFd;

/// A wakeup socket; never constructed.
#[derive(Debug)]
pub(crate) struct Wakeup(Infallible);

impl Wakeup {
    pub(crate) fn new() -> Result<Self, Errno> {
        Err(Errno::UNSUPPORTED)
    }

    pub(crate) fn name(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn send(&self, _name: u64) {
        match self.0 {}
    }

    pub(crate) fn exists(_name: u64) -> bool {
        false
    }

    pub(crate) fn clear(&self) {
        match self.0 {}
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

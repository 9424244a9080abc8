//! A timer as a descriptor, which this platform does not have.

use std::convert::Infallible;
use std::time::Duration;

use super::Errno;
use crate::sys::BorrowedFd;

/// Never constructed.
#[derive(Debug)]
pub(crate) struct Timer(Infallible);

impl Timer {
    pub(crate) fn new() -> Result<Self, Errno> {
        Err(Errno::UNSUPPORTED)
    }

    pub(crate) fn set(&self, _after: Duration) {
        match self.0 {}
    }

    pub(crate) fn clear(&self) {
        match self.0 {}
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

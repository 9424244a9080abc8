//! Readiness of sockets, which this platform does not have.

use std::convert::Infallible;

use super::Errno;
use crate::sys::{BorrowedFd, OwnedFd};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    Read,
    Write,
    Both,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) token: u64,
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// A set of watched sockets; never constructed.
#[derive(Debug)]
pub(crate) struct Poll(Infallible);

impl Poll {
    pub(crate) fn new() -> Result<Self, Errno> {
        Err(Errno::UNSUPPORTED)
    }

    pub(crate) fn add(&self, _socket: &OwnedFd, _token: u64, _what: Interest) -> Result<(), Errno> {
        match self.0 {}
    }

    pub(crate) fn change(&self, _socket: &OwnedFd, _token: u64, _what: Interest) -> Result<(), Errno> {
        match self.0 {}
    }

    pub(crate) fn remove(&self, _socket: &OwnedFd) {
        match self.0 {}
    }

    pub(crate) fn poll(&self, _each: impl FnMut(Readiness)) -> bool {
        match self.0 {}
    }

    pub(crate) fn watch(&self, _other: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.0 {}
    }

    pub(crate) fn has_events(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

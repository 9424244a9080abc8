//! Memory of several processes, of which there is none here.

use std::convert::Infallible;
use std::ptr::NonNull;

use mpj_pool::{Backing, Storage, StorageError};

use crate::sys::{BorrowedFd, OwnedFd};

const REFUSED: StorageError = StorageError::Size { asked: 0, most: 0 };

/// Memory to hand over; never made.
#[derive(Debug)]
pub(crate) struct Shared(Infallible);

/// Memory that was handed over; never made.
#[derive(Debug)]
pub(crate) struct SharedView(Infallible);

impl Shared {
    pub(crate) fn create(len: usize) -> Result<Shared, StorageError> {
        Err(StorageError::Size { asked: len, most: 0 })
    }

    pub(crate) fn attach(_fd: OwnedFd) -> Result<SharedView, StorageError> {
        Err(REFUSED)
    }

    pub(crate) fn epoch(&self) -> u64 {
        match self.0 {}
    }

    /// # Safety
    /// It is never called.
    pub(crate) unsafe fn descriptor(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

impl SharedView {
    pub(crate) fn epoch(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        match self.0 {}
    }

    pub(crate) fn at(&self, _offset: usize, _len: usize) -> Option<NonNull<u8>> {
        match self.0 {}
    }

    /// # Safety
    /// It is never called.
    pub(crate) unsafe fn descriptor(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

// SAFETY: there is no value of the type.
unsafe impl Storage for Shared {
    fn base(&self) -> NonNull<u8> {
        match self.0 {}
    }

    fn size(&self) -> usize {
        match self.0 {}
    }

    fn backing(&self) -> Backing {
        match self.0 {}
    }
}

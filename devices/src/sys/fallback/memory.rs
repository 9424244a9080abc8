//! Shared memory, which this platform does not have.

use std::convert::Infallible;
use std::ptr::NonNull;

use mpj_pool::StorageError;

use crate::sys::{BorrowedFd, OwnedFd};

const REFUSED: StorageError = StorageError::Size { asked: 0, most: 0 };

#[derive(Debug)]
pub(crate) struct SharedStorage;

/// A mapped segment; never constructed.
#[derive(Debug)]
pub(crate) struct SegmentView(Infallible);

impl SharedStorage {
    pub(crate) fn create_unbacked(len: usize) -> Result<SegmentView, StorageError> {
        Err(StorageError::Size { asked: len, most: 0 })
    }

    pub(crate) fn attach(_fd: OwnedFd) -> Result<SegmentView, StorageError> {
        Err(REFUSED)
    }
}

impl SegmentView {
    pub(crate) fn epoch(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        match self.0 {}
    }

    pub(crate) fn commit(&self, _offset: usize, _len: usize) -> Result<(), StorageError> {
        match self.0 {}
    }

    /// # Safety
    /// It cannot be called: no value of this type exists.
    pub(crate) unsafe fn decommit(&self, _offset: usize, _len: usize) -> Result<(), StorageError> {
        match self.0 {}
    }

    pub(crate) fn exclude_from_core_dumps(&self, _offset: usize, _len: usize) -> Result<(), StorageError> {
        match self.0 {}
    }

    pub(crate) fn ptr_at(&self, _offset: usize, _len: usize) -> Option<NonNull<u8>> {
        match self.0 {}
    }

    /// # Safety
    /// It cannot be called: no value of this type exists.
    pub(crate) unsafe fn borrow_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

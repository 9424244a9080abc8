//! Files that several processes map: a header, and the bytes after it.

use core::ptr::NonNull;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memmap2::{MmapOptions, MmapRaw};

use super::StorageError;
use crate::RegionKey;

mod header;
pub(super) use header::{HEADER, Header, new_epoch};

/// A mapping of a [`SharedStorage`](crate::SharedStorage) or a [`FileStorage`](crate::FileStorage), without blocks.
///
/// Access through the addresses is unsafe: the processes must agree on who accesses which bytes when, and a peer may
/// write at any time. Copy a value once, check the copy, then use it.
///
/// # Invariants
/// 1. `map` maps a file of `HEADER + size` bytes, with the seals of `SharedStorage` or a promise that it keeps its
///    size.
#[derive(Debug)]
pub struct SegmentView {
    map: MmapRaw,
    fd: OwnedFd,
    size: usize,
    epoch: u64,
}

/// Reads the header of a file of `file_size` bytes once. Returns the size after the header and the epoch.
pub(super) fn check_header(fd: &OwnedFd, file_size: u64) -> Result<(usize, u64), StorageError> {
    if file_size <= HEADER as u64 {
        return Err(StorageError::Short { needed: HEADER as u64 + 1, found: file_size });
    }
    let mut bytes = [0; Header::LEN];
    let read = rustix::io::pread(fd, &mut bytes, 0).map_err(|error| StorageError::os(0, "pread", error))?;
    if read < bytes.len() {
        return Err(StorageError::Short { needed: bytes.len() as u64, found: read as u64 });
    }
    let header = Header::decode(&bytes)?;
    let size_after_header = file_size - HEADER as u64;
    match usize::try_from(header.size) {
        Ok(size) if header.size == size_after_header && size <= SegmentView::MAX_SIZE => {
            Ok((size, header.epoch))
        }
        _ => Err(StorageError::Length { header: header.size, file: size_after_header }),
    }
}

impl SegmentView {
    pub(super) const MAX_SIZE: usize = (isize::MAX as usize & !(HEADER - 1)) - HEADER;

    pub(super) fn map(
        fd: OwnedFd,
        size: usize,
        epoch: u64,
        populate: bool,
    ) -> Result<SegmentView, StorageError> {
        let mut options = MmapOptions::new();
        if populate {
            options.populate();
        }
        let map =
            options.len(HEADER + size).map_raw(&fd).map_err(|error| StorageError::os(size, "mmap", error))?;
        Ok(SegmentView { map, fd, size, epoch })
    }

    /// Returns the view if its epoch is `needed`.
    ///
    /// # Errors
    /// [`StorageError::Epoch`], with both epochs.
    pub fn expect_epoch(self, needed: u64) -> Result<SegmentView, StorageError> {
        if self.epoch == needed { Ok(self) } else { Err(StorageError::Epoch { needed, found: self.epoch }) }
    }

    /// Returns the number of the segment. Two segments of one host are very unlikely to have the same number.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the key of the blocks of this segment in the process that created it.
    pub fn key(&self) -> RegionKey {
        RegionKey(self.epoch)
    }

    /// Returns the address of the first byte after the header.
    pub fn base(&self) -> NonNull<u8> {
        let base = self.map.as_mut_ptr().wrapping_add(HEADER);
        // SAFETY: invariant 1: the mapping is longer than its header, so the address is inside it, and not null.
        unsafe { NonNull::new_unchecked(base) }
    }

    /// Returns the number of bytes after the header.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the address of `len` bytes at `offset`, or `None` if the bytes do not all lie in the segment.
    pub fn ptr_at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: `offset + len ≤ size`, so the sum stays inside the mapping by invariant 1.
        (end <= self.size).then(|| unsafe { self.base().add(offset) })
    }

    #[cfg(all(target_os = "linux", not(mpj_portable)))]
    fn check_range(&self, offset: usize, len: usize) -> Result<(), StorageError> {
        let outside = StorageError::Range { offset, len, size: self.size };
        self.ptr_at(offset, len).map(|_| ()).ok_or(outside)
    }

    /// Allocates memory for `len` bytes at `offset` of an [unbacked](crate::SharedStorage::create_unbacked) segment, on
    /// the NUMA node of the calling thread by default. Bytes that have memory already keep it and their content.
    ///
    /// # Errors
    /// [`StorageError::Range`] if the bytes do not all lie in the segment, [`StorageError::Refused`] if the system call
    /// fails, usually because memory is exhausted.
    #[cfg(all(target_os = "linux", not(mpj_portable)))]
    pub fn commit(&self, offset: usize, len: usize) -> Result<(), StorageError> {
        use rustix::fs::{FallocateFlags, fallocate};
        if len == 0 {
            return Ok(());
        }
        self.check_range(offset, len)?;
        let at = (HEADER + offset) as u64;
        // If a signal interrupts the call, the kernel undoes its progress.
        rustix::io::retry_on_intr(|| fallocate(&self.fd, FallocateFlags::KEEP_SIZE, at, len as u64))
            .map_err(|error| StorageError::os(len, "fallocate", error))
    }

    /// Frees the memory of `len` bytes at `offset`, which are whole pages. They read as zero; [`commit`](Self::commit)
    /// them before the next use.
    ///
    /// # Errors
    /// [`StorageError::Range`] as for [`commit`](Self::commit), [`StorageError::Refused`] if the system call fails.
    ///
    /// # Safety
    /// No process uses the bytes.
    #[cfg(all(target_os = "linux", not(mpj_portable)))]
    pub unsafe fn decommit(&self, offset: usize, len: usize) -> Result<(), StorageError> {
        use rustix::fs::{FallocateFlags, fallocate};
        if len == 0 {
            return Ok(());
        }
        self.check_range(offset, len)?;
        let (flags, at) = (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, (HEADER + offset) as u64);
        rustix::io::retry_on_intr(|| fallocate(&self.fd, flags, at, len as u64))
            .map_err(|error| StorageError::os(len, "fallocate", error))
    }

    /// Excludes `len` bytes at `offset`, whole pages, from core dumps: a dump would allocate memory for unbacked pages.
    ///
    /// # Errors
    /// [`StorageError::Range`] as for [`commit`](Self::commit), [`StorageError::Refused`] if the system call fails.
    #[cfg(all(target_os = "linux", not(mpj_portable)))]
    pub fn exclude_from_core_dumps(&self, offset: usize, len: usize) -> Result<(), StorageError> {
        if len == 0 {
            return Ok(());
        }
        self.check_range(offset, len)?;
        self.map.advise_range(memmap2::Advice::DontDump, HEADER + offset, len).map_err(|error| {
            StorageError::Refused { asked: len, call: "madvise", errno: error.raw_os_error().unwrap_or(0) }
        })
    }

    /// Borrows the descriptor of the file, for another process to attach.
    ///
    /// # Safety
    /// The descriptor and its duplicates are only passed on, attached (in any process), or read from. Writes and holes
    /// through the descriptor, and other mappings, could change blocks that handles own.
    pub unsafe fn borrow_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const _: () =
    assert!(HEADER.is_multiple_of(crate::class::MAX_ALIGN), "the first block is aligned after the header");

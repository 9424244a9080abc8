use core::ptr::NonNull;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use super::segment::{HEADER, Header, SegmentView, check_header, new_epoch};
use super::{Backing, Storage, StorageError, whole_pages};
use crate::RegionKey;

/// With these seals, no process can shrink the file (an access beyond its end would raise SIGBUS), grow it (header and
/// file would disagree), or add other seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Memory that other processes can map, and whose blocks this process allocates. Available on Linux.
///
/// The file is sealed: it keeps its size, so no access is beyond its end. It starts with a header page:
///
/// ```text
/// 0        8         12       16     24      32           4096             4096 + size
/// | magic  | version | header | size | epoch | zero ...   | bytes of blocks |     all little-endian
/// ```
///
/// A peer gets the descriptor by inheritance or SCM_RIGHTS and calls [`SharedStorage::attach`]. Both sides then
/// identify bytes by their offset. The [key](Storage::key) is the [epoch](Self::epoch).
///
/// ```
/// use mpj_pool::{Buddy, Pool, RawBuffer, SharedStorage, Storage};
///
/// let segment = SharedStorage::create(1 << 20)?;
/// // SAFETY: the duplicate is attached, and nothing else.
/// let fd = unsafe { segment.borrow_fd() }.try_clone_to_owned()?;
/// let view = SharedStorage::attach(fd)?;
/// let pool = Buddy::fixed(segment)?;
/// let block = pool.alloc(1000)?;
/// let (key, offset) = block.region_offset().expect("shared memory has a key");
/// assert_eq!(key, view.key());
/// assert!(view.ptr_at(offset, 1000).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SharedStorage {
    view: SegmentView,
}

impl SharedStorage {
    /// Creates a segment of `len` bytes, rounded up to a multiple of 4096, and faults it in.
    ///
    /// # Errors
    /// [`StorageError::Size`] above the address space, [`StorageError::Refused`] if a system call fails.
    pub fn create(len: usize) -> Result<SharedStorage, StorageError> {
        // Extends the file with memory, so that exhausted memory is an error here and not a signal later.
        let extend = |fd: &OwnedFd, total| {
            rustix::io::retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, total))
                .map_err(|error| StorageError::os(len, "fallocate", error))
        };
        Ok(SharedStorage { view: make(len, extend, true)? })
    }

    /// Creates a segment of `len` zero bytes, rounded up to a multiple of 4096, without memory. A process
    /// [commits](SegmentView::commit) each part before it uses it, and so gets memory near its own CPU.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_unbacked(len: usize) -> Result<SegmentView, StorageError> {
        let extend = |fd: &OwnedFd, total| {
            rustix::fs::ftruncate(fd, total).map_err(|error| StorageError::os(len, "ftruncate", error))
        };
        make(len, extend, false)
    }

    /// Maps a segment that another process, or other code of this process, has created.
    ///
    /// The header is copied once and checked against the file before anything is mapped.
    ///
    /// # Errors
    /// [`StorageError::Refused`] if the file is not a memfd or cannot be mapped, [`Unsealed`](StorageError::Unsealed),
    /// [`Short`](StorageError::Short), [`Magic`](StorageError::Magic), [`Unfinished`](StorageError::Unfinished),
    /// [`Version`](StorageError::Version), [`Length`](StorageError::Length).
    pub fn attach(fd: OwnedFd) -> Result<SegmentView, StorageError> {
        let os = |call| move |error: rustix::io::Errno| StorageError::os(0, call, error);
        // Check the seals first: then the size cannot change any more.
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(os("fcntl"))?;
        if !seals.contains(SEALS) {
            return Err(StorageError::Unsealed { needed: SEALS.bits(), found: seals.bits() });
        }
        let file = rustix::fs::fstat(&fd).map_err(os("fstat"))?.st_size as u64;
        let (size, epoch) = check_header(&fd, file)?;
        // Not faulted in: a process that uses little of a large segment should not pay for all of it.
        SegmentView::map(fd, size, epoch, false)
    }

    /// As [`SegmentView::epoch`].
    pub fn epoch(&self) -> u64 {
        self.view.epoch()
    }

    /// Returns the descriptor to pass to a peer; it is close-on-exec.
    ///
    /// # Safety
    /// As for [`SegmentView::borrow_fd`].
    pub unsafe fn borrow_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the caller's promise.
        unsafe { self.view.borrow_fd() }
    }
}

/// Creates and maps a sealed memfd of a header and `len` bytes. `extend` sets the length of the file.
fn make(
    len: usize,
    extend: impl FnOnce(&OwnedFd, u64) -> Result<(), StorageError>,
    populate: bool,
) -> Result<SegmentView, StorageError> {
    let size = whole_pages(len, HEADER, SegmentView::MAX_SIZE)?;
    let os = |call| move |error: rustix::io::Errno| StorageError::os(len, call, error);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("mpj-pool", flags).map_err(os("memfd_create"))?;
    extend(&fd, (HEADER + size) as u64)?;
    let header = Header { size: size as u64, epoch: new_epoch() };
    rustix::io::pwrite(&fd, &header.encode(), 0).map_err(os("pwrite"))?;
    rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(os("fcntl"))?;
    SegmentView::map(fd, size, header.epoch, populate)
}

// SAFETY: 1: invariant 1 of `SegmentView`: the mapping is whole, and the seals keep it so; it is unmapped with the
// value. 2: mappings start on a page, and the header is 4096 bytes. 3: no field changes. 4: a `SharedStorage` is made
// by `create` alone, one for each file; every other mapping of it is a `SegmentView`, which returns addresses only.
unsafe impl Storage for SharedStorage {
    fn base(&self) -> NonNull<u8> {
        self.view.base()
    }

    fn size(&self) -> usize {
        self.view.size()
    }

    fn backing(&self) -> Backing {
        Backing::Shared
    }

    fn key(&self) -> Option<RegionKey> {
        Some(self.view.key())
    }
}

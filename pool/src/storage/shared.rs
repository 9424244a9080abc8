//! Memory that several processes map: a sealed memfd.

use core::ptr::NonNull;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use super::segment::{HEADER, Header, SegmentView, check_header, new_epoch};
use super::{Backing, Storage, StorageError, whole_pages};
use crate::RegionKey;

/// With these seals no process can shrink the file (an access beyond its end is SIGBUS), grow it (header and file would
/// disagree), or remove the seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Memory that other processes may map, and whose blocks this process hands out. Available on Linux.
///
/// The file is sealed: it keeps its size, so no peer can make an access fail. It starts with a header page:
///
/// ```text
/// 0        8         12       16     24      32           4096             4096 + size
/// | magic  | version | header | size | epoch | zero ...   | bytes of blocks |     all little-endian
/// ```
///
/// A peer gets the descriptor by inheritance or SCM_RIGHTS and calls [`SharedStorage::attach`]; both sides then name
/// bytes by their offset. The [key](Storage::key) is the epoch, which differs for each segment made on a host.
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
    /// Makes a segment of `len` bytes, rounded up to a multiple of 4096, and faults it in.
    ///
    /// # Errors
    /// [`StorageError::Size`] above what an address space holds, [`StorageError::Refused`] if the system has no more.
    pub fn create(len: usize) -> Result<SharedStorage, StorageError> {
        // Extends the file and backs it with memory, so that a full host is an error here and not a signal later.
        let extend = |fd: &OwnedFd, total| {
            rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, total)
                .map_err(|error| StorageError::os(len, "fallocate", error))
        };
        Ok(SharedStorage { view: make(len, extend, true)? })
    }

    /// Makes a segment of `len` bytes, rounded up to a multiple of 4096, all of them zero and without memory. A process
    /// that is about to use a part of it [commits](SegmentView::commit) that part, and so gets memory near its own
    /// processor.
    ///
    /// # Errors
    /// As of [`create`](Self::create).
    pub fn create_unbacked(len: usize) -> Result<SegmentView, StorageError> {
        let extend = |fd: &OwnedFd, total| {
            rustix::fs::ftruncate(fd, total).map_err(|error| StorageError::os(len, "ftruncate", error))
        };
        make(len, extend, false)
    }

    /// Maps a segment that another process, or another part of this one, has made.
    ///
    /// The header is read once, copied out, and checked against the file before anything is mapped.
    ///
    /// # Errors
    /// One variant for each defect of a descriptor: not a memfd ([`StorageError::Refused`]),
    /// [`Unsealed`](StorageError::Unsealed), [`Short`](StorageError::Short), [`Magic`](StorageError::Magic),
    /// [`Version`](StorageError::Version), [`Length`](StorageError::Length).
    pub fn attach(fd: OwnedFd) -> Result<SegmentView, StorageError> {
        let os = |call| move |error: rustix::io::Errno| StorageError::os(0, call, error);
        // Seals first: from here on the size stays what it is.
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(os("fcntl"))?;
        if !seals.contains(SEALS) {
            return Err(StorageError::Unsealed { needed: SEALS.bits(), found: seals.bits() });
        }
        let file = rustix::fs::fstat(&fd).map_err(os("fstat"))?.st_size as u64;
        let (size, epoch) = check_header(&fd, file)?;
        // Its pages exist already; a process that attaches a large segment to use a little of it should not pay for
        // all.
        SegmentView::map(fd, size, epoch, false)
    }

    /// Returns a number that no other segment made on this host has.
    pub fn epoch(&self) -> u64 {
        self.view.epoch()
    }

    /// Returns the descriptor to pass to a peer; it is close-on-exec.
    ///
    /// # Safety
    /// It and every duplicate of it are only handed over, attached ([`SharedStorage::attach`], here or in another
    /// process) or read from. Writing to the file, punching a hole in it or mapping it in another way would change
    /// blocks that other handles own.
    pub unsafe fn borrow_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the caller's promise.
        unsafe { self.view.borrow_fd() }
    }
}

/// Makes a sealed memfd of a header and `len` bytes, and maps it; `extend` gives it its length.
fn make(
    len: usize,
    extend: impl FnOnce(&OwnedFd, u64) -> Result<(), StorageError>,
    now: bool,
) -> Result<SegmentView, StorageError> {
    let size = whole_pages(len, HEADER, SegmentView::MAX_SIZE)?;
    let os = |call| move |error: rustix::io::Errno| StorageError::os(len, call, error);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("mpj-pool", flags).map_err(os("memfd_create"))?;
    extend(&fd, (HEADER + size) as u64)?;
    let header = Header { size: size as u64, epoch: new_epoch() };
    rustix::io::pwrite(&fd, &header.encode(), 0).map_err(os("pwrite"))?;
    rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(os("fcntl"))?;
    SegmentView::map(fd, size, header.epoch, now)
}

// SAFETY: 1: invariant 1 of SharedView: the mapping is whole, and the seals keep it so; it is unmapped with the value.
// 2: mappings start on a page, and the header is 4096 bytes. 3: no field changes. 4: `SharedStorage` is made by
// `create` alone, one for each file; every other mapping of it is a `SegmentView`, which gives out addresses only.
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

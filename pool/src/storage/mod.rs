//! The memory under regions: the trait [`Storage`] and its implementations.

use core::fmt;
use core::ptr::NonNull;
use std::io;

use crate::RegionKey;

#[cfg(all(any(target_os = "linux", target_os = "macos"), not(mpj_portable)))]
#[allow(unsafe_code, reason = "maps named files; its callers guarantee their size")]
mod file;
#[allow(unsafe_code, reason = "calls the allocator")]
mod heap;
#[allow(unsafe_code, reason = "promises that the mapping obeys the contract of Storage")]
mod huge;
#[allow(unsafe_code, reason = "promises that the mapping obeys the contract of Storage")]
mod pages;
#[cfg(all(any(target_os = "linux", target_os = "macos"), not(mpj_portable)))]
#[allow(unsafe_code, reason = "gives out addresses in a mapping")]
mod segment;
#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[allow(unsafe_code, reason = "promises that the mapping obeys the contract of Storage")]
mod shared;
mod sys;

#[cfg(all(any(target_os = "linux", target_os = "macos"), not(mpj_portable)))]
pub use file::FileStorage;
pub use heap::Heap;
pub use huge::Huge;
pub use pages::Pages;
#[cfg(all(any(target_os = "linux", target_os = "macos"), not(mpj_portable)))]
pub use segment::SegmentView;
#[cfg(all(target_os = "linux", not(mpj_portable)))]
pub use shared::SharedStorage;

/// The kind of memory under a [`Storage`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Backing {
    /// Memory from the global allocator.
    Heap,
    /// A private anonymous mapping.
    Pages {
        /// Whether the kernel has accepted the advice to use huge pages.
        thp: bool,
    },
    /// Huge pages of the system's reserve.
    Huge {
        /// The page size in bytes.
        page: usize,
    },
    /// Memory that other processes may map.
    Shared,
    /// A file with a name.
    File,
}

/// A stable range of bytes from which a pool allocates blocks.
///
/// # Safety
/// For as long as the value exists, wherever it is moved:
/// 1. `base()..base() + size()` lies in one allocation, readable and writable, that neither moves nor is unmapped nor
///    can be truncated; `size()` is at least 1 and at most `isize::MAX`;
/// 2. `base()` is a multiple of 4096;
/// 3. all methods always return the same values;
/// 4. the value alone grants access to the bytes: no other `Storage` covers any of them, and other code that knows
///    their address accesses them only if the owner of a block allows it.
///
/// The bytes may be uninitialised.
#[expect(unsafe_code, reason = "the contract that pools rely on when they give out addresses")]
pub unsafe trait Storage: Send + Sync + fmt::Debug + 'static {
    /// Returns the address of the first byte.
    fn base(&self) -> NonNull<u8>;

    /// Returns the length in bytes.
    fn size(&self) -> usize;

    /// Returns the page size of this memory in bytes.
    fn page_size(&self) -> usize {
        sys::page_size()
    }

    /// Returns the kind of memory.
    fn backing(&self) -> Backing;

    /// Returns the key by which other processes identify this memory, or `None` if they cannot map it.
    fn key(&self) -> Option<RegionKey> {
        None
    }

    /// Returns the pages of a range to the system. Their content is lost, and the next access gets new pages.
    ///
    /// Returns false if this kind of memory cannot do that, as in the default implementation.
    ///
    /// # Safety
    /// The range lies in the storage, and `at` and `len` are multiples of [`page_size`](Self::page_size). No thread and
    /// no device accesses the range meanwhile, and it counts as uninitialised afterwards.
    unsafe fn discard(&self, at: usize, len: usize) -> bool {
        let _ = (at, len);
        false
    }
}

// SAFETY: the storage in the box keeps the contract, and the box does not change it.
#[expect(unsafe_code, reason = "the contract is passed on")]
unsafe impl Storage for Box<dyn Storage> {
    fn base(&self) -> NonNull<u8> {
        (**self).base()
    }

    fn size(&self) -> usize {
        (**self).size()
    }

    fn page_size(&self) -> usize {
        (**self).page_size()
    }

    fn backing(&self) -> Backing {
        (**self).backing()
    }

    fn key(&self) -> Option<RegionKey> {
        (**self).key()
    }

    unsafe fn discard(&self, at: usize, len: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (**self).discard(at, len) }
    }
}

/// The error of a failed operation on a storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StorageError {
    /// The size is unsuitable, or the source of regions returned less than requested.
    Size {
        /// The bytes requested.
        asked: usize,
        /// The maximum in bytes, or the size that a source returned.
        most: usize,
    },
    /// No memory is left for the map of the free blocks of a region.
    MapMemory {
        /// The size of the region in bytes.
        size: usize,
    },
    /// A range of bytes is not entirely in the segment.
    Range {
        /// The offset of its first byte.
        offset: usize,
        /// Its length in bytes.
        len: usize,
        /// The size of the segment in bytes.
        size: usize,
    },
    /// A system call or the allocator failed.
    Refused {
        /// The number of bytes that the call was for, or 0 if it opens or examines an existing segment or file.
        asked: usize,
        /// The call that failed.
        call: &'static str,
        /// The error number.
        errno: i32,
    },
    /// The file lacks a required seal, so a peer could change its size or its seals.
    Unsealed {
        /// The required seals.
        needed: u32,
        /// The seals found.
        found: u32,
    },
    /// The file is too short, only part of its header was written or read, or its header states another header length.
    Short {
        /// The required number of bytes.
        needed: u64,
        /// The number of bytes found.
        found: u64,
    },
    /// The file does not start with the magic number.
    Magic {
        /// The first eight bytes.
        found: u64,
    },
    /// The file has no header yet: its creation is not finished, or has failed.
    Unfinished,
    /// The file belongs to another user.
    Owner {
        /// The user of this process.
        needed: u32,
        /// The owner of the file.
        found: u32,
    },
    /// The header has an unknown version.
    Version {
        /// The supported version.
        needed: u32,
        /// The version found.
        found: u32,
    },
    /// The header and the file disagree about the size, or the size exceeds the address space.
    Length {
        /// The size in the header.
        header: u64,
        /// The size of the file without its header.
        file: u64,
    },
    /// The segment has an unexpected epoch: it is from an earlier run, or of another job.
    Epoch {
        /// The expected epoch.
        needed: u64,
        /// The epoch found.
        found: u64,
    },
}

impl StorageError {
    pub(crate) fn os(asked: usize, call: &'static str, errno: impl Into<io::Error>) -> StorageError {
        StorageError::Refused { asked, call, errno: errno.into().raw_os_error().unwrap_or(0) }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use StorageError::*;
        match *self {
            Size { asked, most } => write!(f, "unsuitable storage size of {asked} bytes (maximum: {most})"),
            MapMemory { size } => {
                write!(f, "no memory for the map of the free blocks of a region of {size} bytes")
            }
            Range { offset, len, size } => {
                write!(f, "{len} bytes at offset {offset} exceed the segment of {size} bytes")
            }
            Refused { asked: 0, call, errno } => {
                write!(f, "{call}: {}", io::Error::from_raw_os_error(errno))
            }
            Refused { asked, call, errno } => {
                write!(f, "{call} for {asked} bytes: {}", io::Error::from_raw_os_error(errno))
            }
            Unsealed { needed, found } => {
                write!(f, "segment is not sealed: found seals {found:#x}, expected {needed:#x}")
            }
            Short { needed, found } => write!(f, "segment or its header has {found} bytes, needed {needed}"),
            Magic { found } => write!(f, "not a segment: the file starts with {found:#018x}"),
            Unfinished => write!(f, "segment has no header yet"),
            Owner { needed, found } => write!(f, "segment belongs to user {found}, expected {needed}"),
            Version { needed, found } => write!(f, "segment has version {found}, expected {needed}"),
            Length { header, file } => write!(f, "segment header claims {header} bytes, the file has {file}"),
            Epoch { needed, found } => write!(f, "segment has epoch {found:#x}, expected {needed:#x}"),
        }
    }
}

impl core::error::Error for StorageError {}

/// Rounds `len` up to whole pages of `page` bytes, at least one. Fails if the result exceeds `most`.
pub(crate) fn whole_pages(len: usize, page: usize, most: usize) -> Result<usize, StorageError> {
    match len.max(1).checked_next_multiple_of(page) {
        Some(size) if size <= most => Ok(size),
        _ => Err(StorageError::Size { asked: len, most }),
    }
}

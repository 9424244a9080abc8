//! Where the bytes of a region come from.

use core::fmt;
use core::ptr::NonNull;
use std::io;

use crate::RegionKey;

#[cfg(all(any(target_os = "linux", target_os = "macos"), not(mpj_portable)))]
#[allow(unsafe_code, reason = "maps files that have names, which its callers answer for")]
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
        /// The kernel accepted the advice to back it with huge pages.
        thp: bool,
    },
    /// Huge pages of the system's reserve.
    Huge {
        /// The size of one.
        page: usize,
    },
    /// Memory that other processes may map.
    Shared,
    /// A file with a name.
    File,
}

/// One stable range of bytes from which a pool hands out blocks.
///
/// # Safety
/// For as long as the value exists, wherever it is moved:
/// 1. `base()..base() + size()` lies in one allocation, readable and writable, that neither moves nor unmaps nor can be
///    truncated; `size()` is at least 1 and at most `isize::MAX`;
/// 2. `base()` is a multiple of 4096;
/// 3. all methods always answer the same;
/// 4. the value alone grants access to the bytes: no other `Storage` covers one of them, and other code that knows
///    their address does not access them unless the owner of a block allows it.
///
/// The bytes may be uninitialised.
#[expect(unsafe_code, reason = "the contract that pools rely on when they give out addresses")]
pub unsafe trait Storage: Send + Sync + fmt::Debug + 'static {
    /// Returns the first byte.
    fn base(&self) -> NonNull<u8>;

    /// Returns the length in bytes.
    fn size(&self) -> usize;

    /// Returns the size of the pages that the operating system hands out for this memory.
    fn page_size(&self) -> usize {
        sys::page_size()
    }

    /// Returns the kind of memory.
    fn backing(&self) -> Backing;

    /// Returns the name under which other processes know this memory, if they do.
    fn key(&self) -> Option<RegionKey> {
        None
    }
}

// SAFETY: the storage in the box keeps the contract, and the box stays what it is.
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
}

/// Why a storage could not be made or attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StorageError {
    /// The size is more than any storage can have.
    Size {
        /// The bytes requested.
        asked: usize,
        /// The most bytes that can be requested.
        most: usize,
    },
    /// The operating system or the allocator has refused the request.
    Refused {
        /// The bytes requested.
        asked: usize,
        /// The call that failed.
        call: &'static str,
        /// Its error number.
        errno: i32,
    },
    /// The descriptor is not sealed against truncation, so its memory could vanish.
    Unsealed {
        /// The seals that are needed.
        needed: u32,
        /// The seals that are there.
        found: u32,
    },
    /// The file is shorter than its header.
    Short {
        /// The bytes needed.
        needed: u64,
        /// The bytes there.
        found: u64,
    },
    /// The file does not start with the magic number.
    Magic {
        /// The first eight bytes.
        found: u64,
    },
    /// The file has no header yet: it is being made, or was never finished.
    Unfinished,
    /// The file belongs to another user.
    Owner {
        /// This process's user.
        needed: u32,
        /// The file's.
        found: u32,
    },
    /// The header is of another version.
    Version {
        /// The version that this program understands.
        needed: u32,
        /// The version found.
        found: u32,
    },
    /// The header and the file disagree about the size.
    Length {
        /// The size by the header.
        header: u64,
        /// The size of the file less its header.
        file: u64,
    },
    /// The segment has another epoch than expected: a leftover, or one of another job.
    Epoch {
        /// The epoch expected.
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
            Size { asked, most } => write!(f, "storage of {asked} bytes exceeds the maximum of {most}"),
            Refused { asked, call, errno } => {
                write!(f, "{call} for {asked} bytes: {}", io::Error::from_raw_os_error(errno))
            }
            Unsealed { needed, found } => {
                write!(f, "segment is not sealed: found seals {found:#x}, expected {needed:#x}")
            }
            Short { needed, found } => write!(f, "segment has {found} bytes, expected at least {needed}"),
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

use core::ptr::NonNull;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FallocateFlags, FileType, Mode, OFlags};

use super::segment::{HEADER, Header, SegmentView, check_header, new_epoch};
use super::{Backing, Storage, StorageError, whole_pages};
use crate::RegionKey;

/// Memory in a named file, which can be larger than the main memory. Other processes find it by its name.
///
/// The file has the header of a [`SharedStorage`](crate::SharedStorage) segment, which is written last, so an
/// unfinished file is not mistaken for a finished one. Each page is faulted in at its first access. The file stays when
/// the value is dropped, and can be removed at any time: mappings stay valid. Available on Linux and macOS.
///
/// The functions are unsafe because a file is not sealed: if it is truncated, an access beyond its end raises SIGBUS.
#[derive(Debug)]
pub struct FileStorage {
    view: SegmentView,
}

impl FileStorage {
    /// Creates a new file with `len` bytes after its header, rounded up to a multiple of 4096, for this user alone.
    ///
    /// The disk space is allocated at once, so that a full disk is an error here and not a signal later.
    ///
    /// # Errors
    /// [`StorageError::Size`] if the length exceeds the address space; [`StorageError::Refused`] if the file exists or
    /// cannot be created, allocated, written or mapped; [`StorageError::Short`] if the header is written only in part.
    ///
    /// # Safety
    /// For as long as the value lives, the file is not truncated, and another process writes only to blocks whose
    /// offsets their owner has sent to it.
    ///
    /// ```
    /// use mpj_pool::{FileStorage, Magazine, Pool, Storage};
    /// let path = std::env::temp_dir().join(format!("mpj-pool-doc-{}", std::process::id()));
    /// // SAFETY: nobody else knows the file.
    /// let file = unsafe { FileStorage::create(&path, 1 << 20) }?;
    /// let key = file.key();
    /// // SAFETY: as above.
    /// let view = unsafe { FileStorage::attach(&path) }?;
    /// std::fs::remove_file(&path)?;
    /// assert_eq!(key, Some(view.key()));
    /// let block = Magazine::fixed(file)?.alloc(1000)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn create(path: impl AsRef<Path>, len: usize) -> Result<FileStorage, StorageError> {
        let size = whole_pages(len, HEADER, SegmentView::MAX_SIZE)?;
        let os = |call| move |error: rustix::io::Errno| StorageError::os(len, call, error);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(path.as_ref(), flags, Mode::RUSR | Mode::WUSR).map_err(os("open"))?;
        let made = Self::allocate_with_header(&fd, size, len);
        let view = made.and_then(|epoch| SegmentView::map(fd, size, epoch, false));
        if view.is_err() {
            // The unfinished file is useless. If it cannot be removed, the original error is more important.
            let _ = rustix::fs::unlink(path.as_ref());
        }
        Ok(FileStorage { view: view? })
    }

    fn allocate_with_header(fd: &OwnedFd, size: usize, len: usize) -> Result<u64, StorageError> {
        let os = |call| move |error: rustix::io::Errno| StorageError::os(len, call, error);
        // If a signal interrupts the call, the kernel undoes its progress.
        let total = (HEADER + size) as u64;
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, total))
            .map_err(os("fallocate"))?;
        let header = Header { size: size as u64, epoch: new_epoch() };
        let written = rustix::io::pwrite(fd, &header.encode(), 0).map_err(os("pwrite"))?;
        if written < Header::LEN {
            return Err(StorageError::Short { needed: Header::LEN as u64, found: written as u64 });
        }
        Ok(header.epoch)
    }

    /// Maps a file that this or another process has created with [`create`](Self::create).
    ///
    /// The header is copied once and checked against the file before anything is mapped.
    ///
    /// # Errors
    /// [`StorageError::Owner`] if another user owns the file, [`Unfinished`](StorageError::Unfinished) if its header is
    /// still zero, [`Short`](StorageError::Short), [`Magic`](StorageError::Magic), [`Version`](StorageError::Version),
    /// [`Length`](StorageError::Length), or [`Refused`](StorageError::Refused) if it is not a regular file or cannot be
    /// opened, read or mapped.
    ///
    /// # Safety
    /// For as long as the view lives, the file is not truncated.
    pub unsafe fn attach(path: impl AsRef<Path>) -> Result<SegmentView, StorageError> {
        let os = |call| move |error: rustix::io::Errno| StorageError::os(0, call, error);
        // NONBLOCK: opening a named pipe must not wait for its other end.
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path.as_ref(), flags, Mode::empty()).map_err(os("open"))?;
        let stat = rustix::fs::fstat(&fd).map_err(os("fstat"))?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(StorageError::os(0, "open", rustix::io::Errno::INVAL));
        }
        let needed = rustix::process::geteuid().as_raw();
        if stat.st_uid != needed {
            return Err(StorageError::Owner { needed, found: stat.st_uid });
        }
        let (size, epoch) = check_header(&fd, stat.st_size as u64)?;
        SegmentView::map(fd, size, epoch, false)
    }

    /// As [`SegmentView::epoch`].
    pub fn epoch(&self) -> u64 {
        self.view.epoch()
    }
}

// SAFETY: 1: `create` has mapped the whole file, and its caller promised that it is not truncated. 2: mappings start on
// a page, and the header is 4096 bytes. 3: no field changes. 4: each `create` makes a new file, and the result of
// `attach` is not a `Storage`; the caller of `create` promised that another process writes only to blocks whose offsets
// it was sent.
unsafe impl Storage for FileStorage {
    fn base(&self) -> NonNull<u8> {
        self.view.base()
    }

    fn size(&self) -> usize {
        self.view.size()
    }

    fn backing(&self) -> Backing {
        Backing::File
    }

    fn key(&self) -> Option<RegionKey> {
        Some(self.view.key())
    }
}

use std::io;

use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;

use super::page_size;
use crate::storage::StorageError;

pub(in crate::storage) const POPULATES: bool = true;

pub(in crate::storage) fn advise_huge(map: &MmapMut, at: usize, len: usize) -> bool {
    map.advise_range(Advice::HugePage, at, len).is_ok()
}

pub(in crate::storage) fn fault_in(map: &mut MmapMut, at: usize, len: usize) -> io::Result<()> {
    match map.advise_range(Advice::PopulateWrite, at, len) {
        // Kernels before 5.14 do not know the advice.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            map[at..at + len].iter_mut().step_by(page_size()).for_each(|byte| *byte = 0);
            Ok(())
        }
        done => done,
    }
}

pub(in crate::storage) fn populate(map: &MmapRaw, at: usize, len: usize) -> io::Result<()> {
    map.advise_range(Advice::PopulateWrite, at, len)
}

/// # Safety
/// No one accesses the range meanwhile, and it counts as uninitialised afterwards.
#[expect(unsafe_code, reason = "the advice changes bytes")]
pub(in crate::storage) unsafe fn discard(map: &MmapRaw, at: usize, len: usize) -> bool {
    // SAFETY: the mapping is private, so the advice replaces the bytes by zeros, which the caller allows.
    unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, at, len) }.is_ok()
}

pub(in crate::storage) fn reserve(len: usize) -> Result<MmapRaw, StorageError> {
    let os = |call| move |error: Errno| StorageError::os(len, call, error);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let fd = rustix::fs::memfd_create("mpj-pool-huge", flags).map_err(os("memfd_create"))?;
    // Allocates the pages from the reserve, so that no access fails later.
    rustix::io::retry_on_intr(|| rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64))
        .map_err(os("fallocate"))?;
    MmapOptions::new().len(len).populate().map_raw(&fd).map_err(|error| StorageError::os(len, "mmap", error))
}

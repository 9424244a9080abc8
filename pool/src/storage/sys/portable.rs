use std::io;

use memmap2::{MmapMut, MmapRaw};

use super::page_size;
use crate::storage::StorageError;

pub(in crate::storage) const POPULATES: bool = false;

pub(in crate::storage) fn advise_huge(_map: &MmapMut, _at: usize, _len: usize) -> bool {
    false
}

#[expect(clippy::unnecessary_wraps, reason = "fails on other systems")]
pub(in crate::storage) fn fault_in(map: &mut MmapMut, at: usize, len: usize) -> io::Result<()> {
    map[at..at + len].iter_mut().step_by(page_size()).for_each(|byte| *byte = 0);
    Ok(())
}

pub(in crate::storage) fn populate(_map: &MmapRaw, _at: usize, _len: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// # Safety
/// None: it does nothing. On other systems, the range must not be in use.
#[expect(unsafe_code, reason = "the signature of other systems")]
pub(in crate::storage) unsafe fn discard(_map: &MmapRaw, _at: usize, _len: usize) -> bool {
    false
}

pub(in crate::storage) fn reserve(len: usize) -> Result<MmapRaw, StorageError> {
    Err(StorageError::os(len, "reserve", io::Error::from(io::ErrorKind::Unsupported)))
}

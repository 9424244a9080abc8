//! The system functions that storages need:
//! * `OUT_OF_MEMORY`: the error number for exhausted memory;
//! * `page_size()`: the size of an ordinary page;
//! * `advise_huge(map, at, len)`: requests huge pages for a private mapping. Returns whether the system accepted;
//! * `fault_in(map, at, len)`: allocates memory for an unused range of zero bytes;
//! * `populate(map, at, len)`: as `fault_in`, for a range in use, which keeps its content; it can fail;
//! * `POPULATES`: whether `populate` can succeed;
//! * `discard(map, at, len)`: frees the pages of a range of a private mapping. Returns whether the system did;
//! * `reserve(len)`: maps huge pages of the system's reserve.
//!
//! `FileStorage` and `SharedStorage` make their system calls themselves.

#[cfg(all(target_os = "linux", not(mpj_portable)))]
mod linux;
#[cfg(all(target_os = "linux", not(mpj_portable)))]
pub(super) use linux::*;

#[cfg(not(all(target_os = "linux", not(mpj_portable))))]
mod portable;
#[cfg(not(all(target_os = "linux", not(mpj_portable))))]
pub(super) use portable::*;

#[cfg(unix)]
mod unix {
    pub(in crate::storage) const OUT_OF_MEMORY: i32 = rustix::io::Errno::NOMEM.raw_os_error();

    pub(in crate::storage) fn page_size() -> usize {
        rustix::param::page_size()
    }
}
#[cfg(unix)]
pub(super) use unix::*;

#[cfg(not(unix))]
mod other {
    /// ERROR_NOT_ENOUGH_MEMORY of Windows.
    pub(in crate::storage) const OUT_OF_MEMORY: i32 = 8;

    /// Windows has this page size on all processors that Rust supports.
    pub(in crate::storage) fn page_size() -> usize {
        4096
    }
}
#[cfg(not(unix))]
pub(super) use other::*;

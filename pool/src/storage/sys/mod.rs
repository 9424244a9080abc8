//! The operating system functions that storages need.
//!
//! Each platform defines, in a file of its own:
//! * `OUT_OF_MEMORY`: the number of the out-of-memory error;
//! * `page_size()`: the bytes of a page of ordinary memory;
//! * `advise_huge(map, at, len)`: requests huge pages for a range of a private mapping, and returns whether the system
//!   took the advice;
//! * `fault_in(map, at, len)`: allocates memory for a range that is not used yet and whose bytes are all zero;
//! * `populate(map, at, len)`: the same for a range that others may be writing to, so it must change no byte; and
//!   `POPULATES`: whether it is supported;
//! * `reserve(len)`: maps whole huge pages of the system's reserve, or returns why it cannot.
//!
//! [`FileStorage`](super::FileStorage) and [`SharedStorage`](super::SharedStorage) exist only on systems with the calls
//! that they need, and make these calls themselves.

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

    /// Windows has pages of this size on every processor that Rust knows it on.
    pub(in crate::storage) fn page_size() -> usize {
        4096
    }
}
#[cfg(not(unix))]
pub(super) use other::*;

//! What storages ask of the operating system.
//!
//! A platform gives, in a file of its own:
//! * `OUT_OF_MEMORY`: the number of the error that says so;
//! * `page_size()`: the bytes of a page of ordinary memory;
//! * `advise_huge(map, at, len)`: asks for huge pages behind a range of a private mapping, and says whether the system
//!   took the advice;
//! * `fault_in(map, at, len)`: puts memory behind a range that nobody else uses yet, whose bytes are all zero;
//! * `populate(map, at, len)`: the same for a range that others may be writing to, so it must change no byte; and
//!   `POPULATES`: whether it can;
//! * `reserve(len)`: maps whole huge pages of the system's reserve, or says why not.
//!
//! [`FileStorage`](super::FileStorage) and [`SharedStorage`](super::SharedStorage) are for the systems that have what they are made of, and call it
//! where they need it.

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

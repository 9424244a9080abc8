//! Access to the memory of another process.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

use super::Errno;

/// One piece of a copy: `len` bytes from address `from` of the other process to `to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteIov {
    pub(crate) to: *mut u8,
    pub(crate) from: u64,
    pub(crate) len: usize,
}

pub(crate) fn own_pid() -> u32 {
    std::process::id()
}

/// A process. With a pidfd, another process that gets the same number later is not mistaken for it.
#[derive(Debug)]
pub(crate) struct Process {
    number: Pid,
    /// `None` if the system does not support pidfds.
    fd: Option<OwnedFd>,
}

impl Process {
    /// Returns `None` if no process has this number.
    pub(crate) fn open(number: u32) -> Option<Self> {
        let number = Pid::from_raw(i32::try_from(number).ok()?)?;
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => Some(Process { number, fd: Some(fd) }),
            Err(Errno::SRCH) => None,
            Err(_) => Some(Process { number, fd: None }),
        }
    }

    /// Returns whether at least one thread of the process runs; true if that cannot be determined. Without a pidfd, a
    /// process that its parent has not waited for counts as running.
    pub(crate) fn is_running(&self) -> bool {
        let Some(fd) = &self.fd else { return test_kill_process(self.number) != Err(Errno::SRCH) };
        // The pidfd is readable when the last thread has ended, even before the parent has waited for the process.
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)) != Ok(1)
    }
}

/// Copies one or two pieces from the memory of a process, in order. Returns the number of bytes copied, which is less
/// than requested if part of the memory is not mapped.
///
/// # Errors
/// The first byte cannot be copied, or, on processors other than x86, the first byte of the second piece.
///
/// # Safety
/// The destination of each piece is valid for writes, and nothing else accesses it.
pub(crate) unsafe fn read_process<const N: usize>(
    process: u32,
    pieces: &[RemoteIov; N],
) -> Result<usize, Errno> {
    if N < 2 || cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
        // SAFETY: the caller's promise.
        return unsafe { read_pieces(process, pieces) };
    }
    // These processors may read a later piece first. A separate call for each piece, with a fence in between, keeps
    // the order.
    // SAFETY: the caller's promise.
    let first = unsafe { read_pieces(process, &pieces[..1]) }?;
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    if first < pieces[0].len {
        return Ok(first);
    }
    // SAFETY: the caller's promise.
    unsafe { read_pieces(process, &pieces[1..]) }.map(|second| first + second)
}

/// Copies up to two pieces as [`read_process`] does, in the order that the processor chooses.
///
/// # Safety
/// As [`read_process`].
unsafe fn read_pieces(process: u32, pieces: &[RemoteIov]) -> Result<usize, Errno> {
    let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let (mut to, mut from) = ([none; 2], [none; 2]);
    for ((to, from), piece) in to.iter_mut().zip(&mut from).zip(pieces) {
        let address = usize::try_from(piece.from).map_err(|_| Errno::FAULT)?;
        *to = libc::iovec { iov_base: piece.to.cast(), iov_len: piece.len };
        *from = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: piece.len };
    }
    let count = pieces.len().min(2) as libc::c_ulong;
    let process = libc::pid_t::try_from(process).map_err(|_| Errno::SRCH)?;
    // SAFETY: the kernel writes to `to`, as the caller permits, and otherwise accesses only the two lists in this
    // process.
    let copied = unsafe { libc::process_vm_readv(process, to.as_ptr(), count, from.as_ptr(), count, 0) };
    copied_or_errno(copied)
}

/// Copies `len` bytes from address `from` of this process to address `to` of another one. Returns the number of bytes
/// copied, which is less than requested if part of the memory of either process is not mapped.
///
/// # Errors
/// The first byte cannot be copied.
///
/// # Safety
/// The other process expects the bytes at `to`.
pub(crate) unsafe fn write_process(process: u32, from: u64, to: u64, len: usize) -> Result<usize, Errno> {
    let piece = |address| {
        let address = usize::try_from(address).map_err(|_| Errno::FAULT)?;
        Ok(libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: len })
    };
    let (from, to) = (piece(from)?, piece(to)?);
    let process = libc::pid_t::try_from(process).map_err(|_| Errno::SRCH)?;
    // SAFETY: the kernel does not write to this process, and writes to the other one only where it expects the bytes,
    // as the caller promises. A source that is not mapped is an error.
    let copied = unsafe { libc::process_vm_writev(process, &raw const from, 1, &raw const to, 1, 0) };
    copied_or_errno(copied)
}

fn copied_or_errno(copied: isize) -> Result<usize, Errno> {
    usize::try_from(copied).map_err(|_| {
        let code = std::io::Error::last_os_error().raw_os_error();
        Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn unreaped_process_is_not_running() {
        assert!(Process::open(own_pid()).unwrap().is_running());
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert!(process.is_running());
        drop(child.stdin.take());
        let start = Instant::now();
        while process.is_running() {
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!process.is_running() && Process::open(child.id()).is_none());
    }
}

//! No system at all: what std has suffices for ranks that are threads of one process; everything else is refused.

mod errno;
mod event;
mod memory;
mod poll;
pub(crate) mod socket;
mod wakeup;

pub(crate) use errno::Errno;
pub(crate) use event::Event;
pub(crate) use memory::{SegmentView, SharedStorage};
pub(crate) use poll::{Interest, Poll, Readiness};
pub(crate) use wakeup::Wakeup;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Nothing tells where a thread may run.
pub(crate) fn allowed() -> Vec<usize> {
    Vec::new()
}

/// Nothing keeps a thread anywhere.
pub(crate) fn run_on(_: impl Iterator<Item = usize>) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

pub(crate) fn place(cpu: usize) -> [usize; 3] {
    [0, 0, cpu]
}

/// Several processes can map one memory.
#[cfg(feature = "conformance")]
pub(crate) const HAS_SHARED_MEMORY: bool = false;

/// No number has the meaning everywhere.
pub(crate) const NOT_SUPPORTED: i32 = 0;

/// There are no fences from outside: both sides of a doorbell make their own.
pub(crate) mod membarrier {
    pub(crate) fn register() -> bool {
        false
    }

    pub(crate) fn run() -> bool {
        false
    }
}

/// A piece of another process's memory to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemotePiece {
    pub(crate) to: *mut u8,
    pub(crate) from: u64,
    pub(crate) len: usize,
}

pub(crate) fn own_process() -> u32 {
    0
}

#[derive(Debug)]
pub(crate) struct Process;

impl Process {
    pub(crate) fn find(_number: u32) -> Option<Self> {
        None
    }

    pub(crate) fn runs(&self) -> bool {
        false
    }
}

/// # Safety
/// None: nothing is copied.
pub(crate) unsafe fn read_process<const N: usize>(
    _process: u32,
    pieces: &[RemotePiece; N],
) -> Result<usize, Errno> {
    let _ = pieces.map(|RemotePiece { to, from, len }| (to, from, len));
    Err(Errno::UNSUPPORTED)
}

/// # Safety
/// None: nothing is copied.
pub(crate) unsafe fn write_process(_process: u32, _from: u64, _to: u64, _len: usize) -> Result<usize, Errno> {
    Err(Errno::UNSUPPORTED)
}

/// The clock of this process: it has all ranks.
pub(crate) fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

pub(crate) fn thread() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn lockable() -> Option<usize> {
    None
}

pub(crate) fn raise_descriptors() {}

pub(crate) fn random(_bytes: &mut [u8]) -> bool {
    false
}

/// # Safety
/// None: there are no descriptors.
pub(crate) unsafe fn descriptor<'a>(_number: i32) -> Option<super::BorrowedFd<'a>> {
    None
}

pub(crate) fn unblock(_descriptor: super::BorrowedFd<'_>) -> Result<(), Errno> {
    Err(Errno::UNSUPPORTED)
}

#[cfg(all(debug_assertions, feature = "conformance"))]
pub(crate) fn kill_me() {
    std::process::abort()
}

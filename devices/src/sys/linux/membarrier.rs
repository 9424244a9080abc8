//! A full fence in every thread of every registered process.

use libc::{c_int, c_long};

const QUERY: c_int = 0;
const GLOBAL_EXPEDITED: c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: c_int = 1 << 2;

fn membarrier(command: c_int) -> c_long {
    // SAFETY: membarrier takes integers only and accesses no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Registers this process: fences then include its threads. Returns whether this process can also [`run`] fences.
pub(crate) fn register() -> bool {
    let both = c_long::from(GLOBAL_EXPEDITED | REGISTER_GLOBAL_EXPEDITED);
    let offered = membarrier(QUERY);
    offered > 0 && offered & both == both && membarrier(REGISTER_GLOBAL_EXPEDITED) == 0
}

pub(crate) fn run() -> bool {
    membarrier(GLOBAL_EXPEDITED) == 0
}

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

/// Makes the kernel refuse `membarrier` to this thread from now on. Returns false if it does not support that.
#[cfg(test)]
pub(crate) fn refuse_to_this_thread() -> bool {
    let step = |code: u32, if_not, k| libc::sock_filter { code: code as u16, jt: 0, jf: if_not, k };
    let mut steps = [
        // The first word of the data is the number of the system call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_membarrier as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: it takes integers only; a thread may always give up new privileges.
    let unprivileged = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the kernel copies the program, and `len` is the number of its steps.
    let filtered =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    (unprivileged, filtered) == (0, 0)
}

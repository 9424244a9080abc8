//! The signals that `mpjrun` passes on, as a descriptor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Signal;

/// What is passed on to the ranks, and SIGQUIT, which asks what they wait for. What is ignored when `mpjrun` starts stays so.
const TAKEN: [Signal; 8] = [
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
    Signal::CONT,
    Signal::TSTP,
];

/// The signals, blocked and readable.
pub(crate) struct Signals {
    fd: OwnedFd,
    before: Mask,
}

/// A set of blocked signals.
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::sigset_t);

impl Mask {
    fn empty() -> Mask {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the pointer is to a `sigset_t`.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: `sigemptyset` has written all of it; it cannot fail for a valid pointer.
        Mask(unsafe { set.assume_init() })
    }

    fn add(&mut self, signal: Signal) {
        // SAFETY: the pointer is to an initialised set.
        unsafe { libc::sigaddset(&raw mut self.0, signal.as_raw()) };
    }

    /// Makes this the set of blocked signals of the calling thread, and returns the one before. Async-signal-safe.
    pub(crate) fn set(&self) -> io::Result<Mask> {
        let mut before = Mask::empty();
        // SAFETY: both pointers are to initialised sets.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, &raw mut before.0) } {
            0 => Ok(before),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Signals {
    /// Blocks the signals; called before any thread is started, so that all threads have them blocked.
    pub(crate) fn take() -> io::Result<Signals> {
        let ignored = ignored();
        let mut mask = Mask::empty();
        // Ignored in any Rust program; here it says that nobody reads the output any more.
        mask.add(Signal::PIPE);
        for signal in TAKEN {
            // What whoever started us wants ignored (nohup) stays so, for the ranks too.
            if ignored >> (signal.as_raw() - 1) & 1 == 0 {
                mask.add(signal);
            }
        }
        let mut blocked = mask;
        // Writing more than a file may have is an error, and not our end.
        blocked.add(Signal::XFSZ);
        let before = blocked.set()?;
        // SAFETY: the pointer is to an initialised set; −1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const mask.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and nobody else has it.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) }, before })
    }

    /// Returns the signals that were blocked before.
    pub(crate) fn before(&self) -> Mask {
        self.before
    }

    /// From here on a signal is our own end.
    pub(crate) fn release(&self) -> io::Result<()> {
        let mut blocked = self.before;
        blocked.add(Signal::XFSZ);
        blocked.set().map(|_| ())
    }

    /// Takes the next signal that has come.
    pub(crate) fn next(&self) -> Option<Signal> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.fd, &mut info).ok()?;
        // The number is the first field.
        let (number, _) = info[..read].split_first_chunk::<4>()?;
        Signal::from_named_raw(i32::from_ne_bytes(*number))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the signals this process ignores, bit n − 1 for signal n.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

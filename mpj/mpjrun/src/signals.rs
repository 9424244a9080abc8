//! Signals to `mpjrun`, which it reads from a descriptor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Signal;

/// The signals that `mpjrun` handles, in addition to SIGPIPE.
const HANDLED: [Signal; 8] = [
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
    Signal::CONT,
    Signal::TSTP,
];

/// A descriptor from which blocked signals are read.
pub(crate) struct Signals {
    fd: OwnedFd,
    original_mask: SignalMask,
}

#[derive(Clone, Copy)]
pub(crate) struct SignalMask(libc::sigset_t);

impl SignalMask {
    fn empty() -> SignalMask {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the pointer is to a `sigset_t`.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: `sigemptyset` has written all of it; it cannot fail for a valid pointer.
        SignalMask(unsafe { set.assume_init() })
    }

    fn add(&mut self, signal: Signal) {
        // SAFETY: the pointer is to an initialised set.
        unsafe { libc::sigaddset(&raw mut self.0, signal.as_raw()) };
    }

    /// Blocks exactly these signals in the calling thread, and returns the previous set. This is async-signal-safe.
    pub(crate) fn set(&self) -> io::Result<SignalMask> {
        let mut previous = SignalMask::empty();
        // SAFETY: both pointers are to initialised sets.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, &raw mut previous.0) } {
            0 => Ok(previous),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Signals {
    /// Blocks the signals. Must be called before another thread is started, because threads inherit the set.
    pub(crate) fn block() -> io::Result<Signals> {
        let ignored = ignored();
        let mut mask = SignalMask::empty();
        // `output` sends SIGPIPE to this process when the reader of standard output has exited.
        mask.add(Signal::PIPE);
        for signal in HANDLED {
            // Signals that were ignored at the start (nohup) stay ignored, even in the ranks.
            if ignored >> (signal.as_raw() - 1) & 1 == 0 {
                mask.add(signal);
            }
        }
        let mut blocked = mask;
        // A write beyond the file size limit must fail, and not kill this process.
        blocked.add(Signal::XFSZ);
        let original_mask = blocked.set()?;
        // SAFETY: the pointer is to an initialised set; −1 requests a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const mask.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created, and nothing else owns it.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) }, original_mask })
    }

    pub(crate) fn original_mask(&self) -> SignalMask {
        self.original_mask
    }

    /// Restores the original mask, except that SIGXFSZ stays blocked. A signal can then end this process.
    pub(crate) fn unblock(&self) -> io::Result<()> {
        let mut blocked = self.original_mask;
        blocked.add(Signal::XFSZ);
        blocked.set().map(|_| ())
    }

    pub(crate) fn next(&self) -> Option<Signal> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.fd, &mut info).ok()?;
        // The signal number is the first field.
        let (number, _) = info[..read].split_first_chunk::<4>()?;
        Signal::from_named_raw(i32::from_ne_bytes(*number))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the signals that this process ignores, bit n − 1 for signal n.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

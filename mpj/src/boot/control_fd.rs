//! The control socket that a process inherits from its launcher.

use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::FdFlags;

use super::wire::CONTROL_VAR;

/// The error of a second call. By then, the socket might be closed, and its number might belong to another file.
const TWICE: &str = "mpj was already initialized in this process";

/// Returns the inherited socket, or `None` if [`CONTROL_VAR`] is not set. Only one call can return the socket.
///
/// # Errors
/// An earlier call returned the socket, the variable does not name an open socket of this process, or `fcntl` fails.
pub(super) fn socket() -> Result<Option<UnixStream>, String> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let Some(text) = std::env::var_os(CONTROL_VAR) else { return Ok(None) };
    if TAKEN.load(Ordering::Relaxed) {
        return Err(TWICE.into());
    }
    let fd = text.to_str().and_then(descriptor).ok_or_else(|| {
        format!(
            "{CONTROL_VAR}={} is not a control socket of this process: it was started by a rank, or by a program that \
             closes descriptors; unset the variable to run it as a job of its own",
            text.display()
        )
    })?;
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(TWICE.into());
    }
    // SAFETY: the descriptor is open, since `descriptor` has just found it, and this process owns it: the launcher
    // passed it for this call, `TAKEN` lets only one call reach this line, and the inode shows that the number still
    // belongs to that socket.
    let socket = unsafe { UnixStream::from_raw_fd(fd) };
    // Programs that this process starts must not inherit the socket: they are not ranks.
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(|e| format!("the control socket: {e}"))?;
    Ok(Some(socket))
}

/// Returns the socket that a process manager has passed as `PMI_FD`. Only one call can return it.
///
/// # Errors
/// An earlier call returned the socket, the text does not name an open socket of this process, or `fcntl` fails.
pub(super) fn pmi_socket(text: &str) -> Result<UnixStream, String> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.load(Ordering::Relaxed) {
        return Err(TWICE.into());
    }
    let fd = text.parse::<RawFd>().ok().filter(|fd| {
        let open = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        open.is_ok_and(|open| open.to_string_lossy().starts_with("socket:")) && is_inherited(*fd)
    });
    let fd = fd.ok_or_else(|| {
        format!(
            "PMI_FD={text} is not a socket of this process: the variable is left over from another job; unset it, or \
             set MPJ_LAUNCHER=none to run this process as a job of its own"
        )
    })?;
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(TWICE.into());
    }
    // SAFETY: the descriptor is an open socket that was inherited, as checked above, and this process owns it: the
    // process manager passed it for this call, and `TAKEN` lets only one call reach this line.
    let socket = unsafe { UnixStream::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(|e| format!("PMI_FD: {e}"))?;
    Ok(socket)
}

/// Parses `fd:inode`. Returns the descriptor if it is open and is the socket with that inode.
fn descriptor(text: &str) -> Option<RawFd> {
    let (fd, inode) = text.split_once(':')?;
    let fd = fd.parse::<RawFd>().ok()?;
    let open = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    (open.to_str()? == format!("socket:[{inode}]") && is_inherited(fd)).then_some(fd)
}

/// Returns whether this process can have inherited the descriptor. A descriptor that the standard library has opened is
/// close-on-exec, and has another owner.
fn is_inherited(fd: RawFd) -> bool {
    const CLOSES_ON_EXEC: u32 = 0o2_000_000;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & CLOSES_ON_EXEC == 0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, IntoRawFd};

    use super::*;

    #[test]
    fn only_the_inherited_control_socket_is_accepted() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        let fd = socket.as_raw_fd();
        assert_eq!(descriptor(&format!("{fd}:{inode}")), None, "opened by this process");
        rustix::io::fcntl_setfd(&socket, FdFlags::empty()).unwrap();
        assert_eq!(descriptor(&format!("{fd}:{inode}")), Some(fd));
        for stale in
            [format!("{fd}:{}", inode + 1), format!("{fd}"), "x:1".into(), String::new(), "0:0".into()]
        {
            assert_eq!(descriptor(&stale), None, "{stale}");
        }
    }

    #[test]
    fn second_call_for_the_pmi_socket_fails() {
        let (socket, _other) = UnixStream::pair().unwrap();
        rustix::io::fcntl_setfd(&socket, FdFlags::empty()).unwrap();
        let number = socket.into_raw_fd().to_string();
        drop(pmi_socket(&number).unwrap());
        assert_eq!(pmi_socket(&number).unwrap_err(), TWICE);
    }
}

//! What processes wake each other by without handing descriptors over: datagram sockets with names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// A socket that others make readable who know its name. The name is a random number, so that nobody can take it
/// first; it is abstract, so that it is gone with the socket.
#[derive(Debug)]
pub(crate) struct Wakeup {
    socket: OwnedFd,
    name: u64,
}

/// Datagrams that are read at once: whoever sends more only makes the next wait short.
const CLEARED: usize = 64;

fn address(name: u64) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("mpj-{name:016x}").as_bytes())
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}

impl Wakeup {
    /// Makes one.
    ///
    /// # Errors
    /// No descriptor left, or no random number.
    pub(crate) fn new() -> Result<Self, Errno> {
        let mut name = [0; 8];
        if !super::random(&mut name) {
            return Err(Errno::NOSYS);
        }
        let name = u64::from_ne_bytes(name).max(1);
        let socket = socket()?;
        rustix::net::bind(&socket, &address(name)?)?;
        Ok(Wakeup { socket, name })
    }

    /// Returns its name, which is not 0.
    pub(crate) fn name(&self) -> u64 {
        self.name
    }

    /// Makes the one of this name readable, wherever it is.
    pub(crate) fn send(&self, name: u64) {
        let Ok(address) = address(name) else { return };
        let by = |socket: &OwnedFd| rustix::net::sendto(socket, &[0], SendFlags::NOSIGNAL, &address);
        // One that is gone belongs to nobody who waits.
        if by(&self.socket) == Err(Errno::AGAIN)
            && let Ok(another) = socket()
        {
            // It is full, and so readable already; or this socket is, of what it has sent to hundreds who have not read it.
            let _ = by(&another);
        }
    }

    /// Makes it unreadable.
    pub(crate) fn clear(&self) {
        let received = |_: &usize| rustix::net::recv(&self.socket, &mut [0u8; 1], RecvFlags::empty()).is_ok();
        let _ = (0..CLEARED).take_while(received).count();
    }

    /// Returns what is readable then.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wakes_hundreds_that_do_not_look() {
        // A socket has sent its fill with fewer.
        let sleepers: Vec<Wakeup> = (0..400).map(|_| Wakeup::new().unwrap()).collect();
        let one = &sleepers[0];
        sleepers.iter().for_each(|sleeper| one.send(sleeper.name()));
        let is_awake =
            |sleeper: &Wakeup| rustix::net::recv(&sleeper.socket, &mut [0u8; 1], RecvFlags::empty()).is_ok();
        assert!(sleepers.iter().all(is_awake));
    }
}

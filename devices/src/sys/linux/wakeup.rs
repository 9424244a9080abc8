//! What processes wake each other by without handing descriptors over: datagram sockets with names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// A socket that others make readable who know its name. The name is abstract, so that it is gone with the socket. Half of it is
/// a random number, so that nobody can take it first; the other says in which network namespace it is, as it cannot be seen
/// from others.
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

/// Returns the number of the network namespace that this thread is in, if it can be found out.
fn network() -> Option<u32> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").ok()?;
    u32::try_from(namespace.ino()).ok().filter(|number| *number != 0)
}

impl Wakeup {
    /// Makes one.
    ///
    /// # Errors
    /// No descriptor left, or no random number.
    pub(crate) fn new() -> Result<Self, Errno> {
        let (socket, network) = (socket()?, u64::from(network().unwrap_or(0)));
        loop {
            let mut random = [0; 4];
            if !super::random(&mut random) {
                return Err(Errno::NOSYS);
            }
            let name = network << 32 | u64::from(u32::from_ne_bytes(random).max(1));
            match rustix::net::bind(&socket, &address(name)?) {
                Ok(()) => return Ok(Wakeup { socket, name }),
                // It is somebody else's.
                Err(Errno::ADDRINUSE) => (),
                Err(error) => return Err(error),
            }
        }
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

    /// Whether there is one of this name; also if that cannot be found out.
    pub(crate) fn is_there(name: u64) -> bool {
        if name != 0 && network() != Some((name >> 32) as u32) {
            return true;
        }
        let connect = || rustix::net::connect(socket()?, &address(name)?);
        connect() != Err(Errno::CONNREFUSED)
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
    fn one_is_there_as_long_as_it_lives() {
        let one = Wakeup::new().unwrap();
        let name = one.name();
        assert!(Wakeup::is_there(name) && !Wakeup::is_there(0));
        drop(one);
        assert!(!Wakeup::is_there(name));
    }

    /// Its socket is there, and cannot be reached.
    #[test]
    fn one_in_another_network_namespace_may_be_there() {
        let elsewhere = || {
            // SAFETY: it concerns this thread alone, which ends soon.
            let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            (moved == 0).then(|| Wakeup::new().unwrap())
        };
        // Not everybody may make one.
        let Some(one) = std::thread::spawn(elsewhere).join().unwrap() else { return };
        assert!(Wakeup::is_there(one.name()));
    }

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

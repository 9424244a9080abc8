//! Datagram sockets by which processes wake each other. A process needs only the name of a socket, no descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// A socket that any process can make readable if it knows the name. The name is abstract, so that it vanishes with the
/// socket. Half of it is random, so that no process can bind it in advance. The other half identifies the network
/// namespace, because other namespaces cannot reach the socket.
#[derive(Debug)]
pub(crate) struct Wakeup {
    socket: OwnedFd,
    name: u64,
}

/// The maximum number of datagrams that `clear` reads. If more were sent, the next wait ends early.
const CLEAR_MAX: usize = 64;

fn address(name: u64) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("mpj-{name:016x}").as_bytes())
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}

/// Returns the number of this thread's network namespace, if it can be determined.
fn network() -> Option<u32> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").ok()?;
    u32::try_from(namespace.ino()).ok().filter(|number| *number != 0)
}

impl Wakeup {
    /// # Errors
    /// The socket cannot be created or bound, or no random number is available.
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
                // Another socket has this name: draw another one.
                Err(Errno::ADDRINUSE) => (),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the name, which is not 0.
    pub(crate) fn name(&self) -> u64 {
        self.name
    }

    /// Makes the socket of a name readable, in any process of this network namespace.
    pub(crate) fn send(&self, name: u64) {
        let Ok(address) = address(name) else { return };
        let by = |socket: &OwnedFd| rustix::net::sendto(socket, &[0], SendFlags::NOSIGNAL, &address);
        // Other errors are ignored: if the target is closed, no process waits on it.
        if by(&self.socket) == Err(Errno::AGAIN)
            && let Ok(another) = socket()
        {
            // Either the target is full, and so already readable, or the datagrams that hundreds of sleepers have not
            // read fill the send buffer of this socket. In the second case, a new socket can still send.
            let _ = by(&another);
        }
    }

    /// Returns whether a socket has this name; true if that cannot be determined.
    pub(crate) fn exists(name: u64) -> bool {
        if name != 0 && network() != Some((name >> 32) as u32) {
            return true;
        }
        let connect = || rustix::net::connect(socket()?, &address(name)?);
        connect() != Err(Errno::CONNREFUSED)
    }

    pub(crate) fn clear(&self) {
        let received = |_: &usize| rustix::net::recv(&self.socket, &mut [0u8; 1], RecvFlags::empty()).is_ok();
        let _ = (0..CLEAR_MAX).take_while(received).count();
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_exists_until_it_is_dropped() {
        let one = Wakeup::new().unwrap();
        let name = one.name();
        assert!(Wakeup::exists(name) && !Wakeup::exists(0));
        drop(one);
        assert!(!Wakeup::exists(name));
    }

    #[test]
    fn socket_of_another_network_namespace_is_assumed_to_exist() {
        let elsewhere = || {
            // SAFETY: the call affects only this thread, which ends soon.
            let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            (moved == 0).then(|| Wakeup::new().unwrap())
        };
        // Creating a namespace needs a privilege.
        let Some(one) = std::thread::spawn(elsewhere).join().unwrap() else { return };
        assert!(Wakeup::exists(one.name()));
    }

    #[test]
    fn one_socket_wakes_hundreds_that_do_not_read() {
        // Fewer than 400 datagrams fill the send buffer of one socket.
        let sleepers: Vec<Wakeup> = (0..400).map(|_| Wakeup::new().unwrap()).collect();
        let one = &sleepers[0];
        sleepers.iter().for_each(|sleeper| one.send(sleeper.name()));
        let is_awake =
            |sleeper: &Wakeup| rustix::net::recv(&sleeper.socket, &mut [0u8; 1], RecvFlags::empty()).is_ok();
        assert!(sleepers.iter().all(is_awake));
    }
}

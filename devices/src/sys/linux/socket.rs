use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType, ipproto,
    sockopt,
};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn family(at: &SocketAddr) -> AddressFamily {
    if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn stream(at: &SocketAddr) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family(at), SocketType::STREAM, FLAGS, Some(ipproto::TCP))
}

/// Listens at an address; port 0 is any free port. Up to `backlog` connections can wait to be accepted.
pub(crate) fn listen(at: SocketAddr, backlog: i32) -> Result<(OwnedFd, SocketAddr), Errno> {
    let socket = stream(&at)?;
    rustix::net::bind(&socket, &at)?;
    rustix::net::listen(&socket, backlog)?;
    let at = rustix::net::getsockname(&socket)?.try_into()?;
    Ok((socket, at))
}

/// Listens as [`listen`] does at a port other than 0, even if connections of an earlier process there are in the state
/// TIME_WAIT.
pub(crate) fn listen_again(at: SocketAddr, backlog: i32) -> Result<(OwnedFd, SocketAddr), Errno> {
    let socket = stream(&at)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &at)?;
    rustix::net::listen(&socket, backlog)?;
    Ok((socket, at))
}

/// Checks that this host can send packets to itself at `ip`, by sending a datagram that nothing reads.
pub(crate) fn reach(ip: IpAddr) -> Result<(), Errno> {
    let at = SocketAddr::new(ip, 0);
    let socket = rustix::net::socket_with(family(&at), SocketType::DGRAM, FLAGS, None)?;
    rustix::net::bind(&socket, &at)?;
    let own: SocketAddr = rustix::net::getsockname(&socket)?.try_into()?;
    rustix::net::connect(&socket, &own)?;
    match rustix::net::send(&socket, &[0], SendFlags::NOSIGNAL) {
        // These errors do not concern the address: a firewall might forbid only datagrams, or a buffer might be full.
        Ok(_) | Err(Errno::PERM | Errno::ACCESS | Errno::AGAIN | Errno::NOBUFS) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(crate) fn connect(at: &SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = stream(at)?;
    match rustix::net::connect(&socket, at) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Returns whether a connection that was started is established.
///
/// # Errors
/// The connection has failed.
pub(crate) fn is_connected(socket: &OwnedFd) -> Result<bool, Errno> {
    sockopt::socket_error(socket).and_then(|error| error)?;
    Ok(rustix::net::getpeername(socket).is_ok())
}

pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, FLAGS)
}

/// Opens a descriptor to keep in reserve, to be closed when the process has no others left.
pub(crate) fn spare() -> Option<OwnedFd> {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()
}

pub(crate) fn no_delay(socket: &OwnedFd) {
    // Only speed depends on it.
    let _ = sockopt::set_tcp_nodelay(socket, true);
}

pub(crate) fn acknowledge(socket: &OwnedFd) {
    // Only speed depends on it.
    let _ = sockopt::set_tcp_quickack(socket, true);
}

#[inline]
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)
}

#[inline]
pub(crate) fn send_parts(socket: &OwnedFd, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}

#[inline]
pub(crate) fn recv(socket: &OwnedFd, room: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(socket, room, RecvFlags::empty()).map(|(_, count)| count)
}

#[inline]
pub(crate) fn recv_uninit(socket: &OwnedFd, room: &mut [MaybeUninit<u8>]) -> Result<usize, Errno> {
    rustix::net::recv(socket, room, RecvFlags::empty()).map(|(_, count)| count)
}

pub(crate) fn shut(socket: &OwnedFd) {
    // The socket might be shut down already.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

pub(crate) fn shut_writing(socket: &OwnedFd) {
    // The socket might be shut down already.
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
}

/// Returns how many bytes the peer's host has not acknowledged; 0 if the system does not report it.
pub(crate) fn unacknowledged(socket: &impl AsRawFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and TIOCOUTQ writes one int to the address it is given.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if rc == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Returns the user and the process at the other end of a Unix socket. The process id is 0 if that process is in
/// another process id namespace.
// Not rustix's `socket_peercred`, whose process id is never 0.
pub fn peer_of_unix(socket: &impl AsRawFd) -> io::Result<(u32, i32)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the call writes at most `len` bytes, which `peer` has.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if rc == 0 { Ok((peer.uid, peer.pid)) } else { Err(io::Error::last_os_error()) }
}

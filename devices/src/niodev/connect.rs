//! Sockets: listening, connecting, accepting, and what their errors mean to a user.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use crate::device::Address;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// How long a peer that refuses is tried: it may only be about to say that it has left.
const REFUSED: Duration = Duration::from_millis(300);

/// How long a peer is tried whose connections break before they stand.
const BROKEN: Duration = Duration::from_millis(1500);

/// Listens on a free port of `ip`.
pub(super) fn listen(ip: IpAddr) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let at = SocketAddr::new(ip, 0);
    let socket = socket(&at)?;
    rustix::net::bind(&socket, &at)?;
    rustix::net::listen(&socket, BACKLOG)?;
    let at = rustix::net::getsockname(&socket)?.try_into()?;
    Ok((socket, at))
}

/// Returns where to listen when nothing is said.
pub(super) fn loopback() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

/// Reads a peer's address.
pub(super) fn parse(address: &Address) -> Option<SocketAddr> {
    str::from_utf8(&address.0).ok()?.parse().ok()
}

fn socket(at: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

/// Starts to connect.
pub(super) fn start(at: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = socket(at)?;
    match rustix::net::connect(&socket, at) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Accepts one connection, if there is one.
pub(super) fn accept(listener: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// Returns a descriptor to give up when there are no others.
pub(super) fn spare() -> Option<OwnedFd> {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()
}

/// Sets what a connection of ours needs; the sizes of its buffers are best left to the kernel, which adapts them.
pub(super) fn tune(socket: impl AsFd) {
    // Only speed depends on it.
    let _ = rustix::net::sockopt::set_tcp_nodelay(socket, true);
}

/// Whether an error says that this process, not the peer, lacks something.
pub(super) fn is_ours(error: Errno) -> bool {
    use Errno as E;
    matches!(
        error,
        E::MFILE | E::NFILE | E::NOMEM | E::NOBUFS | E::ADDRNOTAVAIL | E::AGAIN | E::ACCESS | E::PERM
    )
}

/// Says what an error means and what to do.
pub(super) fn explain(doing: &str, error: Errno) -> String {
    let advice = match error {
        Errno::MFILE => "; every peer takes a file descriptor: raise `ulimit -n`",
        Errno::NFILE => "; the host has no file descriptors left: raise fs.file-max",
        Errno::ADDRNOTAVAIL | Errno::AGAIN => {
            "; the host has no free ports: widen net.ipv4.ip_local_port_range"
        }
        Errno::CONNREFUSED => "; its process has ended, or a firewall is between",
        Errno::ADDRINUSE => "; the host has no free ports",
        _ => "",
    };
    format!("{doing}: {}{advice}", io::Error::from(error))
}

/// The way to one peer, tried until it stands or patience ends.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) peer: u32,
    pub(super) at: SocketAddr,
    failing: Option<Instant>,
    tries: u32,
}

impl Attempt {
    pub(super) fn new(peer: u32, at: SocketAddr) -> Self {
        Attempt { peer, at, failing: None, tries: 0 }
    }

    /// Takes note of a failure; returns when to try again, or `None` if enough is enough.
    pub(super) fn failed(&mut self, now: Instant, refused: bool) -> Option<Instant> {
        let first = *self.failing.get_or_insert(now);
        let patience = if refused { REFUSED } else { BROKEN };
        self.tries += 1;
        let pause = Duration::from_millis(5 << self.tries.min(6));
        (now - first < patience).then_some(now + pause)
    }

    /// Returns when to try again after a peer said that another connection of the pair is about to stand.
    pub(super) fn outdone(&mut self, now: Instant) -> Instant {
        self.failing = None;
        now + Duration::from_millis(200)
    }
}

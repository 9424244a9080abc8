//! The address at which a rank listens, the card that contains it, and explanations of socket errors for users.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{NIO_LISTEN_ADDRESS, NIO_MAX_SEND_SIZE};
use crate::byte_order;
use crate::config::PREFIX;
use crate::device::Address;
use crate::sys::{Errno, OwnedFd, socket};

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;

pub(super) fn listen(ip: IpAddr) -> Result<(OwnedFd, SocketAddr), Errno> {
    socket::listen(ip, BACKLOG)
}

/// Returns the IP address to listen at: the address `named` by the user, or the loopback address.
pub(super) fn listen_ip(named: Option<&str>) -> Result<IpAddr, String> {
    let Some(named) = named else {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let advice = "bring it up (`ip link set lo up`), or choose another device";
        let refuse = |error| format!("no loopback network: {}; {advice}", io::Error::from(error));
        // `listen` succeeds even if the loopback network is down. Without this check, every peer would appear dead.
        return socket::reach(here).map(|()| here).map_err(refuse);
    };
    let refuse = |why: &str| format!("{PREFIX}{}={named} {why}", NIO_LISTEN_ADDRESS.name);
    let ip = named.parse::<IpAddr>();
    let ip = ip.map_err(|_| refuse("is not an address (expected one such as 10.0.0.1)"))?;
    if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(refuse("is not the address of a single host: use one that `ip address` lists here"));
    }
    socket::reach(ip).map(|()| ip).map_err(|error| match error {
        Errno::ADDRNOTAVAIL => refuse("is not an address of this host: use one that `ip address` lists here"),
        error => refuse(&format!("cannot be used: {}", io::Error::from(error))),
    })
}

pub(super) fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// The address and properties that a rank publishes for its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NioCard {
    /// The address at which the rank listens.
    pub(super) at: SocketAddr,
    /// The longest body of a frame that peers may send to the rank, in bytes.
    pub(super) max_body: usize,
    pub(super) is_big_endian: bool,
}

impl NioCard {
    pub(super) fn new(at: SocketAddr, max_body: usize) -> Self {
        NioCard { at, max_body, is_big_endian: byte_order::IS_BIG_ENDIAN }
    }

    pub(super) fn to_address(self) -> Address {
        let NioCard { at, max_body, is_big_endian } = self;
        Address(format!("{at} {max_body} {}", byte_order::name(is_big_endian)).into_bytes())
    }

    /// Parses a peer's card. A `max_body` below the minimum of `NIO_MAX_SEND_SIZE` is invalid.
    pub(super) fn of(address: &Address) -> Option<Self> {
        let mut fields = str::from_utf8(&address.0).ok()?.split(' ');
        let at = fields.next()?.parse().ok()?;
        let max_body =
            fields.next()?.parse().ok().filter(|max_body| *max_body >= NIO_MAX_SEND_SIZE.range.0 as usize)?;
        let named = fields.next()?;
        let is_big_endian = [false, true].into_iter().find(|is_big| byte_order::name(*is_big) == named)?;
        fields.next().is_none().then_some(NioCard { at, max_body, is_big_endian })
    }
}

/// Returns whether an error has its cause on this host: a resource, a network or a permission is lacking.
pub(super) fn is_local_error(error: Errno) -> bool {
    use Errno as E;
    matches!(
        error,
        E::MFILE
            | E::NFILE
            | E::NOMEM
            | E::NOBUFS
            | E::ADDRNOTAVAIL
            | E::AGAIN
            | E::ACCESS
            | E::PERM
            | E::NETDOWN
            | E::NETUNREACH
            | E::AFNOSUPPORT
    )
}

/// Explains an error, with advice where possible.
pub(super) fn explain(doing: &str, error: Errno) -> String {
    let advice = match error {
        Errno::MFILE => "; every peer takes a file descriptor: raise `ulimit -n`",
        Errno::NFILE => "; the host has no file descriptors left: raise fs.file-max",
        Errno::ADDRNOTAVAIL | Errno::AGAIN => {
            "; the host has no free ports: widen net.ipv4.ip_local_port_range"
        }
        Errno::NETDOWN | Errno::NETUNREACH | Errno::AFNOSUPPORT => {
            "; this host has no network to that address: see `ip address` and `ip route`"
        }
        Errno::CONNREFUSED => "; its process has ended, or a firewall blocks the connection",
        Errno::ADDRINUSE => "; the host has no free ports",
        _ => "",
    };
    format!("{doing}: {}{advice}", io::Error::from(error))
}

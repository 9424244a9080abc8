//! Where to listen, and what the errors of sockets mean to a user.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{NIO_FRAGMENT, NIO_HOST};
use crate::config::PREFIX;
use crate::device::Address;
use crate::order;
use crate::sys::{Errno, OwnedFd, socket};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Listens on a free port of `ip`.
pub(super) fn listen(ip: IpAddr) -> Result<(OwnedFd, SocketAddr), Errno> {
    socket::listen(ip, BACKLOG)
}

/// Returns where to listen: at the address that the user has named, or on the loopback.
pub(super) fn host(named: Option<&str>) -> Result<IpAddr, String> {
    let Some(named) = named else {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let advice = "bring it up (`ip link set lo up`), or choose another device";
        let refuse = |error| format!("no loopback network: {}; {advice}", io::Error::from(error));
        // To listen is possible without a network, and a peer that cannot be reached would look dead.
        return socket::reach(here).map(|()| here).map_err(refuse);
    };
    let refuse = |why: &str| format!("{PREFIX}{}={named} {why}", NIO_HOST.name);
    let ip = named.parse::<IpAddr>();
    let ip = ip.map_err(|_| refuse("is no address, such as 10.0.0.1"))?;
    if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(refuse("is the address of no one host: name one that `ip address` lists here"));
    }
    socket::reach(ip).map(|()| ip).map_err(|error| match error {
        Errno::ADDRNOTAVAIL => refuse("is no address of this host: name one that `ip address` lists here"),
        error => refuse(&format!("cannot be used: {}", io::Error::from(error))),
    })
}

/// Whether a text names an address.
pub(super) fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// What a rank publishes for its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Card {
    /// Where it listens.
    pub(super) at: SocketAddr,
    /// The longest body of a frame that it takes, in bytes.
    pub(super) takes: usize,
    /// The byte order of the bodies that it sends and takes.
    pub(super) is_big_endian: bool,
}

impl Card {
    /// Makes the card of this rank.
    pub(super) fn new(at: SocketAddr, takes: usize) -> Self {
        Card { at, takes, is_big_endian: order::IS_BIG_ENDIAN }
    }

    pub(super) fn to_address(self) -> Address {
        let Card { at, takes, is_big_endian } = self;
        Address(format!("{at} {takes} {}", order::name(is_big_endian)).into_bytes())
    }

    /// Reads a card that came from a peer. A card that takes less than the parameters allow is invalid.
    pub(super) fn of(address: &Address) -> Option<Self> {
        let mut fields = str::from_utf8(&address.0).ok()?.split(' ');
        let at = fields.next()?.parse().ok()?;
        let takes = fields.next()?.parse().ok().filter(|takes| *takes >= NIO_FRAGMENT.range.0 as usize)?;
        let named = fields.next()?;
        let is_big_endian = [false, true].into_iter().find(|is_big| order::name(*is_big) == named)?;
        fields.next().is_none().then_some(Card { at, takes, is_big_endian })
    }
}

/// Whether an error says that this process, not the peer, lacks something.
pub(super) fn is_ours(error: Errno) -> bool {
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

/// Says what an error means and what to do.
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
        Errno::CONNREFUSED => "; its process has ended, or a firewall is between",
        Errno::ADDRINUSE => "; the host has no free ports",
        _ => "",
    };
    format!("{doing}: {}{advice}", io::Error::from(error))
}

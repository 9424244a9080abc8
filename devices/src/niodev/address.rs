//! The listeners of a rank, the card that contains their addresses, and explanations of socket errors for users.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::network::{self, AddressChoice, MAX_ADDRESSES, PortRange};
use super::{NIO_INTERFACES, NIO_LISTEN_ADDRESS, NIO_MAX_SEND_SIZE, NIO_PORTS, NIO_SECURITY};
use crate::byte_order;
use crate::config::{Config, PREFIX};
use crate::device::Address;
use crate::sys::{self, Errno, OwnedFd, socket};

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// A socket that listens, and its address.
pub type Listener = (OwnedFd, SocketAddr);

/// Opens the listeners of a rank: one for each usable address that the parameters select, or that the job needs.
///
/// # Errors
/// The parameters select no usable address, or no port is free. The text says what to do.
pub fn listen(config: &Config, spans_machines: bool) -> Result<Vec<Listener>, String> {
    let named = config.is_set(&NIO_LISTEN_ADDRESS).then(|| config.text(&NIO_LISTEN_ADDRESS));
    let interfaces = Some(config.text(&NIO_INTERFACES)).filter(|names| *names != NIO_INTERFACES.default);
    let allow_public = config.choice(&NIO_SECURITY);
    let addresses = match named {
        None if interfaces.is_some() || spans_machines => {
            let own = sys::interfaces().map_err(|e| explain("cannot list the network interfaces", e))?;
            network::listen_addresses(&own, AddressChoice { interfaces, allow_public })?
        }
        named => {
            let ip = listen_ip(named)?;
            if network::is_public(ip) && !allow_public {
                return Err(network::refuse_public(ip, NIO_LISTEN_ADDRESS.name));
            }
            vec![ip]
        }
    };
    // Without a range, the system chooses the ports.
    let range = PortRange::parse(config.text(&NIO_PORTS));
    let mut listeners = Vec::new();
    let mut failure = String::new();
    for ip in addresses {
        match listen_at(ip, range) {
            Ok(listener) => listeners.push(listener),
            // Another address might do: an IPv6 address, for example, is not usable while the kernel checks it.
            Err(why) => failure = why,
        }
    }
    if listeners.is_empty() { Err(failure) } else { Ok(listeners) }
}

/// Listens at `port` of each address that belongs to this host. Returns no listener if all belong to other hosts.
///
/// # Errors
/// The port is in use, an address is `0.0.0.0` or `::`, or one is public, and that is not allowed.
pub fn listen_at_addresses(
    config: &Config,
    addresses: &[IpAddr],
    port: u16,
) -> Result<Vec<Listener>, String> {
    let mut listeners: Vec<Listener> = Vec::new();
    for ip in addresses {
        if ip.is_unspecified() {
            return Err(format!(
                "{ip} is not an address that others can connect to: name the host of rank 0"
            ));
        }
        match socket::listen_again(SocketAddr::new(*ip, port), BACKLOG) {
            Ok(_) if network::is_public(*ip) && !config.choice(&NIO_SECURITY) => {
                return Err(network::refuse_public(*ip, "the address of rank 0"));
            }
            Ok(listener) => listeners.push(listener),
            Err(Errno::ADDRINUSE) if listeners.iter().all(|(_, at)| at.ip() != *ip) => {
                return Err(format!("port {port} of {ip} is in use"));
            }
            // The address belongs to another host, or cannot be used now.
            Err(_) => {}
        }
    }
    Ok(listeners)
}

/// Listens at `port` of the addresses that [`listen`] uses between machines, except those that cannot be used yet.
///
/// # Errors
/// The port is in use or forbidden, or no address can be used.
pub fn listen_on_network(config: &Config, port: u16) -> Result<Vec<Listener>, String> {
    let own = sys::interfaces().map_err(|e| explain("cannot list the network interfaces", e))?;
    let interfaces = Some(config.text(&NIO_INTERFACES)).filter(|names| *names != NIO_INTERFACES.default);
    let choice = AddressChoice { interfaces, allow_public: config.choice(&NIO_SECURITY) };
    let mut listeners = Vec::new();
    let mut failure = String::new();
    for ip in network::listen_addresses(&own, choice)? {
        match socket::listen_again(SocketAddr::new(ip, port), BACKLOG) {
            Ok(listener) => listeners.push(listener),
            Err(Errno::ADDRNOTAVAIL) => {
                failure = not_usable_yet(ip);
            }
            Err(error) => return Err(explain(&format!("port {port} of {ip}"), error)),
        }
    }
    if listeners.is_empty() { Err(failure) } else { Ok(listeners) }
}

fn not_usable_yet(ip: IpAddr) -> String {
    format!("{ip} cannot be used yet: the kernel checks whether another host has it")
}

fn listen_at(ip: IpAddr, range: Option<PortRange>) -> Result<Listener, String> {
    let cannot_listen = |error| match error {
        Errno::ADDRNOTAVAIL => not_usable_yet(ip),
        error => explain("cannot listen", error),
    };
    let Some(range) = range else {
        return socket::listen(SocketAddr::new(ip, 0), BACKLOG).map_err(cannot_listen);
    };
    for port in range.ports(std::process::id()) {
        match socket::listen(SocketAddr::new(ip, port), BACKLOG) {
            // A port below 1024 can be forbidden, while another one of the range is not.
            Err(Errno::ADDRINUSE | Errno::ACCESS) => {}
            outcome => return outcome.map_err(cannot_listen),
        }
    }
    Err(format!(
        "all ports {range} of {ip} are in use or forbidden: choose others with {PREFIX}{}",
        NIO_PORTS.name
    ))
}

/// Sorts the addresses of a peer in the order in which to try them.
pub fn connect_order(peer: &mut [SocketAddr]) {
    if peer.len() > 1 {
        // Without the list of interfaces, the order of the peer remains.
        network::connect_order(peer, &sys::interfaces().unwrap_or_default());
    }
}

/// Returns the IP address to listen at: the address `named` by the user, or the loopback address.
pub(super) fn listen_ip(named: Option<&str>) -> Result<IpAddr, String> {
    let Some(named) = named else {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        // `listen` succeeds even if the loopback network is down. Without this check, every peer would appear dead.
        return socket::reach(here).map(|()| here).map_err(explain_loopback);
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

/// The addresses and properties that a rank publishes for its peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NioCard {
    /// The addresses at which the rank listens: 1 to [`MAX_ADDRESSES`].
    pub(super) at: Vec<SocketAddr>,
    /// The longest body of a frame that peers may send to the rank, in bytes.
    pub(super) max_body: usize,
    pub(super) is_big_endian: bool,
}

impl NioCard {
    pub(super) fn new(at: Vec<SocketAddr>, max_body: usize) -> Self {
        NioCard { at, max_body, is_big_endian: byte_order::IS_BIG_ENDIAN }
    }

    pub(super) fn to_address(&self) -> Address {
        let NioCard { at, max_body, is_big_endian } = self;
        let at = at.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
        Address(format!("{at} {max_body} {}", byte_order::name(*is_big_endian)).into_bytes())
    }

    /// Parses a peer's card. A `max_body` below the minimum of `NIO_MAX_SEND_SIZE` is invalid.
    pub(super) fn of(address: &Address) -> Option<Self> {
        let mut fields = str::from_utf8(&address.0).ok()?.split(' ');
        let at = fields.next()?.split(',').map(|at| at.parse().ok());
        let at = at.take(MAX_ADDRESSES + 1).collect::<Option<Vec<SocketAddr>>>()?;
        let max_body =
            fields.next()?.parse().ok().filter(|max_body| *max_body >= NIO_MAX_SEND_SIZE.range.0 as usize)?;
        let named = fields.next()?;
        let is_big_endian = [false, true].into_iter().find(|is_big| byte_order::name(*is_big) == named)?;
        let is_valid = fields.next().is_none() && at.len() <= MAX_ADDRESSES;
        is_valid.then_some(NioCard { at, max_body, is_big_endian })
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

/// Explains why this host cannot be reached at its loopback address.
pub(super) fn explain_loopback(error: Errno) -> String {
    match error {
        Errno::MFILE | Errno::NFILE => explain("cannot open a socket", error),
        error => {
            let error = io::Error::from(error);
            format!(
                "no loopback network: {error}; bring it up (`ip link set lo up`), or choose another device"
            )
        }
    }
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
        Errno::ADDRINUSE => "; another socket uses the port, or the host has no free ports",
        _ => "",
    };
    format!("{doing}: {}{advice}", io::Error::from(error))
}

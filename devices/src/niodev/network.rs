//! The addresses at which this rank listens, and the order in which it tries those of a peer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::config::PREFIX;
use crate::sys::Interface;

/// The largest number of addresses of a rank. A card contains all of them.
pub(super) const MAX_ADDRESSES: usize = 8;

/// The choice of the user.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AddressChoice<'a> {
    /// The names of `MPJ_NIO_INTERFACES`.
    pub(super) interfaces: Option<&'a str>,
    /// Whether public addresses are allowed (`MPJ_NIO_SECURITY=none`).
    pub(super) allow_public: bool,
}

/// Returns up to [`MAX_ADDRESSES`] addresses to listen at: of the interfaces that the user names or, without names, of
/// all that are up except the loopback. Link-local addresses, and public ones unless they are allowed, are skipped.
///
/// # Errors
/// No address remains, or a named interface is unknown or down, or has a public address that is not allowed. The text
/// says what to do.
pub(super) fn listen_addresses(
    interfaces: &[Interface],
    choice: AddressChoice<'_>,
) -> Result<Vec<IpAddr>, String> {
    let names: Option<Vec<&str>> = choice.interfaces.map(|names| names.split(',').map(str::trim).collect());
    if let Some(names) = &names {
        check_names(interfaces, names)?;
    }
    let is_chosen = |interface: &&Interface| match &names {
        Some(names) => names.contains(&interface.name.as_str()),
        None => !interface.address.is_loopback(),
    };
    let usable = interfaces.iter().filter(|interface| interface.is_up && !is_link_local(interface.address));
    let (mut addresses, mut public) = (Vec::new(), None);
    for interface in usable.filter(is_chosen) {
        if is_public(interface.address) && !choice.allow_public {
            public.get_or_insert(interface);
        } else if !addresses.contains(&interface.address) {
            addresses.push(interface.address);
        }
    }
    match (addresses.is_empty(), public) {
        // Named interfaces must not be dropped silently.
        (is_empty, Some(public)) if is_empty || names.is_some() => {
            Err(refuse_public(public.address, &public.name))
        }
        (true, _) => Err(format!(
            "no selected network interface is up with an address that is neither loopback nor link-local ({}): see \
             `ip address`, or name interfaces in {PREFIX}NIO_INTERFACES",
            list(interfaces)
        )),
        (false, _) => {
            // IPv4 first, because more networks have it.
            addresses.sort_by_key(IpAddr::is_ipv6);
            addresses.truncate(MAX_ADDRESSES);
            Ok(addresses)
        }
    }
}

fn check_names(interfaces: &[Interface], names: &[&str]) -> Result<(), String> {
    let parameter = format!("{PREFIX}NIO_INTERFACES");
    for name in names {
        let named = || interfaces.iter().filter(|interface| interface.name == *name);
        let missing = match (named().next(), named().any(|interface| interface.is_up)) {
            (None, _) => "is not an interface of this host with an address",
            (Some(_), false) => "is down or has no carrier",
            _ => continue,
        };
        return Err(format!("{parameter}: {name} {missing} ({})", list(interfaces)));
    }
    Ok(())
}

fn list(interfaces: &[Interface]) -> String {
    let shown = |interface: &Interface| {
        let down = if interface.is_up { "" } else { " (down)" };
        format!("{} {}{down}", interface.name, interface.address)
    };
    let shown: Vec<String> = interfaces.iter().map(shown).collect();
    if shown.is_empty() { "this host has none".into() } else { format!("this host has {}", shown.join(", ")) }
}

/// Returns the error text for a public address. `origin` says where it comes from, for example the interface.
pub(super) fn refuse_public(address: IpAddr, origin: &str) -> String {
    format!(
        "{address} ({origin}) is a public address, and messages are neither encrypted nor authenticated after the connection is \
         established: name other interfaces in {PREFIX}NIO_INTERFACES, or allow it with {PREFIX}NIO_SECURITY=none"
    )
}

/// Returns whether an address can be reached from the whole internet: it is not private (RFC 1918), unique local,
/// link-local, shared (100.64/10) or of the loopback.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let is_shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            !(v4.is_private() || v4.is_loopback() || v4.is_link_local() || is_shared)
        }
        IpAddr::V6(v6) => !(v6.is_unique_local() || v6.is_loopback() || v6.is_unicast_link_local()),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        // A connection to it would also need the index of the interface.
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Sorts the addresses of a peer: first those in a subnet of this host, the smallest subnet first; then the others; last
/// those that this host has itself, except loopback addresses. Bridges for containers and virtual machines have the
/// same address on every host, so a connection to such an address reaches a process of this host.
pub(super) fn connect_order(peer: &mut [SocketAddr], own: &[Interface]) {
    let priority = |at: &SocketAddr| {
        let ip = at.ip();
        let is_own = !ip.is_loopback() && own.iter().any(|interface| interface.address == ip);
        let shared = own.iter().filter(|interface| interface.is_up && interface.contains(ip));
        let host_bits = shared.map(|interface| if ip.is_ipv4() { 32 } else { 128 } - interface.prefix).min();
        (is_own, host_bits.unwrap_or(u32::MAX))
    };
    peer.sort_by_cached_key(priority);
}

impl Interface {
    /// Returns whether an address is in the subnet of this interface.
    fn contains(&self, ip: IpAddr) -> bool {
        // A prefix of 0 is that of a point-to-point link without a subnet.
        let differs = match (self.address, ip) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => (own.to_bits() ^ ip.to_bits()).leading_zeros(),
            (IpAddr::V6(own), IpAddr::V6(ip)) => (own.to_bits() ^ ip.to_bits()).leading_zeros(),
            _ => return false,
        };
        self.prefix > 0 && differs >= self.prefix
    }
}

/// A range of ports, such as `40000-40100`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Parses a range or a single port.
    pub(super) fn parse(text: &str) -> Option<PortRange> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (1..=last).contains(&first).then_some(PortRange { first, last })
    }

    /// Returns each port once, beginning at one that depends on `seed`, so that ranks that start together rarely try the
    /// same port.
    pub(super) fn ports(self, seed: u32) -> impl Iterator<Item = u16> {
        let count = u32::from(self.last - self.first) + 1;
        (0..count).map(move |at| self.first + ((u64::from(seed) + u64::from(at)) % u64::from(count)) as u16)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str, prefix: u32, is_up: bool) -> Interface {
        Interface { name: name.into(), address: address.parse().unwrap(), prefix, is_up }
    }

    fn host() -> Vec<Interface> {
        vec![
            interface("lo", "127.0.0.1", 8, true),
            interface("lo", "::1", 128, true),
            interface("eth0", "fe80::1", 64, true),
            interface("eth0", "fd00::5", 64, true),
            interface("eth0", "10.0.0.5", 24, true),
            interface("ib0", "192.168.7.5", 16, true),
            interface("eth1", "8.8.4.4", 24, true),
            interface("docker0", "172.17.0.1", 16, false),
            interface("virbr0", "192.168.122.1", 24, true),
        ]
    }

    fn chosen(interfaces: Option<&str>, allow_public: bool) -> Result<Vec<String>, String> {
        let addresses = listen_addresses(&host(), AddressChoice { interfaces, allow_public })?;
        Ok(addresses.iter().map(IpAddr::to_string).collect())
    }

    #[test]
    fn interfaces_that_are_up_are_used() {
        let private = ["10.0.0.5", "192.168.7.5", "192.168.122.1", "fd00::5"];
        for (names, allow_public, wanted) in [
            (None, false, &private[..]),
            (None, true, &["10.0.0.5", "192.168.7.5", "8.8.4.4", "192.168.122.1", "fd00::5"]),
            (Some("ib0"), false, &["192.168.7.5"]),
            (Some("ib0, eth0"), false, &["10.0.0.5", "192.168.7.5", "fd00::5"]),
            (Some("lo"), false, &["127.0.0.1", "::1"]),
            (Some("eth1"), true, &["8.8.4.4"]),
        ] {
            let wanted = wanted.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(chosen(names, allow_public), Ok(wanted), "{names:?}");
        }
    }

    #[test]
    fn unusable_choices_are_errors() {
        for (names, why) in [
            (
                "eth9",
                "MPJ_NIO_INTERFACES: eth9 is not an interface of this host with an address (this host has lo ",
            ),
            ("", "MPJ_NIO_INTERFACES:  is not an interface"),
            ("eth0,docker0", "MPJ_NIO_INTERFACES: docker0 is down or has no carrier"),
            ("eth1", "8.8.4.4 (eth1) is a public address"),
            ("eth0,eth1", "or allow it with MPJ_NIO_SECURITY=none"),
        ] {
            let error = chosen(Some(names), false).unwrap_err();
            assert!(error.contains(why), "{names}: {error}");
        }
        let only = |interface| listen_addresses(&[interface], AddressChoice::default()).unwrap_err();
        assert!(only(interface("lo", "127.0.0.1", 8, true)).contains("(this host has lo 127.0.0.1)"));
        assert!(only(interface("eth0", "10.0.0.1", 8, false)).contains("10.0.0.1 (down)"));
        assert!(only(interface("eth0", "2001:4860::1", 64, true)).contains("is a public address"));
        assert!(listen_addresses(&[], AddressChoice::default()).unwrap_err().contains("this host has none"));
    }

    #[test]
    fn number_of_addresses_is_bounded() {
        let many: Vec<Interface> =
            (0..40).map(|at| interface("eth0", &format!("10.0.{at}.1"), 24, true)).collect();
        let addresses = listen_addresses(&many, AddressChoice::default()).unwrap();
        assert_eq!(addresses.len(), MAX_ADDRESSES);
    }

    #[test]
    fn public_addresses_are_recognized() {
        for (address, public) in [
            ("10.255.0.1", false),
            ("172.15.0.1", true),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("172.32.0.1", true),
            ("192.168.0.1", false),
            ("169.254.3.4", false),
            ("100.63.0.1", true),
            ("100.64.0.1", false),
            ("100.127.0.1", false),
            ("100.128.0.1", true),
            ("127.3.2.1", false),
            ("1.1.1.1", true),
            ("::1", false),
            ("fe80::1", false),
            ("fc00::1", false),
            ("fd12::1", false),
            ("2606:4700::1111", true),
            ("::ffff:10.0.0.1", false),
            ("::ffff:1.1.1.1", true),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
        }
    }

    #[test]
    fn addresses_of_common_subnets_are_tried_first() {
        for (peer, wanted) in [
            // The address of the bridge is that of this host, too.
            (&["192.168.122.1:1", "10.0.0.6:2"][..], &["10.0.0.6:2", "192.168.122.1:1"][..]),
            (
                &["203.0.113.9:1", "192.168.9.9:2", "10.0.0.9:3"],
                &["10.0.0.9:3", "192.168.9.9:2", "203.0.113.9:1"],
            ),
            // The smaller subnet first: 192.168.122.0/24 is part of 192.168.0.0/16.
            (&["192.168.1.1:1", "192.168.122.9:2"], &["192.168.122.9:2", "192.168.1.1:1"]),
            (&["[2001:db8::1]:1", "[fd00::9]:2"], &["[fd00::9]:2", "[2001:db8::1]:1"]),
            // A subnet of IPv4 is smaller than one of IPv6.
            (&["[fd00::9]:1", "10.0.0.9:2"], &["10.0.0.9:2", "[fd00::9]:1"]),
            // An interface that is down does not count, and addresses of equal priority keep their order.
            (&["172.17.0.9:1", "203.0.113.9:2"], &["172.17.0.9:1", "203.0.113.9:2"]),
            // On the loopback all ranks are on this host.
            (&["203.0.113.9:2", "127.0.0.1:1"], &["127.0.0.1:1", "203.0.113.9:2"]),
        ] {
            let mut addresses: Vec<SocketAddr> = peer.iter().map(|at| at.parse().unwrap()).collect();
            connect_order(&mut addresses, &host());
            let shown: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
            assert_eq!(shown, wanted, "{peer:?}");
        }
    }

    #[test]
    fn port_ranges_are_parsed() {
        for (text, range) in [
            ("40000-40100", Some((40_000, 40_100))),
            ("7-7", Some((7, 7))),
            ("65535", Some((65_535, 65_535))),
            ("0-5", None),
            ("0", None),
            ("5-4", None),
            ("1-65536", None),
            ("-5", None),
            ("5-", None),
            ("a-b", None),
            ("", None),
            ("1-2-3", None),
        ] {
            let range = range.map(|(first, last)| PortRange { first, last });
            assert_eq!(PortRange::parse(text), range, "{text}");
        }
        let range = PortRange { first: 5, last: 8 };
        assert_eq!(range.ports(2).collect::<Vec<_>>(), [7, 8, 5, 6]);
        assert_eq!(PortRange { first: 1, last: u16::MAX }.ports(u32::MAX).count(), 65_535);
    }
}

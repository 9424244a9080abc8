//! Tests of ranks with several addresses, of which some are wrong.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Instant;

use super::super::address::{NioCard, listen, listen_at_addresses};
use super::super::connector::{ConnectFailure, Connector};
use super::super::frame::BODY_MAX;
use super::super::{NIO_INTERFACES, NIO_LISTEN_ADDRESS, NIO_PORTS};
use super::{Rank, send, until};
use crate::config::{Config, Parameter};
use crate::device::{Address, Device, Endpoint, PeerId};
use crate::sys::Errno;

/// Connects rank `from` to rank `to` with a card that contains these addresses.
pub(super) fn connect_at(from: &Rank, to: &Rank, at: &[SocketAddr]) -> Box<dyn Endpoint> {
    let card = NioCard::new(at.to_vec(), BODY_MAX).to_address();
    from.device.connect(PeerId(to.device.shared.id.rank), &card).unwrap()
}

fn assert_arrives(ranks: &mut [&mut Rank; 3], endpoint: &mut dyn Endpoint) {
    send(endpoint, &mut ranks[..], &[1; 8], b"hello");
    until(&mut ranks[..], |ranks| !ranks[1].got.frames.is_empty());
    let from = ranks[0].device.shared.id.rank;
    assert_eq!(ranks[1].got.frames.remove(0), (from, vec![1; 8], b"hello".to_vec()));
    assert!(ranks.iter().all(|rank| rank.got.lost.is_empty()));
}

/// A bridge such as docker0 has the same address on all hosts. At that address of its peer, a rank reaches another rank
/// of its job, a rank of another job, or a port at which no process listens.
#[test]
fn wrong_hosts_are_passed_over() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (mut a, mut b, mut other) = (Rank::new(0, 8), Rank::new(1, 8), Rank::new(2, 8));
    let at = [other.address(), closed, b.address()];
    let mut to_b = connect_at(&a, &b, &at);
    assert_arrives(&mut [&mut a, &mut b, &mut other], &mut *to_b);
    assert_eq!(other.rejected(), 1, "the hello was for rank 1");
    let (mut a, mut b, mut other) = (Rank::new(0, 8), Rank::new(1, 8), Rank::new(2, 8));
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = [stranger.local_addr().unwrap(), b.address()];
    let mut to_b = connect_at(&a, &b, &at);
    // The stranger closes the connection.
    drop((stranger.accept().unwrap(), stranger));
    assert_arrives(&mut [&mut a, &mut b, &mut other], &mut *to_b);
}

/// An address at which a process accepts connections, but never answers.
#[test]
fn silent_host_is_passed_over() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut a, mut b, mut other) = (Rank::new(0, 8), Rank::new(1, 8), Rank::new(2, 8));
    let mut to_b = connect_at(&a, &b, &[silent.local_addr().unwrap(), b.address()]);
    assert_arrives(&mut [&mut a, &mut b, &mut other], &mut *to_b);
}

#[test]
fn rank_listens_at_all_chosen_addresses() {
    let interfaces: &dyn Parameter = &NIO_INTERFACES;
    let mut b = Rank::with(1, 8, &[(interfaces, "lo")]).unwrap();
    let card = NioCard::of(&b.device.address()).unwrap();
    assert!(card.at.iter().all(|at| at.ip().is_loopback()), "{card:?}");
    for (from, at) in [0, 2, 3, 4].into_iter().zip(b.device.at.clone()) {
        let (mut a, mut other) = (Rank::new(from, 8), Rank::new(5, 8));
        let mut to_b = connect_at(&a, &b, &[at]);
        assert_arrives(&mut [&mut a, &mut b, &mut other], &mut *to_b);
    }
    let why = Rank::with(1, 8, &[(interfaces, "no-such-0")]).map(|_| ()).unwrap_err();
    assert!(why.contains("no-such-0 is not an interface of this host"), "{why}");
}

#[test]
fn cards_with_several_addresses_are_parsed() {
    let addresses = |count| vec!["10.0.0.1:5"; count].join(",");
    for (text, count) in [
        ("10.0.0.1:5,[fd00::1]:6 2000 little-endian".to_owned(), Some(2)),
        (format!("{} 2000 little-endian", addresses(8)), Some(8)),
        (format!("{} 2000 little-endian", addresses(9)), None),
        ("10.0.0.1:5, 2000 little-endian".to_owned(), None),
        (",10.0.0.1:5 2000 little-endian".to_owned(), None),
        ("10.0.0.1:5,nowhere 2000 little-endian".to_owned(), None),
    ] {
        let card = NioCard::of(&Address(text.clone().into_bytes()));
        assert_eq!(card.map(|card| card.at.len()), count, "{text}");
    }
}

#[test]
fn ports_of_the_range_are_used_until_none_is_left() {
    let first = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().min(65_000);
    let range = format!("{first}-{}", first + 3);
    let mut config = Config::default();
    config.set_text(&NIO_PORTS, &range).unwrap();
    let mut open = Vec::new();
    let why = loop {
        match listen(&config, false) {
            Ok(listeners) => open.extend(listeners),
            Err(why) => break why,
        }
        assert!(open.len() <= 4, "more listeners than ports");
    };
    let mut ports: Vec<u16> = open.iter().map(|(_, at)| at.port()).collect();
    ports.sort_unstable();
    // Other programs might use some of the ports.
    assert!(!ports.is_empty() && ports.iter().all(|port| (first..first + 4).contains(port)), "{ports:?}");
    assert_eq!(
        why,
        format!("all ports {range} of 127.0.0.1 are in use or forbidden: choose others with MPJ_NIO_PORTS")
    );
    open.clear();
    assert!(listen(&config, false).is_ok());
    for wrong in ["", "x", "5-4", "0-9", "1-70000"] {
        assert!(config.set_text(&NIO_PORTS, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn unreachable_network_loses_the_peer_only_after_many_attempts() {
    let (remote, loopback): (SocketAddr, SocketAddr) =
        ("10.9.8.7:5".parse().unwrap(), "127.0.0.1:5".parse().unwrap());
    for error in [Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::NETDOWN] {
        assert!(matches!(ConnectFailure::from_connect_error(error, &remote), ConnectFailure::Unreachable(_)));
        assert!(!matches!(
            ConnectFailure::from_connect_error(error, &loopback),
            ConnectFailure::Unreachable(_)
        ));
    }
    let rank = Rank::new(0, 8);
    let mut connector = Connector::new(rank.device.shared.connection(1), vec![remote, loopback]);
    let now = Instant::now();
    let attempts = (0..1000).take_while(|_| {
        connector.failed(now, ConnectFailure::from_connect_error(Errno::HOSTUNREACH, &remote)).is_ok()
    });
    assert_eq!(attempts.count(), 127);
}

#[test]
fn addresses_are_tried_in_turn_and_pauses_follow_each_round() {
    let rank = Rank::new(0, 8);
    let at: Vec<SocketAddr> =
        ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(|at| at.parse().unwrap()).into();
    let mut connector = Connector::new(rank.device.shared.connection(1), at.clone());
    let now = Instant::now();
    for round in 0..10 {
        for (index, address) in at.iter().enumerate() {
            assert_eq!(connector.at(), address);
            let pause = connector.failed(now, ConnectFailure::Transient).unwrap() - now;
            let millis = if index + 1 < at.len() { 0 } else { 10 << round.min(5) };
            assert!((millis * 3 / 4..=millis).contains(&(pause.as_millis() as u64)), "{round}: {pause:?}");
        }
    }
    let limit = |connector: &Connector| connector.attempt_limit(false).map(|limit| limit.as_secs());
    assert_eq!(limit(&connector), Some(96));
    let single = Connector::new(rank.device.shared.connection(1), vec![at[0]]);
    assert_eq!(limit(&single), None, "there is no other address to try");
}

#[test]
fn named_address_is_used_on_several_machines() {
    let mut config = Config::default();
    config.set_text(&NIO_LISTEN_ADDRESS, "127.0.0.1").unwrap();
    let listeners = listen(&config, true).unwrap();
    assert!(!listeners.is_empty() && listeners.iter().all(|(_, at)| at.ip() == Ipv4Addr::LOCALHOST));
}

#[test]
fn addresses_of_this_host_are_listened_at() {
    // Linux does not give this port to sockets without a port, such as those of other tests.
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (10_000 + std::process::id() as u16 % 10_000..32_768).find(is_free).unwrap();
    let addresses = ["203.0.113.1", "127.0.0.1", "127.0.0.1"].map(|ip| ip.parse().unwrap());
    let config = Config::default();
    let listeners = listen_at_addresses(&config, &addresses, port).unwrap();
    let at: Vec<SocketAddr> = listeners.iter().map(|(_, at)| *at).collect();
    assert_eq!(at, [SocketAddr::new(addresses[1], port)]);
    let why = listen_at_addresses(&config, &addresses, port).unwrap_err();
    assert_eq!(why, format!("port {port} of 127.0.0.1 is in use"));
    // A connection in the state TIME_WAIT does not reserve the port.
    let connected = std::net::TcpStream::connect(at[0]).unwrap();
    drop((listeners, connected));
    assert_eq!(listen_at_addresses(&config, &addresses, port).map(|listeners| listeners.len()), Ok(1));
    assert_eq!(listen_at_addresses(&config, &addresses[..1], port).map(|listeners| listeners.len()), Ok(0));
}

/// A peer that lacks descriptors refuses some connections with a verdict, and drops others before it knows the rank.
#[test]
fn peer_without_descriptors_is_lost_although_it_drops_connections() {
    let rank = Rank::new(0, 8);
    let at = vec!["127.0.0.1:9".parse().unwrap()];
    let mut connector = Connector::new(rank.device.shared.connection(1), at);
    let full = || ConnectFailure::NoResources("no descriptor is left".into());
    let mut attempts = 0;
    let lost = loop {
        attempts += 1;
        assert!(attempts <= 16, "the peer is not lost");
        for _ in 0..3 {
            assert!(connector.failed(Instant::now(), ConnectFailure::Transient).is_ok());
        }
        if let Err(why) = connector.failed(Instant::now(), full()) {
            break why;
        }
    };
    assert_eq!((attempts, &lost[..]), (16, "no descriptor is left"));
    // The verdict `Duplicate` shows that the peer has descriptors, so it resets the count.
    let mut connector =
        Connector::new(rank.device.shared.connection(1), vec!["127.0.0.1:9".parse().unwrap()]);
    for _ in 0..40 {
        assert!(connector.failed(Instant::now(), full()).is_ok());
        connector.on_duplicate(Instant::now());
    }
}

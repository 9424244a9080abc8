//! Tests of agents that connect to the root of their job.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use mpj_devices::handshake::{Handshake, HandshakeAction};

use super::*;
use crate::boot::agent::RootCard;
use crate::boot::agent::messages::ToRoot;
use crate::boot::proven::MAX_STRANGERS;
use crate::boot::wire::ToProcess;

fn key(secret: u8) -> JobKey {
    JobKey { job: 0x0123_4567_89ab_cdef, secret: [secret; 32] }
}

fn config() -> Config {
    let mut config = Config::default();
    config.set_text(&mpj_devices::config::NIO_INTERFACES, "lo").unwrap();
    config
}

#[test]
fn cards_survive_the_text_form() {
    let addresses = vec!["10.0.0.1:5".parse().unwrap(), "[fd00::1]:65535".parse().unwrap()];
    let card = RootCard { key: Some(key(0xa5)), addresses };
    let text = card.to_text();
    assert!(text.is_ascii() && !text.contains([' ', ';', '=']), "{text}");
    assert_eq!(RootCard::parse(&text), Ok(card.clone()));
    let without_key = RootCard { key: None, ..card };
    assert_eq!(RootCard::parse(&without_key.to_text()), Ok(without_key));
    for wrong in [
        "",
        "4/",
        "2/0/0/10.0.0.1:5",
        "4/0-0/10.0.0.1:5",
        &text[1..],
        &text[..60],
        &text.replace("a5", "a"),
        &text.replace("a5", "xx"),
        &text.replace(":5,", ","),
        &format!("{text}/"),
        &format!("{text},"),
    ] {
        assert!(RootCard::parse(wrong).is_err(), "{wrong}");
    }
}

/// Accepts agents until `until` returns true for the hosts that have arrived.
fn accept(
    listener: &mut RootListener,
    until: impl Fn(&[(HostId, OwnedFd)]) -> bool,
) -> Vec<(HostId, OwnedFd)> {
    let (begun, mut arrived) = (Instant::now(), Vec::new());
    while !until(&arrived) {
        assert!(begun.elapsed() < Duration::from_secs(20), "no agent has arrived");
        let known: Vec<HostId> = arrived.iter().map(|(host, _)| *host).collect();
        arrived.extend(listener.arrivals(|host| known.contains(&host)));
        std::thread::sleep(Duration::from_millis(1));
    }
    arrived
}

#[test]
fn agents_with_the_key_connect_once() {
    let mut listener = RootListener::open(&key(1), 3, &config()).unwrap();
    let at = listener.addresses().to_vec();
    let connect = |host, key: JobKey, limit| {
        let at = at.clone();
        std::thread::spawn(move || connect_to_root(&key, at, HostId(host), 3, limit))
    };
    let agents = [connect(1, key(1), ROOT_LIMIT), connect(2, key(1), ROOT_LIMIT)];
    let mut arrived = accept(&mut listener, |arrived| arrived.len() == 2);
    arrived.sort_by_key(|(host, _)| *host);
    let mut links = agents.map(|agent| agent.join().unwrap().unwrap());
    for ((host, stream), link) in arrived.into_iter().zip(&mut links) {
        let mut relay = ControlConnection::<ToRoot>::new(stream);
        let message = FromRoot::ToProcess { rank: host.0, message: ToProcess::JobEnds { code: 7 } };
        relay.send(&message, None);
        relay.flush();
        let got = loop {
            link.receive().unwrap();
            if let Some(got) = link.next() {
                break got;
            }
        };
        assert_eq!(got, message);
    }
    // A second agent of a host, and one with another key, are refused.
    for (host, key, limit, why) in [
        (1, key(1), ROOT_LIMIT, "another process has joined"),
        (2, key(9), Duration::from_millis(500), "does not have the key of the job"),
    ] {
        let again = connect(host, key, limit);
        while !again.is_finished() {
            assert!(listener.arrivals(|_| true).is_empty());
            std::thread::sleep(Duration::from_millis(1));
        }
        let error = again.join().unwrap().map(|_| ()).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn strangers_do_not_keep_agents_out() {
    let mut listener = RootListener::open(&key(1), 2, &config()).unwrap();
    let at = listener.addresses().to_vec();
    let mut strangers: Vec<TcpStream> =
        (0..2 * MAX_STRANGERS).map(|_| TcpStream::connect(at[0]).unwrap()).collect();
    strangers[5].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let agent = std::thread::spawn(move || connect_to_root(&key(1), at, HostId(1), 2, ROOT_LIMIT));
    let arrived = accept(&mut listener, |arrived| arrived.len() == 1);
    assert_eq!(arrived[0].0, HostId(1));
    agent.join().unwrap().unwrap();
    // At most the strangers, one connection for each host, and the listening sockets.
    assert!(listener.to_poll().count() <= MAX_STRANGERS + 2 + 2);
}

#[test]
fn agents_of_many_hosts_connect_at_the_same_time() {
    const HOSTS: u32 = 4 * MAX_STRANGERS as u32;
    let mut listener = RootListener::open(&key(1), HOSTS, &config()).unwrap();
    let connect = |host| {
        let at = listener.addresses().to_vec();
        std::thread::spawn(move || connect_to_root(&key(1), at, HostId(host), HOSTS, ROOT_LIMIT))
    };
    let agents: Vec<_> = (1..HOSTS).map(connect).collect();
    // The root is late: all of them wait.
    std::thread::sleep(Duration::from_millis(300));
    accept(&mut listener, |arrived| {
        arrived.len() == agents.len() || agents.iter().all(std::thread::JoinHandle::is_finished)
    });
    for agent in agents {
        agent.join().unwrap().unwrap();
    }
}

/// An agent gives up an attempt when the root does not reply for a time, for example because it was stopped.
#[test]
fn attempt_that_was_given_up_does_not_keep_the_agent_out() {
    let mut listener = RootListener::open(&key(1), 2, &config()).unwrap();
    let at = listener.addresses().to_vec();
    let (mut handshake, hello) = Handshake::connect(identity(&key(1), HostId(1), 2), 0, [1; 32]);
    let mut attempt = TcpStream::connect(at[0]).unwrap();
    attempt.write_all(&hello).unwrap();
    attempt.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    let proof = loop {
        assert!(begun.elapsed() < Duration::from_secs(20), "no challenge has arrived");
        assert!(listener.arrivals(|_| false).is_empty());
        let Ok(count) = attempt.read(handshake.room()) else { continue };
        if let Ok(HandshakeAction::Send(proof)) = handshake.received(count) {
            break proof;
        }
    };
    attempt.write_all(&proof).unwrap();
    drop(attempt);
    let agent = std::thread::spawn(move || connect_to_root(&key(1), at, HostId(1), 2, ROOT_LIMIT));
    let arrived = accept(&mut listener, |arrived| arrived.len() == 1);
    let mut link = agent.join().unwrap().unwrap();
    // The connection is the one that the agent still has.
    let mut relay = ControlConnection::<ToRoot>::new(arrived.into_iter().next().unwrap().1);
    let message = FromRoot::JobEnds { code: 7 };
    relay.send(&message, None);
    relay.flush();
    link.receive().unwrap();
    assert_eq!(link.next(), Some(message));
}

#[test]
fn unreachable_root_is_an_error() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let limit = Duration::from_millis(100);
    let why = connect_to_root(&key(1), vec![closed], HostId(1), 2, limit).map(|_| ()).unwrap_err();
    assert!(why.starts_with(&format!("cannot connect to the host of rank 0 at {closed}: ")), "{why}");
}

/// Until the root listens, the agent gets `ConnectError::Unreachable`, as from a host without a route.
#[test]
fn agent_reaches_a_root_that_is_late() {
    // Below the ephemeral ports of Linux.
    let mut ports = 10_000 + std::process::id() as u16 % 20_000..31_000;
    let port = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap();
    let agent = std::thread::spawn(move || {
        connect_to_root(&key(1), vec![([127, 0, 0, 1], port).into()], HostId(1), 2, ROOT_LIMIT)
    });
    std::thread::sleep(Duration::from_secs(1));
    let mut config = config();
    config.set_text(&mpj_devices::config::NIO_PORTS, &format!("{port}-{port}")).unwrap();
    let mut listener = RootListener::open(&key(1), 2, &config).unwrap();
    assert_eq!(accept(&mut listener, |arrived| arrived.len() == 1)[0].0, HostId(1));
    agent.join().unwrap().unwrap();
}

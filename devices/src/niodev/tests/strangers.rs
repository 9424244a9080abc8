//! Tests that strangers, unreachable addresses and invalid input do not disturb the job.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

use super::super::address::{NioCard, explain, explain_loopback, listen_ip};
use super::super::frame::{BODY_MAX, HEADER, NioHeader};
use super::super::half_open;
use super::super::half_open_table::STRANGERS;
use super::super::handshake::{Handshake, HandshakeAction, Identity, NIODEV, Verdict};
use super::{LIVENESS, Rank, intrude, key, send, until};
use crate::byte_order;
use crate::device::{Address, Body, Device, Inlet, PeerId, PostError};
use crate::sys::socket::unacknowledged;

fn assert_peers_can_communicate(a: &mut Rank) {
    let mut b = Rank::new(1, 8);
    let mut endpoint = a.endpoint(&b);
    send(&mut *endpoint, &mut [a, &mut b], &[7; 8], b"still here");
    until(&mut [a, &mut b], |r| r[1].got.frames.len() == 1);
    let mut back = b.endpoint(a);
    send(&mut *back, &mut [a, &mut b], &[7; 8], b"me too");
    until(&mut [a, &mut b], |r| r[0].got.frames.len() == 1);
    assert_eq!(a.got.lost, []);
}

/// Returns whether the rank closes the connection; polls the rank meanwhile.
fn is_closed_by(rank: &mut Rank, stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let limit = Instant::now() + LIVENESS;
    while Instant::now() < limit {
        rank.poll();
        match stream.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => (),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => (),
            Err(_) => return true,
        }
    }
    false
}

#[test]
fn noise_is_rejected() {
    let mut rank = Rank::new(0, 8);
    let noises: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: you\r\n\r\n",
        &[0xFF; 4096],
        &[0; 56],
        b"MPJ>\x01 an earlier version",
        &NioHeader { kind: super::super::frame::NioFrameKind::Data, head: 8, body: 1 << 63 }.to_bytes(),
    ];
    for (i, noise) in noises.into_iter().enumerate() {
        let mut stream = TcpStream::connect(rank.address()).unwrap();
        stream.write_all(noise).unwrap();
        assert!(is_closed_by(&mut rank, &mut stream), "noise {i}");
    }
    assert_eq!(rank.rejected(), 5);
    assert_peers_can_communicate(&mut rank);
}

#[test]
fn wrong_key_is_rejected() {
    let mut rank = Rank::new(0, 8);
    assert!(intrude(&mut rank, 1, 9).is_none());
    until(&mut [&mut rank], |r| r[0].rejected() == 1);
    assert_peers_can_communicate(&mut rank);
}

#[test]
fn second_connection_of_a_rank_is_rejected() {
    let mut rank = Rank::new(0, 8);
    let first = intrude(&mut rank, 5, 1);
    assert!(first.is_some() && intrude(&mut rank, 5, 1).is_none());
    assert_peers_can_communicate(&mut rank);
}

#[test]
fn silent_connections_are_kept_until_others_need_their_entries() {
    let mut rank = Rank::new(0, 8);
    let mut half = TcpStream::connect(rank.address()).unwrap();
    half.write_all(b"MPJ>\x02\0\0\0half").unwrap();
    let mut silent = TcpStream::connect(rank.address()).unwrap();
    assert_peers_can_communicate(&mut rank);
    assert_eq!(rank.rejected(), 0);
    rank.inlet.conn_manager.half_open.max_strangers = 2;
    let _crowd = [(); 2].map(|()| TcpStream::connect(rank.address()).unwrap());
    assert!(is_closed_by(&mut rank, &mut half) && is_closed_by(&mut rank, &mut silent));
    assert_eq!(rank.rejected(), 2);
}

/// A rank connects, and sends its hello an hour later.
#[test]
fn rank_that_sends_its_hello_late_is_accepted() {
    let mut rank = Rank::new(0, 8);
    let mut stream = TcpStream::connect(rank.address()).unwrap();
    until(&mut [&mut rank], |r| !r[0].inlet.conn_manager.half_open.is_empty());
    for _ in 0..200 {
        rank.inlet.conn_manager.tick(Instant::now() + Duration::from_secs(3600));
    }
    let id = Identity { key: key(1), rank: 5, size: 8, purpose: NIODEV };
    let (mut handshake, hello) = Handshake::connect(Arc::new(id), 0, half_open::nonce().unwrap());
    stream.write_all(&hello).unwrap();
    until(&mut [&mut rank], |r| r[0].inlet.conn_manager.half_open.has_ranks());
    let count = stream.read(handshake.room()).unwrap();
    let Ok(HandshakeAction::Send(proof)) = handshake.received(count) else { panic!("no challenge") };
    stream.write_all(&proof).unwrap();
    until(&mut [&mut rank], |r| r[0].inlet.established() == 1);
}

#[test]
fn crowd_of_strangers_does_not_keep_peers_out() {
    let mut rank = Rank::new(0, 8);
    let crowd: Vec<_> = (0..200).map(|_| TcpStream::connect(rank.address()).unwrap()).collect();
    assert_peers_can_communicate(&mut rank);
    drop(crowd);
}

#[test]
fn a_rank_of_another_byte_order_is_refused_before_the_connection() {
    let rank = Rank::new(0, 8);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (here, there) = if cfg!(target_endian = "big") { ("big", "little") } else { ("little", "big") };
    let card = Address(format!("{at} 262144 {there}-endian").into_bytes());
    // The device still has an affinity for the peer, so that the engine chooses this device and reports its error.
    assert!(rank.device.affinity(&card).is_some());
    let refused = rank.device.connect(PeerId(3), &card).unwrap_err().to_string();
    assert!(refused.contains("rank 3 has another byte order"), "{refused}");
    assert!(refused.contains(&format!("it is {there}-endian and this rank is {here}-endian")), "{refused}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the device did not connect");
    let own = Address(format!("{at} 262144 {here}-endian").into_bytes());
    assert!(rank.device.connect(PeerId(3), &own).is_ok());
    for invalid in ["", " middle-endian", " big-endian 1"] {
        let card = Address(format!("{at} 262144{invalid}").into_bytes());
        assert!(rank.device.affinity(&card).is_none(), "{invalid:?}");
    }
}

#[test]
fn idle_pass_has_received_all_arrived_frames() {
    // With more than two peers, the inlet reads only from peers that `epoll_wait` reports.
    let mut rank = Rank::new(0, 8);
    let mut peers: Vec<_> = (3..6).map(|peer| intrude(&mut rank, peer, 1).unwrap()).collect();
    let mut crowd: Vec<_> = (0..STRANGERS).map(|_| TcpStream::connect(rank.address()).unwrap()).collect();
    until(&mut [&mut rank], |r| r[0].inlet.conn_manager.half_open.is_crowded());
    for stranger in &mut crowd {
        stranger.write_all(b"M").unwrap();
        arrived(stranger);
    }
    peers[2].write_all(&NioHeader::data(8, 0).to_bytes()).unwrap();
    peers[2].write_all(&[7; 8]).unwrap();
    arrived(&peers[2]);
    while rank.inlet.progress(&mut rank.got) > 0 {}
    assert_eq!(rank.got.frames, [(5, vec![7; 8], vec![])]);
}

/// Waits until the other end has received the written bytes.
fn arrived(stream: &TcpStream) {
    let limit = Instant::now() + LIVENESS;
    while unacknowledged(stream) > 0 {
        assert!(Instant::now() < limit, "the bytes are not acknowledged");
        std::thread::yield_now();
    }
}

#[test]
fn invalid_header_loses_only_its_sender() {
    let mut long = NioHeader::data(8, 0).to_bytes();
    long[15] = 0x80;
    for nonsense in [long, [0xFF; HEADER], NioHeader::data(60, 0).to_bytes()] {
        let mut rank = Rank::new(0, 8);
        let mut stream = intrude(&mut rank, 5, 1).unwrap();
        stream.write_all(&nonsense).unwrap();
        until(&mut [&mut rank], |r| !r[0].got.lost.is_empty());
        assert!(rank.got.lost[0].0 == 5 && rank.got.lost[0].1.contains("malformed"), "{:?}", rank.got.lost);
        rank.got.lost.clear();
        assert_peers_can_communicate(&mut rank);
    }
}

#[test]
fn half_open_rank_keeps_its_entry_in_a_crowd() {
    let mut rank = Rank::new(0, 8);
    rank.inlet.conn_manager.half_open.max_strangers = 2;
    let (mut slow, mut handshake) = hello(&rank, 5);
    rank.poll();
    let mut crowd = Vec::new();
    for _ in 0..50 {
        crowd.push(TcpStream::connect(rank.address()).unwrap());
        rank.poll();
    }
    assert_eq!(rank.rejected(), 48, "all but the newest two");
    // The handshake of rank 5 continues.
    let count = slow.read(handshake.room()).unwrap();
    let Ok(HandshakeAction::Send(proof)) = handshake.received(count) else { panic!("no challenge") };
    slow.write_all(&proof).unwrap();
    until(&mut [&mut rank], |r| r[0].inlet.established() == 1);
}

#[test]
fn rank_has_one_half_open_entry() {
    let mut rank = Rank::new(0, 8);
    let hellos: Vec<_> = (0..20).map(|_| hello(&rank, 5)).collect();
    until(&mut [&mut rank], |r| r[0].rejected() == 19);
    drop(hellos);
    assert_peers_can_communicate(&mut rank);
}

/// Connects without a device and sends only a hello, as rank `rank`.
pub(super) fn hello(to: &Rank, rank: u32) -> (TcpStream, Handshake) {
    let id = Identity { key: key(1), rank, size: 8, purpose: NIODEV };
    let (handshake, hello) =
        Handshake::connect(Arc::new(id), to.device.shared.id.rank, half_open::nonce().unwrap());
    let mut stream = TcpStream::connect(to.address()).unwrap();
    stream.write_all(&hello).unwrap();
    (stream, handshake)
}

#[test]
fn ranks_connect_through_a_flood_of_strangers() {
    const RANKS: u32 = 32;
    let files = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
    let mut ranks: Vec<Rank> = (0..RANKS).map(|rank| Rank::new(rank, RANKS)).collect();
    let cards: Vec<_> = ranks.iter().map(|rank| (rank.device.address(), rank.address())).collect();
    let mut endpoints = Vec::new();
    for rank in &mut ranks {
        rank.inlet.conn_manager.half_open.max_strangers = 1;
        let me = rank.device.shared.id.rank;
        for (to, (card, _)) in cards.iter().enumerate().filter(|(to, _)| *to != me as usize) {
            endpoints.push((me, Some((to, rank.device.connect(PeerId(to as u32), card).unwrap()))));
        }
    }
    let (mut crowd, mut flooding) = (std::collections::VecDeque::new(), 0);
    let limit = Instant::now() + LIVENESS;
    while ranks.iter().any(|rank| rank.got.frames.len() + 1 < RANKS as usize) {
        assert!(
            Instant::now() < limit,
            "{} frames were not sent",
            endpoints.iter().flat_map(|l| &l.1).count()
        );
        for _ in 0..8 {
            let mut stranger = TcpStream::connect(cards[flooding % cards.len()].1).unwrap();
            if flooding % 3 == 0 {
                stranger.write_all(b"MPJ>").unwrap();
            }
            crowd.push_back(stranger);
            flooding += 1;
        }
        while crowd.len() > 200 {
            crowd.pop_front();
        }
        for (from, endpoint) in &mut endpoints {
            if let Some((_, to)) = endpoint
                && to.post(&[1; 8], Body::Bytes(&from.to_le_bytes())) == Ok(())
            {
                *endpoint = None;
            }
        }
        ranks.iter_mut().for_each(Rank::poll);
    }
    for rank in &ranks {
        assert_eq!(rank.got.lost, []);
        let mut from: Vec<u32> = rank.got.frames.iter().map(|frame| frame.0).collect();
        from.sort_unstable();
        assert!(from.into_iter().eq((0..RANKS).filter(|from| *from != rank.device.shared.id.rank)));
        assert!(rank.got.frames.iter().all(|(from, _, body)| *body == from.to_le_bytes()));
    }
}

/// Checks that rank 0 does not lose a peer at whose address an impostor answers, but does when nothing listens there.
fn assert_impostor_does_not_lose_the_peer(answer: impl Fn(TcpStream)) {
    let mut rank = Rank::new(0, 8);
    let impostor = TcpListener::bind("127.0.0.1:0").unwrap();
    impostor.set_nonblocking(true).unwrap();
    let at = NioCard::new(vec![impostor.local_addr().unwrap()], BODY_MAX).to_address();
    let mut endpoint = rank.device.connect(PeerId(3), &at).unwrap();
    let mut attempts = 0;
    until(&mut [&mut rank], |_| {
        if let Ok((stream, _)) = impostor.accept() {
            answer(stream);
            attempts += 1;
        }
        attempts == 12
    });
    assert_eq!(rank.got.lost, []);
    assert_eq!(endpoint.post(&[0; 8], Body::Empty), Err(PostError::Again));
    // Attempts that find no listener prove that the peer is gone.
    drop(impostor);
    until(&mut [&mut rank], |r| !r[0].got.lost.is_empty());
    assert!(rank.got.lost[0].0 == 3 && rank.got.lost[0].1.contains("refused"), "{:?}", rank.got.lost);
    assert_eq!(endpoint.post(&[0; 8], Body::Empty), Err(PostError::Again), "no frame counts as sent");
}

#[test]
fn closed_attempts_do_not_lose_the_peer() {
    assert_impostor_does_not_lose_the_peer(drop);
}

#[test]
fn unproven_full_does_not_lose_the_peer() {
    assert_impostor_does_not_lose_the_peer(|mut stream| {
        stream.write_all(&[Verdict::Full.to_byte()]).unwrap()
    });
}

#[test]
fn foreign_protocol_does_not_lose_the_peer() {
    assert_impostor_does_not_lose_the_peer(|mut stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap()
    });
}

#[test]
fn peer_gone_stops_the_attempts() {
    let mut rank = Rank::new(0, 8);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = NioCard::new(vec![silent.local_addr().unwrap()], BODY_MAX).to_address();
    let mut endpoint = rank.device.connect(PeerId(3), &at).unwrap();
    rank.poll();
    assert!(rank.inlet.conn_manager.is_busy());
    endpoint.peer_gone();
    rank.poll();
    assert!(!rank.inlet.conn_manager.is_busy());
    drop(silent);
    rank.poll();
    assert_eq!((endpoint.post(&[0; 8], Body::Empty), &rank.got.lost[..]), (Err(PostError::Again), &[][..]));
}

#[test]
fn peer_without_a_listener_is_lost() {
    let mut rank = Rank::new(0, 8);
    let closed_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _endpoint =
        rank.device.connect(PeerId(3), &NioCard::new(vec![closed_port], BODY_MAX).to_address()).unwrap();
    until(&mut [&mut rank], |r| !r[0].got.lost.is_empty());
    assert!(rank.got.lost[0].0 == 3 && rank.got.lost[0].1.contains("refused"), "{:?}", rank.got.lost);
    rank.got.lost.clear();
    assert_peers_can_communicate(&mut rank);
}

#[test]
fn invalid_addresses_are_refused_and_errors_give_advice() {
    let rank = Rank::new(0, 8);
    assert!(rank.device.affinity(&rank.device.address()).is_some());
    let order = byte_order::name(byte_order::IS_BIG_ENDIAN).as_bytes();
    let card = |front: &[u8]| Address([front, b" ", order].concat());
    assert!(rank.device.affinity(&card(b"1.2.3.4:5 1024")).is_some());
    let invalid_limits =
        [&b"1.2.3.4:5"[..], b"1.2.3.4:5 ", b"1.2.3.4:5 0", b"1.2.3.4:5 1023", b"1.2.3.4:5 -1"];
    let invalid_addresses =
        [&b"nowhere 2000"[..], b" 2000", b"\xFF\xFE", b"1.2.3.4 2000", b"1.2.3.4:99999 2000"];
    for nonsense in invalid_limits.into_iter().chain(invalid_addresses) {
        let address = card(nonsense);
        assert!(
            rank.device.affinity(&address).is_none() && rank.device.connect(PeerId(1), &address).is_err()
        );
    }
    assert!(explain("cannot connect", Errno::MFILE).contains("ulimit -n"));
    assert!(explain("cannot connect", Errno::NETUNREACH).contains("ip route"));
    assert!(explain_loopback(Errno::MFILE).contains("ulimit -n"));
    assert!(explain_loopback(Errno::NETUNREACH).contains("ip link set lo up"));
}

#[test]
fn only_addresses_of_this_host_can_be_listened_on() {
    assert!(listen_ip(None).is_ok() && listen_ip(Some("127.0.0.1")).is_ok());
    let unusable: [(&str, &str); 6] = [
        ("", "is not an address"),
        ("localhost", "is not an address"),
        ("0.0.0.0", "not the address of a single host"),
        ("::", "not the address of a single host"),
        ("224.0.0.1", "not the address of a single host"),
        // No host has an address of this reserved range.
        ("240.0.0.77", "not an address of this host"),
    ];
    for (named, why) in unusable {
        let refused = listen_ip(Some(named)).unwrap_err();
        assert!(
            refused.starts_with(&format!("MPJ_NIO_LISTEN_ADDRESS={named} ")) && refused.contains(why),
            "{refused}"
        );
    }
}

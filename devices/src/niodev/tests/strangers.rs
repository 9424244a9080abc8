//! Strangers, whatever they send, do not disturb the job.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

use super::super::address::{Card, explain, host};
use super::super::frame::{BODY_MAX, HEADER, Header};
use super::super::half_open;
use super::super::half_open_table::STRANGERS;
use super::super::handshake::{Handshake, HandshakeAction, Identity, Verdict};
use super::{LIVENESS, Rank, intrude, key, send, until};
use crate::device::{Address, Body, Device, Inlet, PeerId, PostError};
use crate::sys::socket::unacknowledged;

/// Checks that two ranks can still communicate.
fn goes_on(a: &mut Rank) {
    let mut b = Rank::new(1, 8);
    let mut link = a.link(&b);
    send(&mut *link, &mut [a, &mut b], &[7; 8], b"still here");
    until(&mut [a, &mut b], |r| r[1].got.frames.len() == 1);
    let mut back = b.link(a);
    send(&mut *back, &mut [a, &mut b], &[7; 8], b"me too");
    until(&mut [a, &mut b], |r| r[0].got.frames.len() == 1);
    assert_eq!(a.got.lost, []);
}

/// Returns whether the rank closes the connection; polls it meanwhile.
fn turned_away(rank: &mut Rank, stream: &mut TcpStream) -> bool {
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
fn noise_is_turned_away() {
    let mut rank = Rank::new(0, 8);
    let noises: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: you\r\n\r\n",
        &[0xFF; 4096],
        &[0; 56],
        b"MPJ>\x02 a version to come",
        &Header { kind: super::super::frame::Kind::Data, head: 8, body: 1 << 63 }.to_bytes(),
    ];
    for (i, noise) in noises.into_iter().enumerate() {
        let mut stream = TcpStream::connect(rank.address()).unwrap();
        stream.write_all(noise).unwrap();
        assert!(turned_away(&mut rank, &mut stream), "noise {i}");
    }
    assert_eq!(rank.strangers(), 5);
    goes_on(&mut rank);
}

#[test]
fn a_wrong_key_is_turned_away() {
    let mut rank = Rank::new(0, 8);
    assert!(intrude(&mut rank, 1, 9).is_none());
    until(&mut [&mut rank], |r| r[0].strangers() == 1);
    goes_on(&mut rank);
}

#[test]
fn a_second_of_the_same_rank_is_turned_away() {
    let mut rank = Rank::new(0, 8);
    let first = intrude(&mut rank, 5, 1);
    assert!(first.is_some() && intrude(&mut rank, 5, 1).is_none());
    goes_on(&mut rank);
}

#[test]
fn half_a_hello_is_turned_away_in_time() {
    let mut rank = Rank::new(0, 8);
    let mut half = TcpStream::connect(rank.address()).unwrap();
    half.write_all(b"MPJ>\x01\0\0\0half").unwrap();
    let mut silent = TcpStream::connect(rank.address()).unwrap();
    goes_on(&mut rank);
    assert!(turned_away(&mut rank, &mut half) && turned_away(&mut rank, &mut silent));
    assert_eq!(rank.strangers(), 2);
}

#[test]
fn a_crowd_does_not_keep_peers_out() {
    let mut rank = Rank::new(0, 8);
    let crowd: Vec<_> = (0..200).map(|_| TcpStream::connect(rank.address()).unwrap()).collect();
    goes_on(&mut rank);
    drop(crowd);
}

#[test]
fn a_rank_of_another_byte_order_is_refused_before_the_connection() {
    let rank = Rank::new(0, 8);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (here, there) = if cfg!(target_endian = "big") { ("big", "little") } else { ("little", "big") };
    let card = Address(format!("{at} 262144 {there}-endian").into_bytes());
    // The device is chosen, so that its error is reported.
    assert!(rank.device.affinity(&card).is_some());
    let refused = rank.device.connect(PeerId(3), &card).unwrap_err().to_string();
    assert!(refused.contains("rank 3 has another byte order"), "{refused}");
    assert!(refused.contains(&format!("it is {there}-endian and this rank is {here}-endian")), "{refused}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody has connected");
    let own = Address(format!("{at} 262144 {here}-endian").into_bytes());
    assert!(rank.device.connect(PeerId(3), &own).is_ok());
    for invalid in ["", " middle-endian", " big-endian 1"] {
        let card = Address(format!("{at} 262144{invalid}").into_bytes());
        assert!(rank.device.affinity(&card).is_none(), "{invalid:?}");
    }
}

#[test]
fn a_pass_that_moves_nothing_has_seen_all_that_came() {
    // More peers than are read without a preceding poll.
    let mut rank = Rank::new(0, 8);
    let mut peers: Vec<_> = (3..6).map(|peer| intrude(&mut rank, peer, 1).unwrap()).collect();
    let mut crowd: Vec<_> = (0..STRANGERS).map(|_| TcpStream::connect(rank.address()).unwrap()).collect();
    until(&mut [&mut rank], |r| r[0].inlet.lobby.half_open.is_crowded());
    for stranger in &mut crowd {
        stranger.write_all(b"M").unwrap();
        arrived(stranger);
    }
    peers[2].write_all(&Header::data(8, 0).to_bytes()).unwrap();
    peers[2].write_all(&[7; 8]).unwrap();
    arrived(&peers[2]);
    while rank.inlet.progress(&mut rank.got) > 0 {}
    assert_eq!(rank.got.frames, [(5, vec![7; 8], vec![])]);
}

/// Waits until the other end has received the written bytes.
fn arrived(stream: &TcpStream) {
    let limit = Instant::now() + LIVENESS;
    while unacknowledged(stream) > 0 {
        assert!(Instant::now() < limit, "nothing acknowledges it");
        std::thread::yield_now();
    }
}

#[test]
fn a_peer_that_sends_nonsense_is_lost_and_nobody_else() {
    let mut long = Header::data(8, 0).to_bytes();
    long[15] = 0x80;
    for nonsense in [long, [0xFF; HEADER], Header::data(60, 0).to_bytes()] {
        let mut rank = Rank::new(0, 8);
        let mut stream = intrude(&mut rank, 5, 1).unwrap();
        stream.write_all(&nonsense).unwrap();
        until(&mut [&mut rank], |r| !r[0].got.lost.is_empty());
        assert!(rank.got.lost[0].0 == 5 && rank.got.lost[0].1.contains("malformed"), "{:?}", rank.got.lost);
        rank.got.lost.clear();
        goes_on(&mut rank);
    }
}

#[test]
fn who_knows_the_job_keeps_its_place_in_a_crowd() {
    let mut rank = Rank::new(0, 8);
    rank.inlet.lobby.half_open.room = 2;
    let (mut slow, mut talk) = hello(&rank, 5);
    rank.poll();
    let mut crowd = Vec::new();
    for _ in 0..50 {
        crowd.push(TcpStream::connect(rank.address()).unwrap());
        rank.poll();
    }
    assert_eq!(rank.strangers(), 48, "the newest stay");
    // The handshake continues where it was.
    let count = slow.read(talk.room()).unwrap();
    let Ok(HandshakeAction::Send(proof)) = talk.received(count) else { panic!("no challenge") };
    slow.write_all(&proof).unwrap();
    until(&mut [&mut rank], |r| r[0].inlet.established() == 1);
}

#[test]
fn a_rank_has_one_place() {
    let mut rank = Rank::new(0, 8);
    let hellos: Vec<_> = (0..20).map(|_| hello(&rank, 5)).collect();
    until(&mut [&mut rank], |r| r[0].strangers() == 19);
    drop(hellos);
    goes_on(&mut rank);
}

/// Connects without a device and sends only a hello, as rank `rank`.
fn hello(to: &Rank, rank: u32) -> (TcpStream, Handshake) {
    let id = Identity { key: key(1), rank, size: 8 };
    let (talk, hello) =
        Handshake::connect(Arc::new(id), to.device.shared.id.rank, half_open::nonce().unwrap());
    let mut stream = TcpStream::connect(to.address()).unwrap();
    stream.write_all(&hello).unwrap();
    (stream, talk)
}

#[test]
fn all_reach_all_through_a_flood_of_strangers() {
    const RANKS: u32 = 32;
    let files = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
    let mut ranks: Vec<Rank> = (0..RANKS).map(|rank| Rank::new(rank, RANKS)).collect();
    let cards: Vec<_> = ranks.iter().map(|rank| (rank.device.address(), rank.address())).collect();
    let mut links = Vec::new();
    for rank in &mut ranks {
        rank.inlet.lobby.half_open.room = 1;
        let me = rank.device.shared.id.rank;
        for (to, (card, _)) in cards.iter().enumerate().filter(|(to, _)| *to != me as usize) {
            links.push((me, Some((to, rank.device.connect(PeerId(to as u32), card).unwrap()))));
        }
    }
    // Some send nothing, some send arbitrary bytes; they stay until they are rejected.
    let (mut crowd, mut flooding) = (std::collections::VecDeque::new(), 0);
    let limit = Instant::now() + LIVENESS;
    while ranks.iter().any(|rank| rank.got.frames.len() + 1 < RANKS as usize) {
        assert!(Instant::now() < limit, "stuck: {} frames", links.iter().flat_map(|l| &l.1).count());
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
        for (from, link) in &mut links {
            if let Some((_, to)) = link
                && to.post(&[1; 8], Body::Bytes(&from.to_le_bytes())) == Ok(())
            {
                *link = None;
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

/// Makes rank 0 connect to an address where an impostor answers every attempt.
fn answered_by(answer: impl Fn(TcpStream)) {
    let mut rank = Rank::new(0, 8);
    let impostor = TcpListener::bind("127.0.0.1:0").unwrap();
    impostor.set_nonblocking(true).unwrap();
    let at = Card::new(impostor.local_addr().unwrap(), BODY_MAX).to_address();
    let mut link = rank.device.connect(PeerId(3), &at).unwrap();
    let mut attempts = 0;
    until(&mut [&mut rank], |_| {
        if let Ok((stream, _)) = impostor.accept() {
            answer(stream);
            attempts += 1;
        }
        attempts == 12
    });
    assert_eq!(rank.got.lost, []);
    assert_eq!(link.post(&[0; 8], Body::Empty), Err(PostError::Again));
    // A closed port is proof.
    drop(impostor);
    until(&mut [&mut rank], |r| !r[0].got.lost.is_empty());
    assert!(rank.got.lost[0].0 == 3 && rank.got.lost[0].1.contains("refused"), "{:?}", rank.got.lost);
    assert_eq!(link.post(&[0; 8], Body::Empty), Err(PostError::Again), "what was never sent is not sent");
}

#[test]
fn who_turns_attempts_away_makes_nobody_dead() {
    answered_by(drop);
}

#[test]
fn who_says_full_without_a_proof_makes_nobody_dead() {
    answered_by(|mut stream| stream.write_all(&[Verdict::Full.to_byte()]).unwrap());
}

#[test]
fn who_speaks_otherwise_makes_nobody_dead() {
    answered_by(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap());
}

#[test]
fn who_was_forgotten_is_tried_no_more() {
    let mut rank = Rank::new(0, 8);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Card::new(silent.local_addr().unwrap(), BODY_MAX).to_address();
    let mut link = rank.device.connect(PeerId(3), &at).unwrap();
    rank.poll();
    assert!(rank.inlet.lobby.is_busy());
    link.peer_gone();
    rank.poll();
    assert!(!rank.inlet.lobby.is_busy());
    drop(silent);
    rank.poll();
    assert_eq!((link.post(&[0; 8], Body::Empty), &rank.got.lost[..]), (Err(PostError::Again), &[][..]));
}

#[test]
fn a_peer_that_is_not_there_is_lost() {
    let mut rank = Rank::new(0, 8);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _link = rank.device.connect(PeerId(3), &Card::new(nobody, BODY_MAX).to_address()).unwrap();
    until(&mut [&mut rank], |r| !r[0].got.lost.is_empty());
    assert!(rank.got.lost[0].0 == 3 && rank.got.lost[0].1.contains("refused"), "{:?}", rank.got.lost);
    rank.got.lost.clear();
    goes_on(&mut rank);
}

#[test]
fn addresses_and_errors_make_sense() {
    let rank = Rank::new(0, 8);
    assert!(rank.device.affinity(&rank.device.address()).is_some());
    let short = [&b"1.2.3.4:5"[..], b"1.2.3.4:5 ", b"1.2.3.4:5 0", b"1.2.3.4:5 1023", b"1.2.3.4:5 -1"];
    let strange = [&b"nowhere"[..], b"", b"\xFF\xFE", b"1.2.3.4 2000", b"1.2.3.4:99999 2000"];
    for nonsense in short.into_iter().chain(strange) {
        let address = Address(nonsense.to_vec());
        assert!(
            rank.device.affinity(&address).is_none() && rank.device.connect(PeerId(1), &address).is_err()
        );
    }
    assert!(explain("cannot connect", Errno::MFILE).contains("ulimit -n"));
    assert!(explain("cannot connect", Errno::NETUNREACH).contains("ip route"));
}

#[test]
fn only_addresses_of_this_host_can_be_listened_on() {
    assert!(host(None).is_ok() && host(Some("127.0.0.1")).is_ok());
    let unusable: [(&str, &str); 6] = [
        ("", "no address, such as"),
        ("localhost", "no address, such as"),
        ("0.0.0.0", "no one host"),
        ("::", "no one host"),
        ("224.0.0.1", "no one host"),
        // Reserved since the beginning: no host has it.
        ("240.0.0.77", "no address of this host"),
    ];
    for (named, why) in unusable {
        let refused = host(Some(named)).unwrap_err();
        assert!(
            refused.starts_with(&format!("MPJ_NIO_LISTEN_ADDRESS={named} ")) && refused.contains(why),
            "{refused}"
        );
    }
}

//! Whoever knocks, the job goes on.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use rustix::io::Errno;

use super::super::connect::explain;
use super::super::frame::{HEADER, Header};
use super::super::handshake::FULL;
use super::{LIVENESS, Rank, intrude, send, until};
use crate::config::Config;
use crate::device::{Address, Device, PeerId};
use crate::{Doorbell, Driver, NioDriver, Site};

/// Two ranks can still talk.
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

/// Whether the rank closes the connection, polled.
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
fn a_peer_that_is_not_there_is_lost() {
    let mut rank = Rank::new(0, 8);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _link = rank.device.connect(PeerId(3), &Address(nobody.to_string().into_bytes())).unwrap();
    until(&mut [&mut rank], |r| !r[0].got.lost.is_empty());
    assert!(rank.got.lost[0].0 == 3 && rank.got.lost[0].1.contains("refused"), "{:?}", rank.got.lost);
    goes_on_without(&mut rank);
}

fn goes_on_without(rank: &mut Rank) {
    rank.got.lost.clear();
    goes_on(rank);
}

#[test]
fn a_peer_without_descriptors_is_lost_with_advice() {
    let mut rank = Rank::new(0, 8);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let _link = rank.device.connect(PeerId(3), &Address(at.to_string().into_bytes())).unwrap();
    until(&mut [&mut rank], |r| {
        if let Ok((mut stream, _)) = listener.accept() {
            stream.write_all(&[FULL]).unwrap();
        }
        !r[0].got.lost.is_empty()
    });
    assert!(rank.got.lost[0].0 == 3 && rank.got.lost[0].1.contains("ulimit -n"), "{:?}", rank.got.lost);
}

#[test]
fn addresses_and_errors_make_sense() {
    let rank = Rank::new(0, 8);
    assert!(rank.device.affinity(&rank.device.address()).is_some());
    for nonsense in [&b"nowhere"[..], b"", b"\xFF\xFE", b"1.2.3.4", b"1.2.3.4:99999"] {
        let address = Address(nonsense.to_vec());
        assert!(
            rank.device.affinity(&address).is_none() && rank.device.connect(PeerId(1), &address).is_err()
        );
    }
    assert!(explain("cannot connect", Errno::MFILE).contains("ulimit -n"));
    let keyless = Site::new(0, 1, std::sync::Arc::new(Doorbell::new().unwrap()));
    let refused = NioDriver.open(&keyless, &Config::default()).unwrap_err();
    assert!(refused.to_string().contains("key"), "{refused}");
}

//! Tests of connections whose connecting rank awaits the verdict, or has closed them before it received the verdict.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::super::address::NioCard;
use super::super::frame::BODY_MAX;
use super::super::handshake::HandshakeAction;
use super::addresses::connect_at;
use super::strangers::hello;
use super::{LIVENESS, Rank, intrude, send, until};
use crate::device::{Body, Device, Endpoint, PeerId, PostError};

/// Connects `a` to `b`, whose card names two addresses, until `a` awaits the verdict. `b` does not poll after it has
/// received the hello.
fn connect_until_verdict(a: &mut Rank, b: &mut Rank) -> Box<dyn Endpoint> {
    let to_b = connect_at(a, b, &[b.address(); 2]);
    until(&mut [a, b], |r| r[1].inlet.conn_manager.half_open.has_ranks());
    until(&mut [a], |r| awaits_verdict(r[0]));
    to_b
}

fn awaits_verdict(rank: &Rank) -> bool {
    rank.inlet.conn_manager.half_open.any(|half| half.handshake.awaits_verdict())
}

/// Performs the work that is due in an hour, after all limits of an attempt.
fn pass_an_hour(rank: &mut Rank) {
    rank.inlet.conn_manager.tick(Instant::now() + Duration::from_secs(3600));
}

#[test]
fn attempt_that_awaits_the_verdict_is_not_late() {
    let (mut a, mut b) = (Rank::new(0, 2), Rank::new(1, 2));
    let mut to_b = connect_until_verdict(&mut a, &mut b);
    pass_an_hour(&mut a);
    assert!(awaits_verdict(&a));
    until(&mut [&mut b], |r| r[0].inlet.established() == 1);
    send(&mut *to_b, &mut [&mut a, &mut b], &[1; 8], b"hello");
    until(&mut [&mut a, &mut b], |r| !r[1].got.frames.is_empty());
    assert!(a.got.lost.is_empty() && b.got.lost.is_empty());
    assert_eq!(b.rejected(), 0);
}

#[test]
fn simultaneous_attempts_that_await_the_verdict_are_not_late() {
    let (mut a, mut b) = (Rank::new(0, 2), Rank::new(1, 2));
    let mut to_a = connect_at(&b, &a, &[a.address(); 2]);
    a.poll();
    let mut to_b = connect_at(&a, &b, &[b.address(); 2]);
    b.poll();
    a.poll();
    // Each has received a challenge. The lower rank has also sent a verdict, which the higher rank has not read.
    assert!(awaits_verdict(&a) && awaits_verdict(&b));
    pass_an_hour(&mut a);
    pass_an_hour(&mut b);
    assert!(awaits_verdict(&a) && awaits_verdict(&b));
    send(&mut *to_b, &mut [&mut a, &mut b], &[1; 8], b"a to b");
    send(&mut *to_a, &mut [&mut a, &mut b], &[2; 8], b"b to a");
    until(&mut [&mut a, &mut b], |r| r.iter().all(|rank| rank.got.frames.len() == 1));
    assert!(a.got.lost.is_empty() && b.got.lost.is_empty(), "{:?} {:?}", a.got.lost, b.got.lost);
    assert_eq!((a.inlet.established(), b.inlet.established()), (1, 1));
}

#[test]
fn attempt_that_awaits_the_verdict_ends_with_its_peer() {
    let (mut a, mut b) = (Rank::new(0, 2), Rank::new(1, 2));
    let mut to_b = connect_until_verdict(&mut a, &mut b);
    to_b.peer_gone();
    until(&mut [&mut a], |r| !r[0].inlet.conn_manager.is_busy());
    assert_eq!((to_b.post(&[0; 8], Body::Empty), &a.got.lost[..]), (Err(PostError::Again), &[][..]));
}

/// Another instance of rank 1 listens at the first address, and exits before it has sent its verdict.
#[test]
fn attempt_whose_connection_ends_before_the_verdict_gives_way_to_the_next_address() {
    let (mut a, mut exiting, mut b) = (Rank::new(0, 2), Rank::new(1, 2), Rank::new(1, 2));
    let mut to_b = connect_at(&a, &b, &[exiting.address(), b.address()]);
    until(&mut [&mut a, &mut exiting], |r| r[1].inlet.conn_manager.half_open.has_ranks());
    until(&mut [&mut a], |r| awaits_verdict(r[0]));
    drop(exiting);
    send(&mut *to_b, &mut [&mut a, &mut b], &[1; 8], b"hello");
    until(&mut [&mut a, &mut b], |r| !r[1].got.frames.is_empty());
    assert_eq!(a.got.lost, []);
}

/// Connects to `to` as rank `rank`, without a device, up to the proof.
fn prove(to: &mut Rank, rank: u32) -> TcpStream {
    let (mut stream, mut handshake) = hello(to, rank);
    until(&mut [to], |r| r[0].inlet.conn_manager.half_open.any(|half| half.claimed_rank() == Some(rank)));
    stream.set_read_timeout(Some(LIVENESS)).unwrap();
    loop {
        let count = stream.read(handshake.room()).unwrap();
        if let HandshakeAction::Send(proof) = handshake.received(count).unwrap() {
            stream.write_all(&proof).unwrap();
            return stream;
        }
    }
}

#[test]
fn connection_that_is_closed_before_the_verdict_is_not_established() {
    let (mut rank, silent) = (Rank::new(0, 8), TcpListener::bind("127.0.0.1:0").unwrap());
    let card = NioCard::new(vec![silent.local_addr().unwrap()], BODY_MAX).to_address();
    let _to_5 = rank.device.connect(PeerId(5), &card).unwrap();
    drop(prove(&mut rank, 5));
    until(&mut [&mut rank], |r| r[0].rejected() == 1);
    assert_eq!((rank.inlet.established(), &rank.got.lost[..]), (0, &[][..]));
    assert!(rank.inlet.conn_manager.is_busy(), "the rank's own attempt continues");
    assert!(intrude(&mut rank, 5, 1).is_some(), "rank 5 connects again");
}

/// A rank that exits in an orderly way before it has received the verdict sends no goodbye.
#[test]
fn connection_that_is_closed_after_the_verdict_is_not_a_death() {
    let mut rank = Rank::new(0, 8);
    let stream = prove(&mut rank, 5);
    until(&mut [&mut rank], |r| r[0].inlet.established() == 1);
    drop(stream);
    until(&mut [&mut rank], |r| r[0].inlet.established() == 0);
    for _ in 0..200 {
        rank.poll();
    }
    assert_eq!(rank.got.lost, []);
}

#[test]
fn rank_that_connects_again_after_the_verdict_is_lost() {
    let mut rank = Rank::new(0, 8);
    drop(intrude(&mut rank, 5, 1).unwrap());
    until(&mut [&mut rank], |r| r[0].inlet.established() == 0);
    assert_eq!(rank.got.lost, []);
    assert!(intrude(&mut rank, 5, 1).is_none());
    until(&mut [&mut rank], |r| !r[0].got.lost.is_empty());
    assert_eq!((rank.got.lost.len(), rank.got.lost[0].0), (1, 5));
}

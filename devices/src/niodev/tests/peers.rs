//! Tests of connections between ranks of one job: frames, goodbyes, and lost peers.

use std::io::Write;
use std::mem::MaybeUninit;

use super::super::frame::{NioFrameKind, NioHeader};
use super::super::recv_buffer::RECV_BUFFER;
use super::{Rank, intrude, pattern, send, until};
use crate::device::{Body, Endpoint, HEAD_MAX, Inlet, PackSource, PackedBody, PeerId, PostError};

/// Connects two ranks; both have an endpoint.
pub(super) fn pair() -> (Rank, Rank, Box<dyn Endpoint>, Box<dyn Endpoint>) {
    let (mut a, mut b) = (Rank::new(0, 2), Rank::new(1, 2));
    let (mut to_b, mut to_a) = (a.endpoint(&b), b.endpoint(&a));
    send(&mut *to_b, &mut [&mut a, &mut b], &[1; 8], b"a to b");
    send(&mut *to_a, &mut [&mut a, &mut b], &[2; 8], b"b to a");
    until(&mut [&mut a, &mut b], |r| r.iter().all(|r| r.got.frames.len() == 1));
    assert_eq!(a.got.frames.remove(0), (1, vec![2; 8], b"b to a".to_vec()));
    assert_eq!(b.got.frames.remove(0), (0, vec![1; 8], b"a to b".to_vec()));
    (a, b, to_b, to_a)
}

#[test]
fn simultaneous_connects_lose_no_peer() {
    for _ in 0..50 {
        let (a, b, ..) = pair();
        assert!(a.got.lost.is_empty() && b.got.lost.is_empty());
        assert_eq!(a.device.shared.connections.lock().unwrap().len(), 1);
    }
}

#[test]
fn frames_of_every_size_arrive_in_order() {
    let (mut a, mut b, mut to_b, _to_a) = pair();
    let sizes =
        [0, 1, 47, 4095, 4096, 4097, 8191, 8192, 8193, 32 << 10, 65_536, 65_537, 256 << 10, 3, 0, 1 << 20, 9];
    for (i, size) in sizes.into_iter().enumerate() {
        send(&mut *to_b, &mut [&mut a, &mut b], &[i as u8; HEAD_MAX], &pattern(i, size));
    }
    until(&mut [&mut a, &mut b], |r| {
        let _ = to_b.flush();
        r[1].got.frames.len() == sizes.len()
    });
    for (i, size) in sizes.into_iter().enumerate() {
        let (from, head, body) = &b.got.frames[i];
        assert!(
            (*from, head) == (0, &vec![i as u8; HEAD_MAX]) && *body == pattern(i, size),
            "frame {i} of {size} bytes"
        );
    }
}

// SAFETY: `write_copy_of_slice` initialises all of `room`, or panics.
#[expect(unsafe_code, reason = "see above")]
unsafe impl PackSource for Vec<u8> {
    fn pack(&self, position: usize, room: &mut [MaybeUninit<u8>]) {
        room.write_copy_of_slice(&self[position..][..room.len()]);
    }
}

#[test]
fn packed_bodies_arrive() {
    let (mut a, mut b, mut to_b, _to_a) = pair();
    for size in [1, 4096, 4097, 200_000] {
        let bytes = pattern(size, size);
        let fill = PackedBody::new(&bytes, 0, size);
        to_b.post(&[3; 8], Body::Packed(fill)).unwrap();
        until(&mut [&mut a, &mut b], |r| {
            let _ = to_b.flush();
            r[1].got.frames.len() == 1
        });
        assert!(b.got.frames.remove(0).2 == bytes);
    }
}

#[test]
fn posts_to_a_full_socket_are_bounded() {
    let (mut a, mut b, mut to_b, mut to_a) = pair();
    let long = pattern(5, 256 << 10);
    for (endpoint, body) in [(&mut to_b, &long[..]), (&mut to_a, &long[..40])] {
        let mut posted = 0;
        // Stop at the first `Again`: the kernel moves bytes meanwhile, so a later post might succeed.
        while let outcome = endpoint.post(&[posted as u8; 8], Body::Bytes(body))
            && outcome != Err(PostError::Again)
        {
            assert_eq!(outcome, Ok(()));
            posted += 1;
            assert!(posted * body.len() < 64 << 20, "posting is not bounded");
        }
        assert!(endpoint.has_unflushed());
        let to = if body.len() == 40 { 0 } else { 1 };
        until(&mut [&mut a, &mut b], |r| {
            let _ = endpoint.flush();
            r[to].got.frames.len() == posted
        });
        assert!(!endpoint.has_unflushed());
        let got = std::mem::take(if to == 0 { &mut a.got.frames } else { &mut b.got.frames });
        assert!(got.iter().enumerate().all(|(i, f)| f.1 == [i as u8; 8] && f.2 == body));
    }
}

#[test]
fn long_bodies_travel_in_both_directions_at_once() {
    let (mut a, mut b, mut to_b, mut to_a) = pair();
    let body = pattern(6, 256 << 10);
    let (mut left_a, mut left_b) = (64, 64);
    until(&mut [&mut a, &mut b], |r| {
        for (endpoint, left) in [(&mut to_b, &mut left_a), (&mut to_a, &mut left_b)] {
            if *left > 0 && endpoint.post(&[*left; 8], Body::Bytes(&body)) == Ok(()) {
                *left -= 1;
            }
            let _ = endpoint.flush();
        }
        r.iter().all(|r| r.got.frames.len() == 64)
    });
    assert!(a.got.frames.iter().chain(&b.got.frames).all(|f| f.2 == body));
}

#[test]
fn frames_are_parsed_from_single_bytes() {
    let mut rank = Rank::new(0, 8);
    let mut stream = intrude(&mut rank, 5, 1).unwrap();
    let mut wire = Vec::new();
    let sizes = [0, 1, 300, 8300, 2];
    for (i, size) in sizes.into_iter().enumerate() {
        wire.extend_from_slice(&NioHeader::data(8 + i, size).to_bytes());
        wire.extend_from_slice(&vec![i as u8; 8 + i]);
        wire.extend_from_slice(&pattern(i, size));
    }
    for byte in wire {
        stream.write_all(&[byte]).unwrap();
        rank.poll();
    }
    until(&mut [&mut rank], |r| r[0].got.frames.len() == sizes.len());
    for (i, size) in sizes.into_iter().enumerate() {
        assert_eq!(rank.got.frames[i], (5, vec![i as u8; 8 + i], pattern(i, size)));
    }
}

#[test]
fn peer_that_says_goodbye_is_not_lost() {
    let (mut a, b, to_b, to_a) = pair();
    drop((to_b, to_a, b));
    until(&mut [&mut a], |r| r[0].inlet.established() == 0);
    assert_eq!(a.got.lost, []);
}

#[test]
fn frames_sent_before_a_goodbye_arrive() {
    let (mut a, mut b, mut to_b, mut to_a) = pair();
    // Unread bytes at the closing rank must not destroy the frames that it has sent.
    send(&mut *to_b, &mut [&mut a], &[1; 8], &pattern(1, 5000));
    for i in 0..100u32 {
        send(&mut *to_a, &mut [&mut b], &i.to_le_bytes().repeat(2), &pattern(1, 100));
    }
    until(&mut [&mut b], |_| to_a.is_drained());
    drop((to_a, b));
    until(&mut [&mut a], |r| r[0].inlet.established() == 0);
    assert_eq!((a.got.frames.len(), a.got.lost.len()), (100, 0));
    assert_eq!(to_b.post(&[0; 8], Body::Empty), Err(PostError::Again), "an exited peer receives nothing");
}

#[test]
fn close_without_goodbye_loses_the_peer() {
    // If the peer has sent no byte (`cut` is 0), it is lost only after `UNCONFIRMED_TIMEOUT`: it might have left before
    // it received the verdict of the handshake, and then it could not send a goodbye.
    for cut in [0, 1, 15, 16, 20, 30, 20_000] {
        let mut rank = Rank::new(0, 8);
        let mut stream = intrude(&mut rank, 5, 1).unwrap();
        let mut wire = NioHeader::data(8, 30_000).to_bytes().to_vec();
        wire.extend_from_slice(&[1; 30_008]);
        stream.write_all(&wire[..cut]).unwrap();
        drop(stream);
        until(&mut [&mut rank], |r| !r[0].got.lost.is_empty());
        assert_eq!(
            (rank.got.lost.len(), rank.got.lost[0].0, rank.got.frames.len()),
            (1, 5, 0),
            "{cut} bytes"
        );
    }
}

#[test]
fn frame_after_goodbye_loses_the_peer() {
    let mut rank = Rank::new(0, 8);
    let mut stream = intrude(&mut rank, 5, 1).unwrap();
    stream.write_all(&NioHeader::bare(NioFrameKind::Goodbye).to_bytes()).unwrap();
    stream.write_all(&NioHeader::data(8, 0).to_bytes()).unwrap();
    until(&mut [&mut rank], |r| !r[0].got.lost.is_empty());
    assert!(rank.got.lost[0].1.contains("goodbye"), "{:?}", rank.got.lost);
}

#[test]
fn connections_hold_memory_only_for_partial_frames() {
    let mut rank = Rank::new(0, 8);
    let mut streams: Vec<_> = (1..8).map(|peer| intrude(&mut rank, peer, 1).unwrap()).collect();
    assert_eq!(rank.inlet.partial_capacity(), 0, "of {} connections", rank.inlet.established());
    let wire = |peer: usize| {
        let mut wire = NioHeader::data(8, 1000 * peer).to_bytes().to_vec();
        wire.extend_from_slice(&[peer as u8; 8]);
        wire.extend_from_slice(&pattern(peer, 1000 * peer));
        wire
    };
    for round in 0..3 {
        for cut in [0, 3, 20, 900] {
            for (stream, peer) in streams.iter_mut().zip(1..) {
                stream.write_all(&wire(peer)[..cut]).unwrap();
            }
            // Wait until the capacity suffices for all partial frames. It must be less than one receive buffer.
            until(&mut [&mut rank], |r| r[0].inlet.partial_capacity() >= 7 * cut);
            assert!(rank.got.frames.is_empty() && rank.inlet.partial_capacity() < RECV_BUFFER);
            for (stream, peer) in streams.iter_mut().zip(1..) {
                stream.write_all(&wire(peer)[cut..]).unwrap();
            }
            until(&mut [&mut rank], |r| r[0].got.frames.len() == 7);
            assert_eq!(rank.inlet.partial_capacity(), 0, "round {round}, {cut} bytes");
            for (from, head, body) in rank.got.frames.drain(..) {
                assert!(head == [from as u8; 8] && body == pattern(from as usize, 1000 * from as usize));
            }
        }
    }
}

/// The connection of a dead rank may stay open. `abort_body` ends it only if a body was in transfer.
#[test]
fn abort_body_ends_a_partly_received_body() {
    for cut in [false, true] {
        let mut rank = Rank::new(0, 8);
        let mut stream = intrude(&mut rank, 5, 1).unwrap();
        stream.write_all(&NioHeader::data(1, 20_000).to_bytes()).unwrap();
        stream.write_all(&vec![9; if cut { 12_000 } else { 20_001 }]).unwrap();
        until(&mut [&mut rank], |r| r[0].got.partial.is_some() || !r[0].got.frames.is_empty());
        until(&mut [&mut rank], |r| cut || !r[0].got.frames.is_empty());
        for peer in [4, 5, 5] {
            rank.inlet.abort_body(PeerId(peer), &mut rank.got);
            let lost = rank.got.lost.iter().map(|(peer, _)| *peer).collect::<Vec<_>>();
            assert_eq!(lost, if cut && peer == 5 { vec![5] } else { vec![] });
        }
        assert_eq!(rank.inlet.established(), usize::from(!cut));
    }
}

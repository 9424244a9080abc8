//! Tests that frames are coalesced, and that coalesced frames are written in time.

use std::time::Instant;

use super::super::endpoint::COALESCE_MAX;
use super::peers::pair;
use super::{LIVENESS, Rank, pattern, until};
use crate::device::{Body, Endpoint};

/// Posts frame `i`, whose head contains `i`, by `post_more`.
fn post_more(endpoint: &mut dyn Endpoint, i: usize, body: &[u8]) {
    assert_eq!(endpoint.post_more(&(i as u64).to_le_bytes(), Body::Bytes(body)), Ok(()), "frame {i}");
}

/// Polls until `count` frames have arrived, and checks their order and bodies.
fn assert_arrive(rank: &mut Rank, count: usize, body: impl Fn(usize) -> Vec<u8>) {
    until(&mut [&mut *rank], |r| r[0].got.frames.len() >= count);
    assert_eq!(rank.got.frames.len(), count);
    for (i, (_, head, received)) in rank.got.frames.drain(..).enumerate() {
        assert!(head == (i as u64).to_le_bytes() && received == body(i), "frame {i}");
    }
}

/// Posts frames until one is coalesced, and returns their number: 2, or more if this thread is preempted between two
/// frames, which ends the burst.
fn post_until_coalesced(
    rank: &mut Rank,
    endpoint: &mut dyn Endpoint,
    body: impl Fn(usize) -> Vec<u8>,
) -> usize {
    // A poll ends the previous burst.
    rank.poll();
    let limit = Instant::now() + LIVENESS;
    for i in 0.. {
        assert!(Instant::now() < limit, "no frame was coalesced");
        post_more(endpoint, i, &body(i));
        assert!(i > 0 || !endpoint.has_unflushed(), "the first frame leaves at once");
        if endpoint.has_unflushed() {
            return i + 1;
        }
    }
    unreachable!()
}

#[test]
fn first_frame_of_a_burst_leaves_at_once_and_flush_sends_the_others() {
    let (mut a, mut b, mut to_b, _to_a) = pair();
    for _ in 0..10 {
        let count = post_until_coalesced(&mut a, &mut *to_b, |i| pattern(i, 5));
        assert_eq!(to_b.flush(), Ok(false));
        assert!(!to_b.has_unflushed());
        assert_arrive(&mut b, count, |i| pattern(i, 5));
    }
}

#[test]
fn post_sends_the_coalesced_frames_before_it() {
    let (mut a, mut b, mut to_b, _to_a) = pair();
    for len in [0, 8, 4096, 4097, 100_000] {
        let count = post_until_coalesced(&mut a, &mut *to_b, |i| pattern(i, 10));
        let last = pattern(count, len);
        assert_eq!(to_b.post(&(count as u64).to_le_bytes(), Body::Bytes(&last)), Ok(()));
        assert!(!to_b.has_unflushed(), "{len} bytes: the socket has room for all of it");
        assert_arrive(&mut b, count + 1, |i| pattern(i, if i == count { len } else { 10 }));
    }
}

#[test]
fn flusher_sends_coalesced_frames_without_a_poll() {
    let (mut a, mut b, mut to_b, mut to_a) = pair();
    for _ in 0..10 {
        let count = post_until_coalesced(&mut a, &mut *to_b, |i| pattern(i, 8));
        assert_arrive(&mut b, count, |i| pattern(i, 8));
        // Also in the other direction: each device has a flusher.
        let count = post_until_coalesced(&mut b, &mut *to_a, |i| pattern(i, 9));
        assert_arrive(&mut a, count, |i| pattern(i, 9));
    }
}

#[test]
fn flusher_sends_blocked_frames_when_the_peer_has_read() {
    let (_a, mut b, mut to_b, _to_a) = pair();
    let body = |i| pattern(i, 4096);
    let mut posted = 0;
    while to_b.post_more(&(posted as u64).to_le_bytes(), Body::Bytes(&body(posted))) == Ok(()) {
        posted += 1;
        assert!(posted * 4096 < 64 << 20, "posting is not bounded");
    }
    assert_arrive(&mut b, posted, body);
}

#[test]
fn coalesced_bytes_are_bounded() {
    let (a, mut b, mut to_b, _to_a) = pair();
    let connection = a.device.shared.connection(1);
    for i in 0..1000 {
        post_more(&mut *to_b, i, &[1; 1000]);
        assert!(connection.send_buffer().len() < COALESCE_MAX, "frame {i}");
        if i % 100 == 99 {
            b.poll();
        }
    }
    assert_arrive(&mut b, 1000, |_| vec![1; 1000]);
}

#[test]
fn dropped_endpoint_writes_coalesced_frames() {
    let (mut a, mut b, mut to_b, to_a) = pair();
    let count = post_until_coalesced(&mut a, &mut *to_b, |i| pattern(i, 100));
    drop((to_b, to_a, a));
    until(&mut [&mut b], |r| r[0].inlet.established() == 0);
    assert_eq!(b.got.lost, [], "the dropped rank sends a goodbye");
    assert_arrive(&mut b, count, |i| pattern(i, 100));
}

#[test]
fn coalesced_frames_for_an_exited_peer_are_dropped() {
    let (mut a, b, mut to_b, to_a) = pair();
    drop((to_a, b));
    let limit = Instant::now() + LIVENESS;
    for i in 0.. {
        assert!(Instant::now() < limit);
        if to_b.post_more(&[i as u8; 8], Body::Bytes(&[1; 8])) != Ok(()) {
            break;
        }
        if i % 10 == 9 {
            a.poll();
        }
    }
    assert_eq!(to_b.flush(), Ok(false));
    until(&mut [&mut a], |r| r[0].inlet.established() == 0);
    assert_eq!(a.got.lost, []);
}

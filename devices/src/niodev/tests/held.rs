//! Frames are coalesced, and are written in time.

use std::time::Instant;

use super::super::endpoint::COALESCE_MAX;
use super::good::pair;
use super::{LIVENESS, Rank, pattern, until};
use crate::device::{Body, Endpoint};

/// Posts frame `i` of a sequence: its head contains `i`.
fn more(link: &mut dyn Endpoint, i: usize, body: &[u8]) {
    assert_eq!(link.post_more(&(i as u64).to_le_bytes(), Body::Bytes(body)), Ok(()), "frame {i}");
}

/// Polls until there are `count` frames, which are those of a sequence, each with its body.
fn arrive(rank: &mut Rank, count: usize, body: impl Fn(usize) -> Vec<u8>) {
    until(&mut [&mut *rank], |r| r[0].got.frames.len() >= count);
    assert_eq!(rank.got.frames.len(), count);
    for (i, (_, head, came)) in rank.got.frames.drain(..).enumerate() {
        assert!(head == (i as u64).to_le_bytes() && came == body(i), "frame {i}");
    }
}

/// Posts frames of a sequence until one is delayed, and returns their number: a thread that was preempted for a moment
/// has started a new sequence.
fn until_held(rank: &mut Rank, link: &mut dyn Endpoint, body: impl Fn(usize) -> Vec<u8>) -> usize {
    // A poll ends the previous sequence.
    rank.poll();
    let limit = Instant::now() + LIVENESS;
    for i in 0.. {
        assert!(Instant::now() < limit, "nothing is held back");
        more(link, i, &body(i));
        assert!(i > 0 || !link.has_unflushed(), "the first leaves at once");
        if link.has_unflushed() {
            return i + 1;
        }
    }
    unreachable!()
}

#[test]
fn the_first_of_a_row_leaves_at_once_and_the_others_wait_for_a_flush() {
    let (mut a, mut b, mut to_b, _to_a) = pair();
    for _ in 0..10 {
        let count = until_held(&mut a, &mut *to_b, |i| pattern(i, 5));
        assert_eq!(to_b.flush(), Ok(false));
        assert!(!to_b.has_unflushed());
        arrive(&mut b, count, |i| pattern(i, 5));
    }
}

#[test]
fn a_frame_that_leaves_takes_along_what_was_held() {
    let (mut a, mut b, mut to_b, _to_a) = pair();
    for len in [0, 8, 4096, 4097, 100_000] {
        let count = until_held(&mut a, &mut *to_b, |i| pattern(i, 10));
        let last = pattern(count, len);
        assert_eq!(to_b.post(&(count as u64).to_le_bytes(), Body::Bytes(&last)), Ok(()));
        assert!(!to_b.has_unflushed(), "{len} bytes: there is room for all of it");
        arrive(&mut b, count + 1, |i| pattern(i, if i == count { len } else { 10 }));
    }
}

/// A rank that starts some sends and then computes without another call does not delay them.
#[test]
fn what_is_held_leaves_though_nobody_looks() {
    let (mut a, mut b, mut to_b, mut to_a) = pair();
    for _ in 0..10 {
        let count = until_held(&mut a, &mut *to_b, |i| pattern(i, 8));
        arrive(&mut b, count, |i| pattern(i, 8));
        // The other direction, too: each device has a flusher.
        let count = until_held(&mut b, &mut *to_a, |i| pattern(i, 9));
        arrive(&mut a, count, |i| pattern(i, 9));
    }
}

/// A socket that had no space is written to when it has, even if its rank does not poll.
#[test]
fn what_a_full_socket_did_not_take_leaves_when_the_peer_has_read() {
    let (_a, mut b, mut to_b, _to_a) = pair();
    let body = |i| pattern(i, 4096);
    let mut posted = 0;
    while to_b.post_more(&(posted as u64).to_le_bytes(), Body::Bytes(&body(posted))) == Ok(()) {
        posted += 1;
        assert!(posted * 4096 < 64 << 20, "there is no bound");
    }
    arrive(&mut b, posted, body);
}

#[test]
fn what_is_held_is_bounded() {
    let (a, mut b, mut to_b, _to_a) = pair();
    let pipe = a.device.shared.pipe(1);
    for i in 0..1000 {
        more(&mut *to_b, i, &[1; 1000]);
        assert!(pipe.out().len() < COALESCE_MAX, "frame {i}");
        if i % 100 == 99 {
            b.poll();
        }
    }
    arrive(&mut b, 1000, |_| vec![1; 1000]);
}

#[test]
fn a_link_that_is_dropped_writes_out_what_it_held() {
    let (mut a, mut b, mut to_b, to_a) = pair();
    let count = until_held(&mut a, &mut *to_b, |i| pattern(i, 100));
    drop((to_b, to_a, a));
    until(&mut [&mut b], |r| r[0].inlet.established() == 0);
    assert_eq!(b.got.lost, [], "it said goodbye");
    arrive(&mut b, count, |i| pattern(i, 100));
}

/// Frames that are delayed for a peer that exits are dropped, and the flusher no longer watches the connection.
#[test]
fn what_is_held_for_one_who_leaves_is_nobodys() {
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

//! Models of a ring and its fragments: two or three threads, with at most `LOOM_MAX_PREEMPTIONS` preemptions.
//!
//! loom tracks accesses to the bytes of a ring's cells, but not to fragments, whose memory is raw. So models with
//! fragments access one loom `UnsafeCell` for each fragment.

use loom::sync::Arc as Shared;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::{cell::UnsafeCell, thread};
use std::sync::Arc;

use super::fragments::{FragmentGrant, PeerSlot};
use super::{Consumer, ExitCheck, FragmentMemory, FragmentPool, Producer, Ring};
use crate::biased::Bias;
use crate::fence::heavy_fence;
use crate::sync::{Condvar, Mutex, lock};

fn pair(cells: u32) -> (Producer, Consumer) {
    let ring = Arc::new(Ring::new(cells));
    let memory = Arc::new(FragmentMemory::new(1, 64).unwrap());
    (Producer::new(Arc::clone(&ring)), Consumer::new(ring, memory))
}

fn send_inline(producer: &mut Producer, frame: u8) {
    producer.send_inline(&[frame; 8], 8, |room| {
        room.write_copy_of_slice(&[frame; 8]);
    });
}

/// A doorbell that remembers that it was rung.
struct WakeFlag(Mutex<bool>, Condvar);

impl WakeFlag {
    fn new() -> Shared<Self> {
        Shared::new(WakeFlag(Mutex::new(false), Condvar::new()))
    }

    fn wake(&self) {
        *lock(&self.0) = true;
        self.1.notify_all();
    }

    /// Sleeps until the flag is set. loom reports a sleep that never ends.
    fn sleep(&self) {
        let mut rung = lock(&self.0);
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// Frames go around the ring more than once: no cell is read before it was written, or written before it was read, and
/// a sender that found the ring full is woken.
#[test]
fn ring_wraps_around_without_races() {
    loom::model(|| {
        const CELLS: u32 = 4;
        const FRAMES: u8 = 6;
        let (mut producer, mut consumer) = pair(CELLS);
        let flag = WakeFlag::new();
        let sender = {
            let flag = Shared::clone(&flag);
            thread::spawn(move || {
                for frame in 1..=FRAMES {
                    while !producer.has_room().unwrap() {
                        heavy_fence();
                        if producer.has_room().unwrap() {
                            break;
                        }
                        flag.sleep();
                    }
                    send_inline(&mut producer, frame);
                }
            })
        };
        let mut next = 1;
        while next <= FRAMES {
            let moved = consumer.receive(&mut |head: &[u8], body: &[u8]| {
                assert_eq!((head, body), (&[next; 8][..], &[next; 8][..]))
            });
            if consumer.sender_waits() {
                flag.wake();
            }
            if moved.unwrap() { next += 1 } else { thread::yield_now() }
        }
        sender.join().unwrap();
    });
}

/// A rank that sends, with its fragments and a loom cell for each.
struct SendingRank {
    pool: FragmentPool,
    watched: Vec<UnsafeCell<u32>>,
}

impl SendingRank {
    fn new(fragments: u32) -> Shared<Self> {
        let memory = Arc::new(FragmentMemory::new(fragments, 64).unwrap());
        let watched = (0..fragments).map(|_| UnsafeCell::new(0)).collect();
        Shared::new(SendingRank { pool: FragmentPool::new(memory, &Bias::new()), watched })
    }

    /// Makes the two sides of a ring to a peer.
    fn peer(&self) -> (Producer, PeerSlot, Consumer) {
        let ring = Arc::new(Ring::new(4));
        let slot = self.pool.open(Arc::clone(&ring), ExitCheck::never());
        let consumer = Consumer::new(Arc::clone(&ring), Arc::clone(self.pool.memory()));
        (Producer::new(ring), slot, consumer)
    }

    fn send(&self, producer: &mut Producer, to: PeerSlot, frame: u32) -> FragmentGrant {
        let grant = self
            .pool
            .alloc_filled(to, 1, |room| {
                room[0].write(frame as u8);
            })
            .unwrap();
        if let FragmentGrant::Fragment(index) = grant {
            // SAFETY: this is what the models check; loom reports a second user.
            self.watched[index as usize].with_mut(|cell| unsafe { cell.write(frame) });
            assert!(producer.has_room().unwrap());
            producer.send_fragment(&index.to_ne_bytes(), index, 1);
        }
        grant
    }

    /// Receives a frame, if there is one, and checks that it is `frame`.
    fn receive(&self, consumer: &mut Consumer, frame: u32) -> bool {
        let moved = consumer.receive(&mut |head: &[u8], body: &[u8]| {
            let index = u32::from_ne_bytes(head.try_into().unwrap());
            // The receiver also writes to the fragment, see `claim`.
            // SAFETY: as in `send`.
            let seen = self.watched[index as usize].with_mut(|cell| unsafe { cell.read() });
            assert_eq!((seen, body), (frame, &[frame as u8][..]));
        });
        moved.unwrap()
    }
}

/// One fragment is used twice: it has one owner at a time, and a sender that waits for it is woken.
#[test]
fn a_fragment_has_one_owner() {
    loom::model(|| {
        const FRAMES: u32 = 2;
        let rank = SendingRank::new(1);
        let (mut producer, slot, mut consumer) = rank.peer();
        let flag = WakeFlag::new();
        let sender = {
            let (rank, flag) = (Shared::clone(&rank), Shared::clone(&flag));
            thread::spawn(move || {
                for frame in 1..=FRAMES {
                    let mut is_sent = || match rank.send(&mut producer, slot, frame) {
                        FragmentGrant::Fragment(_) => true,
                        FragmentGrant::Retry => false,
                        FragmentGrant::Exhausted => {
                            panic!("the pool reports no fragment to wait for, but this peer holds one")
                        }
                    };
                    while !is_sent() {
                        heavy_fence();
                        if is_sent() {
                            break;
                        }
                        flag.sleep();
                    }
                }
            })
        };
        for frame in 1..=FRAMES {
            while !rank.receive(&mut consumer, frame) {
                thread::yield_now();
            }
            if consumer.sender_waits() {
                flag.wake();
            }
        }
        sender.join().unwrap();
    });
}

/// A peer reads a fragment and exits, reported dead or not. Another peer gets the fragment only after that read.
fn peer_exits(is_released: bool) {
    loom::model(move || {
        let rank = SendingRank::new(1);
        let (mut producer, slot, mut consumer) = rank.peer();
        let (mut to_other, other, mut at_other) = rank.peer();
        assert!(matches!(rank.send(&mut producer, slot, 1), FragmentGrant::Fragment(_)));
        let leaver = {
            let rank = Shared::clone(&rank);
            thread::spawn(move || {
                rank.receive(&mut consumer, 1);
                drop(consumer);
            })
        };
        if is_released {
            rank.pool.release_peer(slot);
        }
        // Either the peer still holds the fragment, or the fragment has come back.
        let first_try = rank.send(&mut to_other, other, 2);
        assert_ne!(first_try, FragmentGrant::Retry, "the other peer holds no fragment that it could return");
        leaver.join().unwrap();
        if first_try == FragmentGrant::Exhausted {
            assert!(
                matches!(rank.send(&mut to_other, other, 2), FragmentGrant::Fragment(_)),
                "the fragment was not returned"
            );
        }
        assert!(rank.receive(&mut at_other, 2));
    });
}

#[test]
fn fragments_of_a_peer_that_leaves_come_back() {
    peer_exits(false);
}

#[test]
fn fragments_of_a_peer_reported_dead_come_back_when_it_stops_reading() {
    peer_exits(true);
}

/// A rank sends to two peers from two threads: no fragment goes to both.
#[test]
fn two_peers_never_hold_the_same_fragment() {
    loom::model(|| {
        let rank = SendingRank::new(2);
        let held = Shared::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (rank, held) = (Shared::clone(&rank), Shared::clone(&held));
                let (mut producer, slot, consumer) = rank.peer();
                thread::spawn(move || {
                    let FragmentGrant::Fragment(index) = rank.send(&mut producer, slot, 1) else {
                        panic!("no fragment was allocated, but there is one for each peer")
                    };
                    assert_eq!(held.fetch_or(1 << index, Ordering::Relaxed) & 1 << index, 0);
                    consumer
                })
            })
            .collect();
        for consumer in threads.into_iter().map(|thread| thread.join().unwrap()) {
            drop(consumer);
        }
        assert_eq!(held.load(Ordering::Relaxed), 3);
    });
}

//! Models of a ring and of the fragments that go through it: two or three threads, every interleaving.
//!
//! loom tracks accesses to the bytes of a cell. It does not track fragments, whose memory is raw, so each model keeps
//! one watched cell for each fragment.

use loom::sync::Arc as Shared;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::{cell::UnsafeCell, thread};
use std::sync::Arc;

use super::fragments::{FragmentGrant, PeerSlot};
use super::{Consumer, ExitCheck, FragmentMemory, FragmentPool, Producer, Ring};
use crate::biased::Bias;
use crate::fence::heavy_fence;
use crate::sync::{Condvar, Mutex, lock};

fn ends(cells: u32) -> (Producer, Consumer) {
    let ring = Arc::new(Ring::new(cells));
    let memory = Arc::new(FragmentMemory::new(1, 64).unwrap());
    (Producer::new(Arc::clone(&ring)), Consumer::new(ring, memory))
}

fn send(producer: &mut Producer, frame: u8) {
    producer.send_inline(&[frame; 8], 8, |room| {
        room.write_copy_of_slice(&[frame; 8]);
    });
}

/// A doorbell that remembers that it was rung.
struct PeerNotifier(Mutex<bool>, Condvar);

impl PeerNotifier {
    fn new() -> Shared<Self> {
        Shared::new(PeerNotifier(Mutex::new(false), Condvar::new()))
    }

    fn notify_receiver(&self) {
        *lock(&self.0) = true;
        self.1.notify_all();
    }

    /// Sleeps until it is rung. loom reports a sleep that never ends.
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
fn a_ring_goes_round() {
    loom::model(|| {
        const CELLS: u32 = 4;
        const FRAMES: u8 = 6;
        let (mut producer, mut consumer) = ends(CELLS);
        let bell = PeerNotifier::new();
        let sender = {
            let bell = Shared::clone(&bell);
            thread::spawn(move || {
                for frame in 1..=FRAMES {
                    while !producer.has_room().unwrap() {
                        heavy_fence();
                        if producer.has_room().unwrap() {
                            break;
                        }
                        bell.sleep();
                    }
                    send(&mut producer, frame);
                }
            })
        };
        let mut next = 1;
        while next <= FRAMES {
            let moved = consumer.receive(&mut |head: &[u8], body: &[u8]| {
                assert_eq!((head, body), (&[next; 8][..], &[next; 8][..]))
            });
            if consumer.sender_waits() {
                bell.notify_receiver();
            }
            if moved.unwrap() { next += 1 } else { thread::yield_now() }
        }
        sender.join().unwrap();
    });
}

/// A rank with some fragments, and a watched cell for each.
struct Scene {
    area: FragmentPool,
    watched: Vec<UnsafeCell<u32>>,
}

impl Scene {
    fn new(fragments: u32) -> Shared<Self> {
        let memory = Arc::new(FragmentMemory::new(fragments, 64).unwrap());
        let watched = (0..fragments).map(|_| UnsafeCell::new(0)).collect();
        Shared::new(Scene { area: FragmentPool::new(memory, &Bias::new()), watched })
    }

    /// The two ends of a ring to a peer.
    fn peer(&self) -> (Producer, PeerSlot, Consumer) {
        let ring = Arc::new(Ring::new(4));
        let borrower = self.area.open(Arc::clone(&ring), ExitCheck::never());
        let consumer = Consumer::new(Arc::clone(&ring), Arc::clone(self.area.memory()));
        (Producer::new(ring), borrower, consumer)
    }

    /// Sends a frame in a fragment, if one is free.
    fn lend(&self, producer: &mut Producer, to: PeerSlot, frame: u32) -> FragmentGrant {
        let lent = self
            .area
            .alloc_filled(to, 1, |room| {
                room[0].write(frame as u8);
            })
            .unwrap();
        if let FragmentGrant::Fragment(index) = lent {
            // SAFETY: this is what the models check; loom reports a second user.
            self.watched[index as usize].with_mut(|cell| unsafe { cell.write(frame) });
            assert!(producer.has_room().unwrap());
            producer.send_fragment(&index.to_ne_bytes(), index, 1);
        }
        lent
    }

    /// Takes a frame, if there is one, and checks that it is `frame`.
    fn take(&self, consumer: &mut Consumer, frame: u32) -> bool {
        let moved = consumer.receive(&mut |head: &[u8], body: &[u8]| {
            let index = u32::from_ne_bytes(head.try_into().unwrap());
            // SAFETY: as in `lend`.
            let seen = self.watched[index as usize].with(|cell| unsafe { cell.read() });
            assert_eq!((seen, body), (frame, &[frame as u8][..]));
        });
        moved.unwrap()
    }
}

/// One fragment is used again and again: it has one owner at a time, and a sender that waits for it is woken.
#[test]
fn a_fragment_has_one_owner() {
    loom::model(|| {
        const FRAMES: u32 = 2;
        let scene = Scene::new(1);
        let (mut producer, borrower, mut consumer) = scene.peer();
        let bell = PeerNotifier::new();
        let sender = {
            let (scene, bell) = (Shared::clone(&scene), Shared::clone(&bell));
            thread::spawn(move || {
                for frame in 1..=FRAMES {
                    let mut is_lent = || match scene.lend(&mut producer, borrower, frame) {
                        FragmentGrant::Fragment(_) => true,
                        FragmentGrant::Retry => false,
                        FragmentGrant::Exhausted => panic!("it is this peer that holds it"),
                    };
                    while !is_lent() {
                        heavy_fence();
                        if is_lent() {
                            break;
                        }
                        bell.sleep();
                    }
                }
            })
        };
        for frame in 1..=FRAMES {
            while !scene.take(&mut consumer, frame) {
                thread::yield_now();
            }
            if consumer.sender_waits() {
                bell.notify_receiver();
            }
        }
        sender.join().unwrap();
    });
}

/// A peer exits while it reads. A fragment that it holds goes to another peer only after it has stopped reading.
fn a_peer_ends(retire: bool) {
    loom::model(move || {
        let scene = Scene::new(1);
        let (mut producer, borrower, mut consumer) = scene.peer();
        let (mut to_other, other, mut at_other) = scene.peer();
        assert!(matches!(scene.lend(&mut producer, borrower, 1), FragmentGrant::Fragment(_)));
        let leaver = {
            let scene = Shared::clone(&scene);
            thread::spawn(move || {
                scene.take(&mut consumer, 1);
                drop(consumer);
            })
        };
        if retire {
            scene.area.release_peer(borrower);
        }
        // Either the peer still holds the fragment, or the fragment has come back.
        let early = scene.lend(&mut to_other, other, 2);
        assert_ne!(early, FragmentGrant::Retry, "the other holds nothing that it could return");
        leaver.join().unwrap();
        if early == FragmentGrant::Exhausted {
            assert!(
                matches!(scene.lend(&mut to_other, other, 2), FragmentGrant::Fragment(_)),
                "it has come back"
            );
        }
        assert!(scene.take(&mut at_other, 2));
    });
}

#[test]
fn what_a_leaver_holds_comes_back() {
    a_peer_ends(false);
}

#[test]
fn what_one_holds_who_is_called_dead_comes_back_when_it_reads_no_more() {
    a_peer_ends(true);
}

/// A rank sends to two peers from two threads: no fragment goes to both.
#[test]
fn two_peers_never_hold_the_same_fragment() {
    loom::model(|| {
        let scene = Scene::new(2);
        let held = Shared::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (scene, held) = (Shared::clone(&scene), Shared::clone(&held));
                let (mut producer, borrower, consumer) = scene.peer();
                thread::spawn(move || {
                    let FragmentGrant::Fragment(index) = scene.lend(&mut producer, borrower, 1) else {
                        panic!("there is one for each")
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

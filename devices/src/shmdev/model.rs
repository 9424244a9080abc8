//! Models of notification, sleep, card requests and exported blocks, with two or three threads.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::block_state::BlockState;
use super::control_block::{ControlBlock, StoredCard, set_bits};
use crate::fence::{self, LightFence};
use crate::sync::{Condvar, Mutex, lock};

/// A control block, the condition variable that its owner sleeps on, and a word for each sender in place of its ring.
struct Scene {
    control_block: ControlBlock,
    is_woken: Mutex<bool>,
    woken: Condvar,
    rings: Vec<AtomicU32>,
}

impl Scene {
    fn new(ranks: u32) -> Arc<Self> {
        let rings = (0..ranks).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Scene {
            control_block: ControlBlock::for_model(ranks),
            is_woken: Mutex::new(false),
            woken: Condvar::new(),
            rings,
        })
    }

    fn wake(&self) {
        *lock(&self.is_woken) = true;
        self.woken.notify_all();
    }

    fn send(&self, from: u32, message: u32) {
        self.rings[from as usize].store(message, Ordering::Release);
        if self.control_block.notify(from, LightFence::new()) {
            self.wake();
        }
    }

    /// Sleeps unless a last poll finds something. loom reports a sleep that never ends.
    fn sleep(&self, poll: impl FnOnce() -> bool) {
        *lock(&self.is_woken) = false;
        if self.control_block.prepare_sleep() {
            self.wake();
        }
        fence::heavy_fence();
        if poll() {
            return self.control_block.clear_asleep();
        }
        let mut is_woken = lock(&self.is_woken);
        while !*is_woken {
            is_woken = self.woken.wait(is_woken).unwrap();
        }
    }
}

/// The owner of a control block: the last value that it has read of each ring, and whether it polls only rings whose
/// ready bits are set.
struct Owner {
    scene: Arc<Scene>,
    seen: Vec<u32>,
    uses_bitmap: bool,
}

impl Owner {
    fn new(scene: Arc<Scene>) -> Self {
        let seen = vec![0; scene.rings.len()];
        Owner { scene, seen, uses_bitmap: false }
    }

    fn enable_bitmap(&mut self) {
        self.scene.control_block.enable_bitmap();
        fence::heavy_fence();
        self.uses_bitmap = true;
        self.poll(u64::MAX);
    }

    /// Polls the rings with a bit in `rings`; returns whether one had changed.
    fn poll(&mut self, rings: u64) -> bool {
        let mut moved = false;
        let count = self.seen.len();
        for ring in set_bits(rings).map(|ring| ring as usize).take_while(|ring| *ring < count) {
            let found = self.scene.rings[ring].load(Ordering::Acquire);
            moved |= found != self.seen[ring];
            self.seen[ring] = found;
        }
        moved
    }

    fn pass(&mut self) -> bool {
        let rings = if self.uses_bitmap { self.scene.control_block.take_ready(0) } else { u64::MAX };
        self.poll(rings)
    }

    /// Receives until the last messages of all senders add up to `total`.
    fn receive(&mut self, total: u32) {
        while self.seen.iter().sum::<u32>() < total {
            if !self.pass() {
                let scene = Arc::clone(&self.scene);
                scene.sleep(|| self.pass());
            }
        }
    }
}

fn join<T>(threads: Vec<thread::JoinHandle<T>>) {
    threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
}

/// Some ranks send. If `uses_bitmap`, the owner meanwhile enables the ready bits and polls only rings with a bit set.
fn no_message_is_lost(senders: u32, each: u32, uses_bitmap: bool) {
    loom::model(move || {
        let scene = Scene::new(senders);
        let send = |from| {
            let scene = Arc::clone(&scene);
            thread::spawn(move || (1..=each).for_each(|message| scene.send(from, message)))
        };
        let threads = (0..senders).map(send).collect();
        let mut owner = Owner::new(Arc::clone(&scene));
        if uses_bitmap {
            owner.enable_bitmap();
        }
        owner.receive(senders * each);
        join(threads);
    });
}

#[test]
fn sleeping_rank_that_polls_all_rings_is_woken() {
    no_message_is_lost(1, 2, false);
    no_message_is_lost(2, 1, false);
}

#[test]
fn rank_that_switches_to_the_bitmap_misses_nothing() {
    no_message_is_lost(1, 2, true);
    no_message_is_lost(2, 1, true);
}

/// A rank that is woken while it is awake does not sleep; a rank that sleeps wakes up.
#[test]
fn rank_woken_while_awake_does_not_sleep() {
    loom::model(|| {
        let scene = Scene::new(1);
        let waker = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                if scene.control_block.force_wake() {
                    scene.wake();
                }
            })
        };
        scene.sleep(|| false);
        waker.join().unwrap();
    });
}

/// A card is requested while it is published: the waiter finds it, or is notified of it.
#[test]
fn requested_card_is_found() {
    loom::model(|| {
        const WAITER: u32 = 1;
        let (owner, waiter) = (Arc::new(ControlBlock::for_model(2)), Scene::new(2));
        let publisher = {
            let (owner, waiter) = (Arc::clone(&owner), Arc::clone(&waiter));
            thread::spawn(move || {
                for of in owner.put_card(b"card") {
                    assert_eq!(of, WAITER);
                    if waiter.control_block.set_ready(0, LightFence::new()) {
                        waiter.wake();
                    }
                }
            })
        };
        owner.add_card_waiter(WAITER);
        let mut card = owner.card();
        while card.is_none() {
            waiter.sleep(|| waiter.control_block.take_ready(0) != 0);
            card = owner.card();
        }
        assert_eq!(card, Some(StoredCard::Inline(b"card".to_vec())));
        publisher.join().unwrap();
    });
}

struct Block {
    word: loom::sync::atomic::AtomicU64,
    memory: loom::cell::UnsafeCell<u64>,
}

/// A receiver views a block. The owner revokes it meanwhile, and writes to it as soon as it may. loom reports a read
/// that is concurrent with the write.
#[test]
fn block_is_written_only_when_nobody_uses_it() {
    loom::model(|| {
        let block = Arc::new(Block {
            word: loom::sync::atomic::AtomicU64::new(0),
            memory: loom::cell::UnsafeCell::new(1),
        });
        BlockState::new(&block.word, 5).export();
        let theirs = Arc::clone(&block);
        let receiver = thread::spawn(move || {
            let state = BlockState::new(&theirs.word, 5);
            let is_viewed = state.acquire();
            if is_viewed {
                // SAFETY: this is what the model checks.
                #[expect(unsafe_code, reason = "see above")]
                let read = theirs.memory.with(|memory| unsafe { *memory });
                assert_eq!(read, 1);
                state.give_back();
            }
            is_viewed
        });
        let state = BlockState::new(&block.word, 5);
        let write = || {
            // SAFETY: this is what the model checks.
            #[expect(unsafe_code, reason = "see above")]
            block.memory.with_mut(|memory| unsafe { *memory = 2 });
        };
        let is_ours = state.try_revoke();
        let is_viewed = state.is_viewed();
        if is_ours {
            write();
            // The next export uses the same word.
            BlockState::new(&block.word, 6).export();
        }
        assert_eq!(receiver.join().unwrap(), is_viewed, "a view has received the message");
        if !is_ours {
            assert!(state.try_revoke(), "the receiver has given the block back");
            write();
        }
    });
}

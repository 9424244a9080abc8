//! Models of notification, sleep, card requests and exported blocks: every interleaving of two or three threads.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::block_state::{BlockState, BlockUse};
use super::control_block::{ControlBlock, StoredCard, set};
use crate::fence::{self, LightFence};
use crate::sync::{Condvar, Mutex, lock};

/// A control block, the condition variable that its owner sleeps on, and for each sender a word that stands for its
/// ring.
struct Scene {
    control_block: ControlBlock,
    rung: Mutex<bool>,
    news: Condvar,
    rings: Vec<AtomicU32>,
}

impl Scene {
    fn new(ranks: u32) -> Arc<Self> {
        let rings = (0..ranks).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Scene {
            control_block: ControlBlock::alone(ranks),
            rung: Mutex::new(false),
            news: Condvar::new(),
            rings,
        })
    }

    fn wake(&self) {
        *lock(&self.rung) = true;
        self.news.notify_all();
    }

    /// Writes to a ring and notifies the owner.
    fn send(&self, from: u32, message: u32) {
        self.rings[from as usize].store(message, Ordering::Release);
        if self.control_block.notify(from, LightFence::new()) {
            self.wake();
        }
    }

    /// Sleeps unless a last poll finds something. loom reports a sleep that never ends.
    fn sleep(&self, look: impl FnOnce() -> bool) {
        *lock(&self.rung) = false;
        if self.control_block.prepare_sleep() {
            self.wake();
        }
        fence::heavy_fence();
        if look() {
            return self.control_block.clear_asleep();
        }
        let mut rung = lock(&self.rung);
        while !*rung {
            rung = self.news.wait(rung).unwrap();
        }
    }
}

/// The owner of a control block: the last value that it has read of each ring, and whether it polls only rings whose
/// ready bits are set.
struct Owner {
    scene: Arc<Scene>,
    seen: Vec<u32>,
    by_calls: bool,
}

impl Owner {
    fn new(scene: Arc<Scene>) -> Self {
        let seen = vec![0; scene.rings.len()];
        Owner { scene, seen, by_calls: false }
    }

    fn ask_for_calls(&mut self) {
        self.scene.control_block.enable_bitmap();
        fence::heavy_fence();
        self.by_calls = true;
        self.look_at(u64::MAX);
    }

    /// Polls some of the rings; returns whether one had changed.
    fn look_at(&mut self, rings: u64) -> bool {
        let mut moved = false;
        let count = self.seen.len();
        for ring in set(rings).map(|ring| ring as usize).take_while(|ring| *ring < count) {
            let found = self.scene.rings[ring].load(Ordering::Acquire);
            moved |= found != self.seen[ring];
            self.seen[ring] = found;
        }
        moved
    }

    fn pass(&mut self) -> bool {
        let rings = if self.by_calls { self.scene.control_block.take_ready(0) } else { u64::MAX };
        self.look_at(rings)
    }

    /// Receives until the messages add up to `most`.
    fn receive(&mut self, most: u32) {
        while self.seen.iter().sum::<u32>() < most {
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

/// Some ranks send. If `by_calls`, the owner meanwhile enables the ready bits and polls only rings with a bit set.
fn nothing_is_lost(senders: u32, each: u32, by_calls: bool) {
    loom::model(move || {
        let scene = Scene::new(senders);
        let send = |from| {
            let scene = Arc::clone(&scene);
            thread::spawn(move || (1..=each).for_each(|message| scene.send(from, message)))
        };
        let threads = (0..senders).map(send).collect();
        let mut owner = Owner::new(Arc::clone(&scene));
        if by_calls {
            owner.ask_for_calls();
        }
        owner.receive(senders * each);
        join(threads);
    });
}

#[test]
fn a_rank_that_polls_is_woken() {
    nothing_is_lost(1, 2, false);
    nothing_is_lost(2, 1, false);
}

#[test]
fn a_rank_that_stops_polling_misses_nothing() {
    nothing_is_lost(1, 2, true);
    nothing_is_lost(2, 1, true);
}

/// A rank that is woken while it is awake does not sleep; a rank that sleeps wakes up.
#[test]
fn nobody_sleeps_who_was_roused() {
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

/// A card is requested while it is published: the asker finds it, or is notified of it.
#[test]
fn a_card_that_was_asked_for_is_found() {
    loom::model(|| {
        const ASKER: u32 = 1;
        let (owner, asker) = (Arc::new(ControlBlock::alone(2)), Scene::new(2));
        let putter = {
            let (owner, asker) = (Arc::clone(&owner), Arc::clone(&asker));
            thread::spawn(move || {
                for of in owner.put_card(b"card") {
                    assert_eq!(of, ASKER);
                    if asker.control_block.set_ready(0, LightFence::new()) {
                        asker.wake();
                    }
                }
            })
        };
        owner.add_card_waiter(ASKER);
        let mut card = owner.card();
        while card.is_none() {
            asker.sleep(|| asker.control_block.take_ready(0) != 0);
            card = owner.card();
        }
        assert_eq!(card, Some(StoredCard::Inline(b"card".to_vec())));
        putter.join().unwrap();
    });
}

/// A block and its state word.
struct Block {
    word: loom::sync::atomic::AtomicU64,
    memory: loom::cell::UnsafeCell<u64>,
}

/// A receiver copies from a block, more than once, and views it. The owner revokes it meanwhile, and writes to it as
/// soon as it may. loom reports a read of the bytes written then.
#[test]
fn a_block_is_written_when_nobody_has_it() {
    for uses in [[BlockUse::Copy, BlockUse::Copy], [BlockUse::Copy, BlockUse::View]] {
        loom::model(move || {
            let block = Arc::new(Block {
                word: loom::sync::atomic::AtomicU64::new(0),
                memory: loom::cell::UnsafeCell::new(1),
            });
            BlockState::new(&block.word, 5).export();
            let theirs = Arc::clone(&block);
            let receiver = thread::spawn(move || {
                let loan = BlockState::new(&theirs.word, 5);
                let mut has_received = false;
                for to in uses {
                    if loan.acquire(to) {
                        // SAFETY: this is what the model checks.
                        #[expect(unsafe_code, reason = "see above")]
                        let read = theirs.memory.with(|memory| unsafe { *memory });
                        assert_eq!(read, 1);
                        has_received = loan.give_back(to);
                    }
                }
                has_received
            });
            let loan = BlockState::new(&block.word, 5);
            let write = || {
                // SAFETY: this is what the model checks.
                #[expect(unsafe_code, reason = "see above")]
                block.memory.with_mut(|memory| unsafe { *memory = 2 });
            };
            let is_ours = loan.take_back();
            if is_ours {
                write();
                // The next export uses the same word.
                BlockState::new(&block.word, 6).export();
            }
            let is_viewed = loan.is_viewed();
            let has_received = receiver.join().unwrap();
            if !is_ours {
                assert_eq!(
                    has_received, is_viewed,
                    "a copy that was withdrawn is no message, and a view is one"
                );
                assert!(loan.take_back(), "nobody has it any more");
                write();
            }
        });
    }
}

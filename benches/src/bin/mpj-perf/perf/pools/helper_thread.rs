//! The second thread, for tests with two threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use rtrb::{Consumer, Producer, PushError, RingBuffer};

use super::contender::Contender;
use super::tests::Task;
use crate::perf::affinity;

/// A thread that assists, on its own core. It sleeps while it has no task.
pub(super) struct Second {
    tasks: SyncSender<(usize, Task)>,
    done: Receiver<()>,
}

impl Second {
    /// Starts the thread on the second core, and binds this one to the first. Returns `None` if there is only one
    /// core.
    pub(super) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        field: &'env [Box<dyn Contender + Send>],
    ) -> Option<Second> {
        if !affinity::keep_to(0, 2) {
            return None;
        }
        let (tasks, receive) = sync_channel::<(usize, Task)>(1);
        let (finish, done) = sync_channel(1);
        scope.spawn(move || {
            affinity::keep_to(1, 2);
            for (index, task) in receive {
                field[index].assist(task);
                if finish.send(()).is_err() {
                    break;
                }
            }
        });
        Some(Second { tasks, done })
    }

    /// Runs a task of the contender with this index on both threads.
    pub(super) fn run(&self, index: usize, contender: &dyn Contender, task: Task) -> Option<u64> {
        contender.prepare();
        self.tasks.send((index, task)).ok()?;
        let time = contender.run(task);
        self.done.recv().ok()?;
        time
    }
}

/// A spinning barrier for two threads.
#[derive(Default)]
pub(super) struct Meet(AtomicUsize);

impl Meet {
    pub(super) fn wait(&self) {
        let both = (self.0.fetch_add(1, Ordering::AcqRel) | 1) + 1;
        let mut turn = 0;
        while self.0.load(Ordering::Acquire) < both {
            pause(&mut turn);
        }
    }
}

/// A ring from the first thread to the second, which is renewed for each run.
pub(super) struct Ring<T> {
    sender: Mutex<Option<Sender<T>>>,
    receiver: Mutex<Option<Receiving<T>>>,
}

/// The sending end of the ring. The other end detects when it is dropped.
pub(super) struct Sender<T>(Producer<T>);

/// The receiving end of the ring.
pub(super) struct Receiving<T>(Consumer<T>);

impl<T> Ring<T> {
    /// The capacity of the ring.
    pub(super) const PLACES: usize = 64;

    pub(super) fn renew(&self) {
        let (sender, receiver) = RingBuffer::new(Self::PLACES);
        if let (Ok(mut from), Ok(mut to)) = (self.sender.lock(), self.receiver.lock()) {
            *from = Some(Sender(sender));
            *to = Some(Receiving(receiver));
        }
    }

    pub(super) fn sender(&self) -> Option<Sender<T>> {
        self.sender.lock().ok()?.take()
    }

    pub(super) fn receiver(&self) -> Option<Receiving<T>> {
        self.receiver.lock().ok()?.take()
    }
}

impl<T> Default for Ring<T> {
    fn default() -> Ring<T> {
        Ring { sender: Mutex::new(None), receiver: Mutex::new(None) }
    }
}

impl<T> Sender<T> {
    /// Pushes an item, and waits while the ring is full.
    #[inline(always)]
    pub(super) fn give(&mut self, mut item: T) {
        let mut turn = 0;
        while let Err(PushError::Full(back)) = self.0.push(item) {
            item = back;
            pause(&mut turn);
        }
    }
}

impl<T> Receiving<T> {
    /// Takes items until the other end has been dropped.
    #[inline(always)]
    pub(super) fn take_all(&mut self, mut use_up: impl FnMut(T)) {
        let mut turn = 0;
        loop {
            match self.0.pop() {
                Ok(item) => {
                    turn = 0;
                    use_up(item);
                }
                // Check again: an item may have been pushed before the other end was dropped.
                Err(_) if self.0.is_abandoned() && self.0.is_empty() => return,
                Err(_) => pause(&mut turn),
            }
        }
    }
}

/// Waits for a moment; after many calls, yields.
#[inline(always)]
fn pause(turn: &mut u32) {
    *turn += 1;
    if *turn < 10_000 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

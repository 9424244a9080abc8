//! The second thread, for what is measured with two.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use rtrb::{Consumer, Producer, PushError, RingBuffer};

use super::contender::Contender;
use super::tests::Task;
use crate::perf::cores;

/// A thread that assists, on a core of its own; it sleeps when it has nothing to do.
pub(super) struct Second {
    tasks: SyncSender<(usize, Task)>,
    done: Receiver<()>,
}

impl Second {
    /// Starts the thread on the second core, and keeps this one on the first; `None` if there is only one.
    pub(super) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        field: &'env [Box<dyn Contender + Send>],
    ) -> Option<Second> {
        if !cores::keep_to(0, 2) {
            return None;
        }
        let (tasks, receive) = sync_channel::<(usize, Task)>(1);
        let (finish, done) = sync_channel(1);
        scope.spawn(move || {
            cores::keep_to(1, 2);
            for (index, task) in receive {
                field[index].assist(task);
                if finish.send(()).is_err() {
                    break;
                }
            }
        });
        Some(Second { tasks, done })
    }

    /// Runs a task of the contender with that index on both threads.
    pub(super) fn run(&self, index: usize, contender: &dyn Contender, task: Task) -> Option<u64> {
        contender.prepare();
        self.tasks.send((index, task)).ok()?;
        let time = contender.run(task);
        self.done.recv().ok()?;
        time
    }
}

/// Where two threads wait for each other, awake.
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

/// A ring from the first thread to the second, a new one for each run.
pub(super) struct Ring<T> {
    sender: Mutex<Option<Sender<T>>>,
    receiver: Mutex<Option<Receiving<T>>>,
}

/// The end that blocks are pushed into; the other notices when it goes.
pub(super) struct Sender<T>(Producer<T>);

/// The end that blocks come out of.
pub(super) struct Receiving<T>(Consumer<T>);

impl<T> Ring<T> {
    /// What is in the ring at most.
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
    /// Pushes, when there is room.
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
    /// Takes until the other end has gone.
    #[inline(always)]
    pub(super) fn take_all(&mut self, mut use_up: impl FnMut(T)) {
        let mut turn = 0;
        loop {
            match self.0.pop() {
                Ok(item) => {
                    turn = 0;
                    use_up(item);
                }
                // Looked at again: something may have been pushed before the other end went.
                Err(_) if self.0.is_abandoned() && self.0.is_empty() => return,
                Err(_) => pause(&mut turn),
            }
        }
    }
}

/// Waits a moment; after many, lets others run.
#[inline(always)]
fn pause(turn: &mut u32) {
    *turn += 1;
    if *turn < 10_000 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

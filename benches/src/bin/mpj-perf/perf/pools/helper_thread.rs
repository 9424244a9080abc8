//! The second thread, for patterns with two threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use rtrb::{Consumer, Producer, PushError, RingBuffer};

use super::contender::Contender;
use super::patterns::PatternRun;
use crate::perf::affinity;

/// A second thread, on its own core if it can be bound. It sleeps while it has no run to assist.
pub(super) struct HelperThread {
    runs: SyncSender<(usize, PatternRun)>,
    done: Receiver<()>,
}

impl HelperThread {
    /// Binds the calling thread to a core, starts the second thread, and tries to bind that to another core. Returns
    /// `None` if fewer than two cores are available, or if the calling thread cannot be bound.
    pub(super) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        contenders: &'env [Box<dyn Contender + Send>],
    ) -> Option<HelperThread> {
        if !affinity::bind_to_core(0, 2) {
            return None;
        }
        let (runs, receive) = sync_channel::<(usize, PatternRun)>(1);
        let (finish, done) = sync_channel(1);
        scope.spawn(move || {
            affinity::bind_to_core(1, 2);
            for (index, run) in receive {
                contenders[index].assist(run);
                if finish.send(()).is_err() {
                    break;
                }
            }
        });
        Some(HelperThread { runs, done })
    }

    pub(super) fn run(&self, index: usize, contender: &dyn Contender, run: PatternRun) -> Option<u64> {
        contender.prepare();
        self.runs.send((index, run)).ok()?;
        let time = contender.run(run);
        self.done.recv().ok()?;
        time
    }
}

#[derive(Default)]
pub(super) struct PairBarrier(AtomicUsize);

impl PairBarrier {
    pub(super) fn wait(&self) {
        let target = (self.0.fetch_add(1, Ordering::AcqRel) | 1) + 1;
        let mut spins = 0;
        while self.0.load(Ordering::Acquire) < target {
            pause(&mut spins);
        }
    }
}

/// A ring from the first thread to the second, renewed for each run.
pub(super) struct Ring<T> {
    sender: Mutex<Option<RingSender<T>>>,
    receiver: Mutex<Option<RingReceiver<T>>>,
}

/// The sending end. Dropping it ends the receiver's loop.
pub(super) struct RingSender<T>(Producer<T>);

pub(super) struct RingReceiver<T>(Consumer<T>);

impl<T> Ring<T> {
    pub(super) const CAPACITY: usize = 64;

    pub(super) fn renew(&self) {
        let (sender, receiver) = RingBuffer::new(Self::CAPACITY);
        if let (Ok(mut from), Ok(mut to)) = (self.sender.lock(), self.receiver.lock()) {
            *from = Some(RingSender(sender));
            *to = Some(RingReceiver(receiver));
        }
    }

    pub(super) fn sender(&self) -> Option<RingSender<T>> {
        self.sender.lock().ok()?.take()
    }

    pub(super) fn receiver(&self) -> Option<RingReceiver<T>> {
        self.receiver.lock().ok()?.take()
    }
}

impl<T> Default for Ring<T> {
    fn default() -> Ring<T> {
        Ring { sender: Mutex::new(None), receiver: Mutex::new(None) }
    }
}

impl<T> RingSender<T> {
    /// Pushes an item, and waits while the ring is full.
    #[inline(always)]
    pub(super) fn push(&mut self, mut item: T) {
        let mut spins = 0;
        while let Err(PushError::Full(back)) = self.0.push(item) {
            item = back;
            pause(&mut spins);
        }
    }
}

impl<T> RingReceiver<T> {
    #[inline(always)]
    pub(super) fn consume_until_dropped(&mut self, mut consume: impl FnMut(T)) {
        let mut spins = 0;
        loop {
            match self.0.pop() {
                Ok(item) => {
                    spins = 0;
                    consume(item);
                }
                // Check again, because an item may have been pushed before the sender was dropped.
                Err(_) if self.0.is_abandoned() && self.0.is_empty() => return,
                Err(_) => pause(&mut spins),
            }
        }
    }
}

#[inline(always)]
fn pause(spins: &mut u32) {
    *spins += 1;
    if *spins < 10_000 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

//! A rank of this process that has opened the device: what it sleeps on, and whose cards it has asked for.

use std::fmt;

use super::desk::{Card, ControlBlock};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::sys::{BorrowedFd, Wakeup};

/// What is called with a rank's card when it is there, once, on any thread; with `None` if it has to be had elsewhere.
pub(super) type Ask = Box<dyn FnOnce(Option<Vec<u8>>) + Send>;

/// A rank's side of its desk.
pub(super) struct LocalRank {
    pub(super) index: u32,
    pub(super) desk: ControlBlock,
    wakeup: Wakeup,
    /// Whether the rank has said that it sleeps, and not yet that it is awake.
    is_armed: AtomicBool,
    asks: Mutex<Vec<(u32, ControlBlock, Ask)>>,
    /// How many `wants_help` there are.
    open: AtomicUsize,
}

impl fmt::Debug for LocalRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Occupant({})", self.index)
    }
}

impl LocalRank {
    /// Takes the desk of a rank.
    ///
    /// # Errors
    /// What is wrong with the rank: it has nothing to sleep on, or has taken the desk before.
    pub(super) fn take(index: u32, desk: ControlBlock) -> Result<Self, String> {
        let wakeup = Wakeup::new().map_err(|e| format!("has no socket to be woken by: {e}"))?;
        if !desk.claim(wakeup.name()) {
            return Err("has opened shmdev already".into());
        }
        let (is_armed, open) = (AtomicBool::new(false), AtomicUsize::new(0));
        Ok(LocalRank { index, desk, wakeup, is_armed, asks: Mutex::default(), open })
    }

    /// Says that the rank is about to sleep; returns what becomes readable when it is woken.
    pub(super) fn arm(&self) -> BorrowedFd<'_> {
        self.wakeup.clear();
        if self.desk.prepare_sleep() {
            self.wakeup.send(self.wakeup.name());
        }
        self.is_armed.store(true, Ordering::Relaxed);
        self.wakeup.descriptor()
    }

    /// Says that the rank is awake, if it has said that it sleeps.
    #[inline]
    pub(super) fn disarm(&self) {
        if self.is_armed.load(Ordering::Relaxed) {
            self.get_up();
        }
    }

    #[cold]
    fn get_up(&self) {
        self.is_armed.store(false, Ordering::Relaxed);
        self.desk.clear_asleep();
        // What lies in the socket counts against whoever has sent it, and could then wake nobody else.
        self.wakeup.clear();
    }

    /// Wakes the rank that sits at a desk.
    #[cold]
    pub(super) fn wake(&self, desk: &ControlBlock) {
        let name = desk.bell();
        if name != 0 {
            self.wakeup.send(name);
        }
    }

    /// Asks for the card of the rank `of`, which sits at `desk`.
    pub(super) fn ask(&self, of: u32, desk: ControlBlock, then: Ask) {
        let mut asks = lock(&self.asks);
        // Before it is asked for, so that whoever is called for it knows that there is somebody to answer.
        self.open.store(asks.len() + 1, Ordering::Relaxed);
        desk.ask_for_card(self.index);
        asks.push((of, desk, then));
        drop(asks);
        self.look_for_card(of);
    }

    /// Returns whether cards were asked for that have not come.
    #[inline]
    pub(super) fn has_asked(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    /// Writes the name of what the rank sleeps on once more: somebody may have written over it.
    pub(super) fn restore(&self) {
        self.desk.set_bell(self.wakeup.name());
    }

    /// Answers what was asked of ranks whose cards are there: somebody may have written over the bits that say so.
    pub(super) fn look_for_cards(&self) {
        if self.has_asked() {
            let asked: Vec<u32> = lock(&self.asks).iter().map(|(of, ..)| *of).collect();
            asked.into_iter().for_each(|of| self.look_for_card(of));
        }
    }

    /// Answers what was asked of a rank, if its card is there.
    pub(super) fn look_for_card(&self, of: u32) {
        let mut answers = Vec::new();
        let mut asks = lock(&self.asks);
        while let Some(at) = asks.iter().position(|(other, desk, _)| *other == of && desk.card().is_some()) {
            let (_, desk, then) = asks.swap_remove(at);
            answers.push((desk.card(), then));
        }
        self.open.store(asks.len(), Ordering::Relaxed);
        drop(asks);
        for (card, then) in answers {
            then(match card {
                Some(Card::Inline(bytes)) => Some(bytes),
                Some(Card::TooLong) | None => None,
            });
        }
    }
}

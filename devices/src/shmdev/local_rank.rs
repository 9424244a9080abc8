//! A rank of this process that has opened the device: the socket that it sleeps on, and the cards that it has
//! requested.

use std::fmt;

use super::control_block::{ControlBlock, StoredCard};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::sys::{BorrowedFd, Wakeup};

/// Called once with a rank's card when it is published, on any thread, or with `None` if the card must be obtained in
/// another way.
pub(super) type CardCallback = Box<dyn FnOnce(Option<Vec<u8>>) + Send>;

/// A local rank's side of its control block.
pub(super) struct LocalRank {
    pub(super) index: u32,
    pub(super) desk: ControlBlock,
    wakeup: Wakeup,
    /// Whether the rank has announced that it sleeps, and not since then that it is awake.
    is_armed: AtomicBool,
    card_requests: Mutex<Vec<(u32, ControlBlock, CardCallback)>>,
    /// The length of `asks`.
    open: AtomicUsize,
}

impl fmt::Debug for LocalRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Occupant({})", self.index)
    }
}

impl LocalRank {
    /// Claims the control block of a rank.
    ///
    /// # Errors
    /// The rank cannot have a socket to sleep on, or it has opened the device before.
    pub(super) fn open(index: u32, desk: ControlBlock) -> Result<Self, String> {
        let wakeup = Wakeup::new().map_err(|e| format!("has no socket to be woken by: {e}"))?;
        if !desk.claim(wakeup.name()) {
            return Err("has opened shmdev already".into());
        }
        let (is_armed, open) = (AtomicBool::new(false), AtomicUsize::new(0));
        Ok(LocalRank { index, desk, wakeup, is_armed, card_requests: Mutex::default(), open })
    }

    /// Announces that the rank is about to sleep; returns the descriptor that becomes readable when it is woken.
    pub(super) fn arm(&self) -> BorrowedFd<'_> {
        self.wakeup.clear();
        if self.desk.prepare_sleep() {
            self.wakeup.send(self.wakeup.name());
        }
        self.is_armed.store(true, Ordering::Relaxed);
        self.wakeup.descriptor()
    }

    /// Announces that the rank is awake, if it has announced that it sleeps.
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
        // A datagram in this socket counts against the quota of its sender, which could then not wake other ranks.
        self.wakeup.clear();
    }

    /// Wakes the rank of a control block.
    #[cold]
    pub(super) fn wake(&self, desk: &ControlBlock) {
        let name = desk.wakeup_name();
        if name != 0 {
            self.wakeup.send(name);
        }
    }

    /// Requests the card of the rank `of`, whose control block is `desk`.
    pub(super) fn request_card(&self, of: u32, desk: ControlBlock, then: CardCallback) {
        let mut asks = lock(&self.card_requests);
        // Count the request before it is made, so that a thread that is notified of the card sees that one was
        // requested.
        self.open.store(asks.len() + 1, Ordering::Relaxed);
        desk.add_card_waiter(self.index);
        asks.push((of, desk, then));
        drop(asks);
        self.answer_requests(of);
    }

    /// Returns whether requested cards are missing.
    #[inline]
    pub(super) fn has_requests(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    /// Writes the name of the rank's socket to the control block again, in case it was overwritten.
    pub(super) fn restore(&self) {
        self.desk.set_bell(self.wakeup.name());
    }

    /// Completes the requests for cards that are published, in case the bits that announce them were overwritten.
    pub(super) fn look_for_cards(&self) {
        if self.has_requests() {
            let asked: Vec<u32> = lock(&self.card_requests).iter().map(|(of, ..)| *of).collect();
            asked.into_iter().for_each(|of| self.answer_requests(of));
        }
    }

    /// Completes the requests for the card of one rank, if it is published.
    pub(super) fn answer_requests(&self, of: u32) {
        let mut answers = Vec::new();
        let mut asks = lock(&self.card_requests);
        while let Some(at) = asks.iter().position(|(other, desk, _)| *other == of && desk.card().is_some()) {
            let (_, desk, then) = asks.swap_remove(at);
            answers.push((desk.card(), then));
        }
        self.open.store(asks.len(), Ordering::Relaxed);
        drop(asks);
        for (card, then) in answers {
            then(match card {
                Some(StoredCard::Inline(bytes)) => Some(bytes),
                Some(StoredCard::TooLong) | None => None,
            });
        }
    }
}

//! A rank of this process that has opened the device: the socket that it sleeps on, and the cards that it has
//! requested.

use std::fmt;

use super::control_block::{ControlBlock, StoredCard};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::sys::{BorrowedFd, Wakeup};

/// A callback of [`Segment::request_card`](super::Segment::request_card).
pub(super) type CardCallback = Box<dyn FnOnce(Option<Vec<u8>>) + Send>;

pub(super) struct LocalRank {
    pub(super) index: u32,
    pub(super) control_block: ControlBlock,
    wakeup: Wakeup,
    /// Whether the rank has announced a sleep by `arm`, and has not called `disarm` since.
    is_armed: AtomicBool,
    card_requests: Mutex<Vec<(u32, ControlBlock, CardCallback)>>,
    /// The length of `card_requests`.
    open_requests: AtomicUsize,
}

impl fmt::Debug for LocalRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalRank({})", self.index)
    }
}

impl LocalRank {
    /// # Errors
    /// The wake-up socket cannot be created, or the rank has opened the device before.
    pub(super) fn open(index: u32, control_block: ControlBlock) -> Result<Self, String> {
        let wakeup = Wakeup::new().map_err(|e| format!("cannot create its wake-up socket: {e}"))?;
        if !control_block.claim(wakeup.name()) {
            return Err("has opened shmdev already".into());
        }
        let (is_armed, open_requests) = (AtomicBool::new(false), AtomicUsize::new(0));
        Ok(LocalRank {
            index,
            control_block,
            wakeup,
            is_armed,
            card_requests: Mutex::default(),
            open_requests,
        })
    }

    /// Announces that the rank is about to sleep; returns the descriptor that becomes readable when it is woken.
    pub(super) fn arm(&self) -> BorrowedFd<'_> {
        self.wakeup.clear();
        if self.control_block.prepare_sleep() {
            self.wakeup.send(self.wakeup.name());
        }
        self.is_armed.store(true, Ordering::Relaxed);
        self.wakeup.descriptor()
    }

    /// Cancels the announcement of [`arm`](Self::arm), if there is one.
    #[inline]
    pub(super) fn disarm(&self) {
        if self.is_armed.load(Ordering::Relaxed) {
            self.clear_asleep();
        }
    }

    #[cold]
    fn clear_asleep(&self) {
        self.is_armed.store(false, Ordering::Relaxed);
        self.control_block.clear_asleep();
        // An unread datagram takes room in the send buffer of its sender, which needs that room to wake other ranks.
        self.wakeup.clear();
    }

    #[cold]
    pub(super) fn wake(&self, control_block: &ControlBlock) {
        let name = control_block.wakeup_name();
        if name != 0 {
            self.wakeup.send(name);
        }
    }

    pub(super) fn request_card(&self, of: u32, control_block: ControlBlock, then: CardCallback) {
        let mut requests = lock(&self.card_requests);
        // Count the request before it is made: a thread that is notified of the card must see that there is a request.
        self.open_requests.store(requests.len() + 1, Ordering::Relaxed);
        control_block.add_card_waiter(self.index);
        requests.push((of, control_block, then));
        drop(requests);
        self.answer_requests(of);
    }

    #[inline]
    pub(super) fn has_requests(&self) -> bool {
        self.open_requests.load(Ordering::Relaxed) != 0
    }

    /// Restores the name of the rank's socket, in case it was overwritten.
    pub(super) fn republish(&self) {
        self.control_block.set_wakeup_name(self.wakeup.name());
    }

    /// Completes the requests for cards that are published, in case the bits that announce them were overwritten.
    pub(super) fn answer_all_requests(&self) {
        if self.has_requests() {
            let requested: Vec<u32> = lock(&self.card_requests).iter().map(|(of, ..)| *of).collect();
            requested.into_iter().for_each(|of| self.answer_requests(of));
        }
    }

    /// Completes the requests for the card of one rank, if it is published.
    pub(super) fn answer_requests(&self, of: u32) {
        let mut answers = Vec::new();
        let mut requests = lock(&self.card_requests);
        while let Some(at) = requests
            .iter()
            .position(|(other, control_block, _)| *other == of && control_block.card().is_some())
        {
            let (_, control_block, then) = requests.swap_remove(at);
            answers.push((control_block.card(), then));
        }
        self.open_requests.store(requests.len(), Ordering::Relaxed);
        drop(requests);
        for (card, then) in answers {
            then(match card {
                Some(StoredCard::Inline(bytes)) => Some(bytes),
                Some(StoredCard::TooLong) | None => None,
            });
        }
    }
}

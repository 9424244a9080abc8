//! The copies that senders owe: each has taken pieces of one ([`together`](super::together)) and has yet to copy them. The memory
//! stays lent until then, and the end of the copy comes through the inlet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::single::{Exposure, PeerMemory};
use super::together::Copies;
use crate::device::{OpStatus, OpToken, PostError, Sink};
use crate::sync::{Mutex, lock, pause};
use crate::sys;

/// What is owed to one rank.
#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    book: Mutex<Book>,
    /// How many copies stand in it.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Book {
    owed: Vec<PendingWrite>,
    /// The peers that have left or died, by index: what they owe is given up as soon as they do not write.
    gone: Vec<u32>,
    /// Whether that holds for all peers: this rank takes no more.
    is_closed: bool,
}

/// A copy of which the sender has taken pieces that it has yet to copy.
#[derive(Debug)]
pub(super) struct PendingWrite {
    pub(super) copies: Arc<Copies>,
    /// How many pieces the sender has taken.
    pub(super) pieces: u32,
    pub(super) op: OpToken,
    /// What has become of the receiver's.
    pub(super) outcome: Result<(), String>,
    /// Whether it is to be given up, whatever becomes of the sender.
    pub(super) is_void: bool,
    /// Whether it was owed when the debts were last [gone through](PendingWrites::age).
    pub(super) is_old: bool,
    pub(super) window: PeerMemory,
    pub(super) showing: Exposure,
    /// The sender's process.
    pub(super) process: Option<sys::Process>,
}

impl PendingWrite {
    /// Lets the sender write no more, unless it does so at this moment; whether it does not.
    fn is_given_up(&self) -> bool {
        self.showing.revoke();
        !self.window.is_writing(self.showing.number(), self.process.as_ref())
    }
}

impl PendingWrites {
    /// Leaves a copy to be ended later, if it is owed still.
    #[cold]
    pub(super) fn defer(&self, new: PendingWrite) -> Result<OpStatus, PostError> {
        new.copies.is_owed.store(true, Ordering::Relaxed);
        new.copies.is_refused.fetch_or(new.is_void, Ordering::Relaxed);
        let op = new.op;
        let mut book = lock(&self.book);
        book.owed.push(new);
        self.count.store(book.owed.len(), Ordering::Release);
        // Whoever sleeps was rung before it could see this, or will be.
        fence(Ordering::SeqCst);
        let ended = self.take_ended(&mut book, |it| it == op).pop();
        match ended {
            None => Ok(OpStatus::InProgress),
            Some((_, Ok(()))) => Ok(OpStatus::Done),
            Some((_, Err(_))) => Err(PostError::Unsupported),
        }
    }

    /// Ends the copies that are owed no more; returns how many.
    #[inline]
    pub(super) fn reap(&self, sink: &mut dyn Sink) -> usize {
        match self.count.load(Ordering::Acquire) {
            0 => 0,
            _ => self.settle_some(sink),
        }
    }

    #[cold]
    fn settle_some(&self, sink: &mut dyn Sink) -> usize {
        let ended = self.take_ended(&mut lock(&self.book), |_| true);
        let count = ended.len();
        for (op, outcome) in ended {
            sink.completed(op, outcome);
        }
        count
    }

    /// Takes copies out that are owed no more, of those that are meant.
    fn take_ended(
        &self,
        book: &mut Book,
        is_meant: impl Fn(OpToken) -> bool,
    ) -> Vec<(OpToken, Result<(), String>)> {
        let mut ended = Vec::new();
        let Book { owed, gone: buried, is_closed } = book;
        owed.retain(|it| {
            if !is_meant(it.op) {
                return true;
            }
            let pieces = it.copies.ring.pieces();
            let are_copied = if it.is_void { None } else { pieces.are_copied(it.pieces) };
            let give_up = it.is_void || *is_closed || buried.contains(&it.copies.index);
            let outcome = match are_copied {
                Some(true) => it.outcome.clone(),
                Some(false) => Err("the sender could not write its part".into()),
                None if give_up && it.is_given_up() => Err("the sender has not written its part".into()),
                None => return true,
            };
            ended.push((it.op, outcome));
            it.copies.is_owed.store(false, Ordering::Release);
            false
        });
        self.count.store(owed.len(), Ordering::Release);
        ended
    }

    /// Takes note that a peer has left or died: what it owes is given up.
    pub(super) fn peer_gone(&self, index: u32) {
        let buried = &mut lock(&self.book).gone;
        if !buried.contains(&index) {
            buried.push(index);
        }
    }

    /// Gives up the copies that were owed already at the last call: the words that say what the sender has taken may have been
    /// overwritten. The engine then asks for the message in frames, and no copy from that peer is made together any more.
    pub(super) fn age(&self) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        for owed in &mut lock(&self.book).owed {
            owed.is_void |= owed.is_old;
            owed.copies.is_refused.fetch_or(owed.is_void, Ordering::Relaxed);
            owed.is_old = true;
        }
    }

    /// Has nobody write to this rank's memory any more; waits for who does at this moment.
    pub(super) fn close(&self) {
        lock(&self.book).is_closed = true;
        let mut round = 0;
        while self.count.load(Ordering::Acquire) > 0 {
            self.take_ended(&mut lock(&self.book), |_| true);
            pause(round);
            round = round.saturating_add(1);
        }
    }
}

//! The queue pair of this rank and one peer: this end of it, shared by the link that sends and the inlet that receives.
//!
//! The inlet alone writes the counters `done`, `taken` and `granted`; whoever posts does so under the lock of `sending`.

mod many;
mod reads;

use std::collections::{HashSet, VecDeque};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use many::Many;

use super::card::Card;
use super::frame::{Entry, HEADER, Header, Kind};
use super::slots::Slots;
use super::stock::RecvPool;
use super::ticket::WrId;
use super::verbs::{Piece, Qp};
use super::{QueueSizes, RESERVED};
use crate::device::{HEAD_MAX, OpToken, PeerId, PostError};

/// The longest message that is copied into its work request.
pub(super) const INLINE: usize = 256;

/// Frames of up to so many bytes wait for others where many are before them.
const SHORT: usize = 512;

/// How far a queue pair is. It never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum ConnState {
    /// The peer's numbers are not known: it is asked.
    Connecting = 0,
    /// It is connected at this end, so that it receives; whether it is at the other is not known.
    ReadyToReceive = 1,
    /// It is connected at both ends: it sends.
    Established = 2,
    /// It is broken, or its peer has ended.
    Closed = 3,
}

/// What a peer has said of its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Remote {
    pub(super) qpn: u32,
    pub(super) psn: u32,
}

/// This end of a queue pair.
#[derive(Debug)]
pub(super) struct QpConnection {
    // Destroyed first: then the device uses none of the memory below.
    qp: Qp,
    pub(super) peer: PeerId,
    pub(super) card: Card,
    /// The number of the first packet that is sent.
    pub(super) psn: u32,
    pub(super) remote: OnceLock<Remote>,
    plan: QueueSizes,
    state: AtomicU8,
    /// All work requests up to this number have completed.
    done: AtomicU64,
    /// Receives that the peer's frames have taken and that were posted anew.
    taken: AtomicU32,
    /// As many of these as the peer was told of.
    returned: AtomicU32,
    /// Receives that the peer has posted for us, in all.
    granted: AtomicU32,
    /// Whether there are reads under way.
    reading: AtomicBool,
    /// Whether something of the device's own waits for room.
    waiting: AtomicBool,
    /// Whether frames wait for others.
    staged: AtomicBool,
    sending: Mutex<Sending>,
    // What the peer's messages are received into.
    _stock: Arc<RecvPool>,
}

/// What is posted, and what waits.
#[derive(Debug)]
struct Sending {
    slots: Slots,
    /// By slot, the number of the work request that has used it last.
    used: Vec<u64>,
    next_slot: usize,
    /// The number of the last work request, and of the last whose completion is told.
    posted: u64,
    signalled: u64,
    /// Receives of the peer that were used, in all.
    spent: u32,
    /// Reads under way, the oldest first.
    reads: VecDeque<(u64, OpToken)>,
    /// Frames that wait for others, to go in one message.
    many: Option<Many>,
    /// What the device says by itself, and waits.
    own: VecDeque<(Kind, u64)>,
    /// Keys of this rank's memory that were revoked, and have not been answered.
    revoking: Vec<(u64, OpToken)>,
    /// Keys of the peer's memory that it has revoked.
    revoked: HashSet<u64>,
    /// The answers to that: due when all work requests up to a number have completed.
    answers: Vec<(u64, u64)>,
}

impl QpConnection {
    pub(super) fn new(
        qp: Qp,
        peer: PeerId,
        card: Card,
        psn: u32,
        plan: QueueSizes,
        (slots, stock): (Slots, Arc<RecvPool>),
    ) -> Self {
        let sending = Sending {
            used: vec![0; slots.count()],
            slots,
            next_slot: 0,
            posted: 0,
            signalled: 0,
            spent: 0,
            reads: VecDeque::new(),
            many: None,
            own: VecDeque::new(),
            revoking: Vec::new(),
            revoked: HashSet::new(),
            answers: Vec::new(),
        };
        QpConnection {
            qp,
            peer,
            card,
            psn,
            remote: OnceLock::new(),
            plan,
            state: AtomicU8::new(ConnState::Connecting as u8),
            done: AtomicU64::new(0),
            taken: AtomicU32::new(0),
            returned: AtomicU32::new(0),
            granted: AtomicU32::new(card.window.into()),
            reading: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            staged: AtomicBool::new(false),
            sending: Mutex::new(sending),
            _stock: stock,
        }
    }

    pub(super) fn qp(&self) -> &Qp {
        &self.qp
    }

    #[inline]
    pub(super) fn state(&self) -> ConnState {
        match self.state.load(Ordering::Acquire) {
            0 => ConnState::Connecting,
            1 => ConnState::ReadyToReceive,
            2 => ConnState::Established,
            _ => ConnState::Closed,
        }
    }

    /// Goes on to a state, unless it is there or beyond; returns whether it was not.
    pub(super) fn advance(&self, to: ConnState) -> bool {
        self.state.fetch_max(to as u8, Ordering::AcqRel) < to as u8
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Breaks it; returns the operations whose memory the peer does not reach any more by that, or `None` if it is over.
    /// What was posted is told by its completions.
    pub(super) fn end(&self) -> Option<Vec<OpToken>> {
        let mut sending = self.sending();
        if !self.advance(ConnState::Closed) {
            return None;
        }
        self.qp.break_off();
        sending.own.clear();
        sending.answers.clear();
        sending.many = None;
        self.staged.store(false, Ordering::Relaxed);
        Some(sending.revoking.drain(..).map(|(_, op)| op).collect())
    }

    /// Gives up all reads of a device that will complete none.
    pub(super) fn give_up_reads(&self) -> Vec<OpToken> {
        self.sending().reads.drain(..).map(|(_, op)| op).collect()
    }

    /// Posts a frame of `len` bytes after its head; `write` writes them.
    ///
    /// A short one for which there is no room may wait for others, if its sender has `more`, to go in one message once there
    /// is: so a flood of short frames costs the network few messages. What waits goes by the next frame or by
    /// [`flush`](Self::flush).
    #[inline]
    pub(super) fn post(
        &self,
        head: &[u8],
        len: usize,
        more: bool,
        write: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Result<(), PostError> {
        if self.state() != ConnState::Established {
            return Err(PostError::Again);
        }
        let mut sending = self.sending();
        if !sending.own.is_empty() {
            return Err(PostError::Again);
        }
        let entry = Entry { head: head.len(), body: len };
        let is_free = self.send_many(&mut sending)? && self.has_room(&sending)? && self.has_slot(&sending);
        if is_free {
            return self.message(&mut sending, Kind::Frame, head, len, write);
        }
        let fits = sending.many.is_none_or(|many| many.len + entry.len() <= self.plan.slot);
        if more && fits && entry.len() <= SHORT {
            return self.join(&mut sending, entry, head, write);
        }
        Err(PostError::Again)
    }

    /// Whether there is room for a message that takes a receive of the peer's.
    fn has_room(&self, sending: &Sending) -> Result<bool, PostError> {
        let left = self.granted.load(Ordering::Acquire).wrapping_sub(sending.spent);
        if left > self.card.window.into() {
            return Err(PostError::Broken("it has given back more receives than were used".into()));
        }
        Ok(left > 0 && self.has_request(sending))
    }

    /// Whether there is room for a work request, besides the last one.
    fn has_request(&self, sending: &Sending) -> bool {
        sending.posted - self.done.load(Ordering::Acquire) + 1 < self.plan.sends as u64
    }

    /// Whether the next slot is free.
    fn has_slot(&self, sending: &Sending) -> bool {
        sending.used[sending.next_slot] <= self.done.load(Ordering::Acquire)
    }

    /// Makes the header of a message, and returns how many receives the peer has been told of by it, in all.
    fn header(&self, kind: Kind, head: usize) -> ([u8; HEADER], u32) {
        let taken = self.taken.load(Ordering::Acquire);
        // No more are taken than the peer may use: it is a u16.
        let returned = taken.wrapping_sub(self.returned.load(Ordering::Relaxed)) as u16;
        (Header { kind, head, returned }.to_bytes(), taken)
    }

    /// Posts a message, and has every so many tell its completion.
    ///
    /// # Safety
    /// That of [`Qp::send`].
    unsafe fn launch(&self, sending: &mut Sending, piece: Piece) -> Result<(), PostError> {
        let number = sending.posted + 1;
        let signalled = number - sending.signalled >= self.plan.signal;
        // SAFETY: the caller's promise.
        let sent = unsafe { self.qp.send(WrId::Sent(number).id(), piece, signalled) };
        sent.map_err(|e| PostError::Broken(format!("ibv_post_send: {e}")))?;
        sending.posted = number;
        if signalled {
            sending.signalled = number;
        }
        Ok(())
    }

    /// Takes note of a message that was posted.
    fn charge(&self, sending: &mut Sending, kind: Kind, taken: u32) {
        if kind != Kind::Credit {
            sending.spent = sending.spent.wrapping_add(1);
        }
        self.returned.store(taken, Ordering::Relaxed);
    }

    /// Posts a message of one frame, or of the device's own; there is room.
    #[inline]
    fn message(
        &self,
        sending: &mut Sending,
        kind: Kind,
        head: &[u8],
        len: usize,
        write: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Result<(), PostError> {
        let front = HEADER + head.len();
        let whole = front + len;
        if head.len() > HEAD_MAX || whole > self.plan.slot {
            return Err(PostError::Unsupported);
        }
        let (header, taken) = self.header(kind, head.len());
        let mut inline = [MaybeUninit::uninit(); INLINE];
        let slot = sending.next_slot;
        let is_inline = whole <= self.qp.inline();
        let room = if is_inline {
            &mut inline[..]
        } else {
            // SAFETY: what has used the slot last has completed, as the caller has made sure; the lock is held.
            unsafe { sending.slots.room(slot) }
        };
        room[..HEADER].write_copy_of_slice(&header);
        room[HEADER..front].write_copy_of_slice(head);
        write(&mut room[front..whole]);
        let piece = if is_inline {
            Piece::Inline(inline.as_ptr().cast(), whole as u32)
        } else {
            sending.slots.piece(slot, whole)
        };
        // SAFETY: bytes on the stack are copied by the call. A slot is not used again before its work request has completed,
        // and is given back after the queue pair.
        unsafe { self.launch(sending, piece) }?;
        if !is_inline {
            sending.used[slot] = sending.posted;
            sending.next_slot = (slot + 1) % sending.used.len();
        }
        self.charge(sending, kind, taken);
        Ok(())
    }

    /// Takes note that a work request has completed, and with it all before; puts the reads that have ended into `ended`.
    pub(super) fn completed(&self, number: u64, is_well: bool, ended: &mut Vec<(OpToken, bool)>) {
        self.done.fetch_max(number, Ordering::AcqRel);
        if !self.reading.load(Ordering::Acquire) {
            return;
        }
        let mut sending = self.sending();
        while let Some((read, op)) = sending.reads.front().copied().filter(|(read, _)| *read <= number) {
            ended.push((op, is_well || read < number));
            sending.reads.pop_front();
        }
        let done = self.done.load(Ordering::Acquire);
        let (due, later): (Vec<_>, Vec<_>) = sending.answers.drain(..).partition(|(_, after)| *after <= done);
        sending.answers = later;
        due.into_iter().for_each(|(key, _)| sending.own.push_back((Kind::Quiet, key)));
        if !sending.own.is_empty() {
            self.waiting.store(true, Ordering::Relaxed);
        }
        self.reading.store(!sending.reads.is_empty(), Ordering::Release);
    }

    /// Takes note that the peer has posted receives anew.
    #[inline]
    pub(super) fn grant(&self, count: u16) {
        if count > 0 {
            let granted = self.granted.load(Ordering::Relaxed).wrapping_add(count.into());
            self.granted.store(granted, Ordering::Release);
        }
    }

    /// Takes note that a receive which a frame of the peer's had taken was posted anew; returns whether the peer should be
    /// told of those it has not heard of.
    #[inline]
    pub(super) fn take(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed).wrapping_add(1);
        self.taken.store(taken, Ordering::Release);
        self.owes_credit(taken)
    }

    fn owes_credit(&self, taken: u32) -> bool {
        taken.wrapping_sub(self.returned.load(Ordering::Relaxed)) >= (self.plan.window / 2).into()
    }

    /// Whether something of the device's own waits for room.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Sends what the device says by itself, as far as there is room.
    pub(super) fn send_control(&self) -> Result<(), PostError> {
        if self.state() != ConnState::Established {
            return Ok(());
        }
        self.tend_under(&mut self.sending())
    }

    fn tend_under(&self, sending: &mut Sending) -> Result<(), PostError> {
        while let Some((kind, key)) = sending.own.front().copied() {
            if !self.has_room(sending)? || !self.has_slot(sending) {
                break;
            }
            self.message(sending, kind, &key.to_le_bytes(), 0, |_| ())?;
            sending.own.pop_front();
        }
        let owes = self.owes_credit(self.taken.load(Ordering::Relaxed));
        if owes && self.has_request(sending) && self.has_slot(sending) {
            self.message(sending, Kind::Credit, &[], 0, |_| ())?;
        }
        let waits = !sending.own.is_empty() || self.owes_credit(self.taken.load(Ordering::Relaxed));
        self.waiting.store(waits, Ordering::Relaxed);
        Ok(())
    }

    /// Whether all that was posted has arrived; if not, its arrival will be told.
    pub(super) fn is_settled(&self) -> bool {
        if self.state() != ConnState::Established {
            return true;
        }
        let mut sending = self.sending();
        // If it fails the pair is broken, which its completions tell.
        let is_out = self.send_many(&mut sending).unwrap_or(false);
        let done = self.done.load(Ordering::Acquire);
        if is_out && sending.own.is_empty() && sending.posted == done {
            return true;
        }
        if sending.signalled < sending.posted && sending.posted - done < self.plan.sends as u64 {
            let number = sending.posted + 1;
            // As above.
            if self.qp.mark(WrId::Sent(number).id()).is_ok() {
                (sending.posted, sending.signalled) = (number, number);
            }
        }
        false
    }

    /// Returns how many receives are posted for it.
    pub(super) fn receives(&self) -> usize {
        usize::from(self.plan.window) + RESERVED
    }
}

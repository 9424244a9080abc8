//! This rank's end of the queue pair to one peer, shared by the endpoint that sends and the inlet that receives.
//!
//! Only the inlet writes the counters `completed_to`, `reposted` and `granted`. A thread that posts holds the lock of
//! `sending`.

mod batch;
mod control;
mod reads;

use std::collections::{HashSet, VecDeque};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use batch::Batch;

use super::card::IbvCard;
use super::frame::{BatchEntry, HEADER, IbvFrameKind, IbvHeader};
use super::recv_pool::RecvPool;
use super::slots::Slots;
use super::verbs::{Qp, SendSge};
use super::wr_id::WrId;
use super::{CONTROL_RECEIVES, QueueSizes};
use crate::device::{HEAD_MAX, OpToken, PeerId, PostError};

/// The maximum length in bytes of a message that is copied into its work request.
pub(super) const INLINE: usize = 256;

/// The maximum length in bytes of one frame in a batch: its prefix, head and body.
const BATCHED_MAX: usize = 512;

/// The state of a queue pair. It only increases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum ConnState {
    /// The peer's numbers are not known. This rank repeats its hello.
    Connecting = 0,
    /// This end is connected and receives. The state of the other end is not known.
    ReadyToReceive = 1,
    /// Both ends are connected, so this end sends.
    Established = 2,
    /// The queue pair is broken, or its peer has exited.
    Closed = 3,
}

/// The queue pair number and the first packet sequence number of the peer's end, from its hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RemoteQp {
    pub(super) qpn: u32,
    pub(super) psn: u32,
}

/// This end of a queue pair.
#[derive(Debug)]
pub(super) struct QpConnection {
    // Destroyed before the memory of the fields below.
    qp: Qp,
    pub(super) peer: PeerId,
    pub(super) card: IbvCard,
    /// The sequence number of the first packet that this end sends.
    pub(super) psn: u32,
    pub(super) remote: OnceLock<RemoteQp>,
    sizes: QueueSizes,
    state: AtomicU8,
    /// All work requests up to this number have completed.
    completed_to: AtomicU64,
    /// The total number of receives that were posted again after a frame of the peer had used them.
    reposted: AtomicU32,
    /// The value of `reposted` that was last reported to the peer, which gets credit for the difference.
    credit_returned: AtomicU32,
    /// The total number of receives that the peer has posted for messages from this end.
    granted: AtomicU32,
    /// Whether reads are in progress.
    reading: AtomicBool,
    /// Whether a control message or a return of credit waits for credit, a slot or a work request.
    has_control: AtomicBool,
    /// Whether a batch is waiting to be sent.
    has_batch: AtomicBool,
    sending: Mutex<SendState>,
    // Owns the memory into which the peer's messages are received.
    _recv_pool: Arc<RecvPool>,
}

/// The state of the sending side: posted work requests and pending messages.
#[derive(Debug)]
struct SendState {
    slots: Slots,
    /// For each slot, the number of the last work request that used it, or `batch::OPEN`.
    used: Vec<u64>,
    next_slot: usize,
    /// The numbers of the last work request, and of the last one that requested a completion.
    posted: u64,
    signalled: u64,
    /// The total number of the peer's receives that messages from this end have used.
    credit_used: u32,
    /// Reads in progress, the oldest first.
    reads: VecDeque<(u64, OpToken)>,
    /// Frames that wait to be sent together in one message.
    batch: Option<Batch>,
    control: VecDeque<(IbvFrameKind, u64)>,
    /// Revoked keys of this rank's memory that the peer has not confirmed.
    revoking: Vec<(u64, OpToken)>,
    /// Keys of the peer's memory that the peer has revoked, and that this rank has not used since.
    revoked: HashSet<u64>,
    /// Keys that the peer has revoked, each with the number of the read after which the revocation is confirmed.
    pending_acks: Vec<(u64, u64)>,
}

impl QpConnection {
    pub(super) fn new(
        qp: Qp,
        peer: PeerId,
        card: IbvCard,
        psn: u32,
        sizes: QueueSizes,
        (slots, recv_pool): (Slots, Arc<RecvPool>),
    ) -> Self {
        let sending = SendState {
            used: vec![0; slots.count()],
            slots,
            next_slot: 0,
            posted: 0,
            signalled: 0,
            credit_used: 0,
            reads: VecDeque::new(),
            batch: None,
            control: VecDeque::new(),
            revoking: Vec::new(),
            revoked: HashSet::new(),
            pending_acks: Vec::new(),
        };
        QpConnection {
            qp,
            peer,
            card,
            psn,
            remote: OnceLock::new(),
            sizes,
            state: AtomicU8::new(ConnState::Connecting as u8),
            completed_to: AtomicU64::new(0),
            reposted: AtomicU32::new(0),
            credit_returned: AtomicU32::new(0),
            granted: AtomicU32::new(card.window.into()),
            reading: AtomicBool::new(false),
            has_control: AtomicBool::new(false),
            has_batch: AtomicBool::new(false),
            sending: Mutex::new(sending),
            _recv_pool: recv_pool,
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

    /// Advances to state `to`. Returns false if the state is not lower.
    pub(super) fn advance(&self, to: ConnState) -> bool {
        self.state.fetch_max(to as u8, Ordering::AcqRel) < to as u8
    }

    fn sending(&self) -> MutexGuard<'_, SendState> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Breaks the queue pair. Returns the operations whose memory is quiesced by that, or `None` if the queue pair
    /// was closed before. Work requests in progress still complete, as flushed.
    pub(super) fn close(&self) -> Option<Vec<OpToken>> {
        let mut sending = self.sending();
        if !self.advance(ConnState::Closed) {
            return None;
        }
        self.qp.to_error();
        sending.control.clear();
        sending.pending_acks.clear();
        sending.batch = None;
        self.has_batch.store(false, Ordering::Relaxed);
        Some(sending.revoking.drain(..).map(|(_, op)| op).collect())
    }

    /// Removes and returns all reads, for a device that will not complete them.
    pub(super) fn take_reads(&self) -> Vec<OpToken> {
        self.sending().reads.drain(..).map(|(_, op)| op).collect()
    }

    /// Posts a frame with a body of `len` bytes, which `write` writes.
    ///
    /// If no credit or work request is left and the sender has `more` frames, a short frame joins the batch, which is
    /// sent later as one message.
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
        if !sending.control.is_empty() {
            return Err(PostError::Again);
        }
        let entry = BatchEntry { head: head.len(), body: len };
        let can_send = self.send_batch(&mut sending)? && self.has_room(&sending)? && self.has_slot(&sending);
        if can_send {
            return self.post_message(&mut sending, IbvFrameKind::Frame, head, len, write);
        }
        let fits = sending.batch.is_none_or(|batch| batch.len + entry.len() <= self.sizes.max_message);
        if more && fits && entry.len() <= BATCHED_MAX {
            return self.add_to_batch(&mut sending, entry, head, write);
        }
        Err(PostError::Again)
    }

    /// Returns whether credit and a work request are available for a message that uses one of the peer's receives.
    fn has_room(&self, sending: &SendState) -> Result<bool, PostError> {
        let left = self.granted.load(Ordering::Acquire).wrapping_sub(sending.credit_used);
        if left > self.card.window.into() {
            return Err(PostError::Broken("it returned more credits than frames were sent".into()));
        }
        Ok(left > 0 && self.has_request(sending))
    }

    /// Returns whether a work request is available in addition to one for [`is_drained`](Self::is_drained).
    fn has_request(&self, sending: &SendState) -> bool {
        sending.posted - self.completed_to.load(Ordering::Acquire) + 1 < self.sizes.sends as u64
    }

    fn has_slot(&self, sending: &SendState) -> bool {
        sending.used[sending.next_slot] <= self.completed_to.load(Ordering::Acquire)
    }

    /// Returns the header of a message, and the value of `reposted` that it reports to the peer.
    fn header(&self, kind: IbvFrameKind, head: usize) -> ([u8; HEADER], u32) {
        let reposted = self.reposted.load(Ordering::Acquire);
        // The difference is at most `sizes.window`, a `u16`: a correct peer has no credit for more frames.
        let returned = reposted.wrapping_sub(self.credit_returned.load(Ordering::Relaxed)) as u16;
        (IbvHeader { kind, head, returned }.to_bytes(), reposted)
    }

    /// Posts a message. Requests a completion if the last `sizes.signal - 1` work requests have requested none.
    ///
    /// # Safety
    /// The caller upholds the contract of [`Qp::send`].
    unsafe fn post_send(&self, sending: &mut SendState, piece: SendSge) -> Result<(), PostError> {
        let number = sending.posted + 1;
        let signalled = number - sending.signalled >= self.sizes.signal;
        // SAFETY: the caller's promise.
        let sent = unsafe { self.qp.send(WrId::Sent(number).id(), piece, signalled) };
        sent.map_err(|e| PostError::Broken(format!("ibv_post_send: {e}")))?;
        sending.posted = number;
        if signalled {
            sending.signalled = number;
        }
        Ok(())
    }

    fn charge(&self, sending: &mut SendState, kind: IbvFrameKind, reposted: u32) {
        if kind != IbvFrameKind::Credit {
            sending.credit_used = sending.credit_used.wrapping_add(1);
        }
        self.credit_returned.store(reposted, Ordering::Relaxed);
    }

    /// Posts a frame or a control message. The caller has checked that a slot and a work request are available.
    #[inline]
    fn post_message(
        &self,
        sending: &mut SendState,
        kind: IbvFrameKind,
        head: &[u8],
        len: usize,
        write: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Result<(), PostError> {
        let front = HEADER + head.len();
        let whole = front + len;
        if head.len() > HEAD_MAX || whole > self.sizes.max_message {
            return Err(PostError::Unsupported);
        }
        let (header, reposted) = self.header(kind, head.len());
        let mut inline = [MaybeUninit::uninit(); INLINE];
        let slot = sending.next_slot;
        let is_inline = whole <= self.qp.inline();
        let room = if is_inline {
            &mut inline[..]
        } else {
            // SAFETY: the last work request that used the slot has completed, which the caller has checked, and the
            // lock is held.
            unsafe { sending.slots.bytes_mut(slot) }
        };
        room[..HEADER].write_copy_of_slice(&header);
        room[HEADER..front].write_copy_of_slice(head);
        write(&mut room[front..whole]);
        let piece = if is_inline {
            SendSge::Inline(inline.as_ptr().cast(), whole as u32)
        } else {
            sending.slots.send_sge(slot, whole)
        };
        // SAFETY: the call copies inline bytes. A slot is not used again before its work request has completed, and
        // its memory is freed after the queue pair.
        unsafe { self.post_send(sending, piece) }?;
        if !is_inline {
            sending.used[slot] = sending.posted;
            sending.next_slot = (slot + 1) % sending.used.len();
        }
        self.charge(sending, kind, reposted);
        Ok(())
    }

    /// Records that a work request and all before it have completed. Appends the reads among them to `ended`, each with
    /// whether it succeeded.
    pub(super) fn completed(&self, number: u64, succeeded: bool, ended: &mut Vec<(OpToken, bool)>) {
        self.completed_to.fetch_max(number, Ordering::AcqRel);
        if !self.reading.load(Ordering::Acquire) {
            return;
        }
        let mut sending = self.sending();
        while let Some((read, op)) = sending.reads.front().copied().filter(|(read, _)| *read <= number) {
            ended.push((op, succeeded || read < number));
            sending.reads.pop_front();
        }
        let done = self.completed_to.load(Ordering::Acquire);
        let (due, later): (Vec<_>, Vec<_>) =
            sending.pending_acks.drain(..).partition(|(_, after)| *after <= done);
        sending.pending_acks = later;
        due.into_iter().for_each(|(key, _)| sending.control.push_back((IbvFrameKind::RevokeAck, key)));
        if !sending.control.is_empty() {
            self.has_control.store(true, Ordering::Relaxed);
        }
        self.reading.store(!sending.reads.is_empty(), Ordering::Release);
    }

    /// Returns whether all posted messages have arrived, or none can be sent. Otherwise, if the last work request has
    /// requested no completion and the send queue has space, posts a read of no bytes, which requests one.
    pub(super) fn is_drained(&self) -> bool {
        if self.state() != ConnState::Established {
            return true;
        }
        let mut sending = self.sending();
        // If this fails, the batch remains, and `flush` reports the error.
        let no_batch = self.send_batch(&mut sending).unwrap_or(false);
        let done = self.completed_to.load(Ordering::Acquire);
        if no_batch && sending.control.is_empty() && sending.posted == done {
            return true;
        }
        if sending.signalled < sending.posted && sending.posted - done < self.sizes.sends as u64 {
            let number = sending.posted + 1;
            // If the post fails, the queue pair is broken, and its completions report that.
            if self.qp.post_fence_read(WrId::Sent(number).id()).is_ok() {
                (sending.posted, sending.signalled) = (number, number);
            }
        }
        false
    }

    /// Returns the number of receives that this rank posts for the peer.
    pub(super) fn receives(&self) -> usize {
        usize::from(self.sizes.window) + CONTROL_RECEIVES
    }
}

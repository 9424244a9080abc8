//! The inlet of `ibvdev`: it processes the completions of all peers.

use std::collections::HashMap;
use std::sync::Arc;

use super::conn_manager::{ConnEvent, ConnManager};
use super::connection::{ConnState, QpConnection};
use super::frame::{BatchEntry, Header, Kind};
use super::shared::{DeviceFailure, IbvShared};
use super::slots::Slots;
use super::verbs::{BATCH, RecvSge, Wc, is_flushed};
use super::wr_id::WrId;
use crate::device::{Inlet, OpToken, PostError, Sink};

/// A rank that does not sleep polls the device's events once in this many passes. A sleeping rank polls them before
/// each sleep.
const SELDOM: u32 = 1 << 14;

/// The inlet of `ibvdev`.
#[derive(Debug)]
pub(super) struct IbvInlet {
    lobby: ConnManager,
    /// The connections by the number of their queue pair.
    pairs: HashMap<u32, InletConnection, foldhash::fast::FixedState>,
    shelves: Vec<Arc<Slots>>,
    /// Slots whose completions were processed. The queue pair number names the peer that gets the credit back, if one
    /// does.
    freed: Vec<(RecvSge, Option<u32>)>,
    completions: Box<[Wc; BATCH]>,
    ended: Vec<(OpToken, bool)>,
    passes: u32,
    shared: Arc<IbvShared>,
}

/// A queue pair that is connected at this end.
#[derive(Debug)]
struct InletConnection {
    pair: Arc<QpConnection>,
    /// Whether its peer was reported as lost.
    lost: bool,
}

impl IbvInlet {
    pub(super) fn new(shared: Arc<IbvShared>, lobby: ConnManager) -> Self {
        IbvInlet {
            lobby,
            pairs: HashMap::default(),
            shelves: Vec::new(),
            freed: Vec::new(),
            completions: Box::new([Wc::default(); BATCH]),
            ended: Vec::new(),
            passes: 0,
            shared,
        }
    }

    /// Processes the queue from other threads: new queue pairs, and operations whose memory is quiesced.
    #[cold]
    fn drain_queue(&mut self, sink: &mut dyn Sink) -> usize {
        let news = self.shared.take_news();
        let count = news.quiet.len();
        for pair in news.started {
            let outcome = self.lobby.start_connect(&self.shared, pair);
            self.on_event(outcome, sink);
        }
        news.quiet.into_iter().for_each(|op| sink.quiesced(op));
        count
    }

    fn on_event(&mut self, outcome: Option<ConnEvent>, sink: &mut dyn Sink) -> usize {
        match outcome {
            None => return 0,
            Some(ConnEvent::Established) => (),
            Some(ConnEvent::Connected(pair)) => {
                self.pairs.insert(pair.qp().number(), InletConnection { pair, lost: false });
            }
            Some(ConnEvent::Lost(peer, why)) => {
                if let Some(pair) = self.shared.get(peer) {
                    self.break_off(&pair, &why, sink);
                } else {
                    sink.peer_lost(peer, &why);
                }
            }
        }
        1
    }

    /// Breaks a queue pair and reports its peer as lost. Has no effect if the queue pair is closed.
    #[cold]
    fn break_off(&mut self, pair: &Arc<QpConnection>, why: &str, sink: &mut dyn Sink) {
        let Some(quiet) = pair.close() else { return };
        if let Some(met) = self.pairs.get_mut(&pair.qp().number()) {
            met.lost = true;
        }
        self.shared.stock.release(pair.receives());
        quiet.into_iter().for_each(|op| sink.quiesced(op));
        sink.peer_lost(pair.peer, why);
    }

    #[inline]
    fn complete(&mut self, wc: &Wc, sink: &mut dyn Sink) -> usize {
        match WrId::of(wc.id) {
            WrId::Received { shelf, at } => self.received(wc, shelf, at, sink),
            WrId::Sent(number) => self.sent(wc, number, sink),
            WrId::HelloSent(at) => {
                self.lobby.sent(at);
                0
            }
            WrId::HelloReceived(at) => {
                let len = if wc.status == 0 { wc.len as usize } else { 0 };
                let outcome = self.lobby.on_datagram(&self.shared, at, len);
                self.on_event(outcome, sink)
            }
        }
    }

    /// Fetches the shelves that were added since the last call. Returns whether shelf number `shelf` exists.
    #[cold]
    fn load_chunks(&mut self, shelf: u32) -> bool {
        while self.shelves.len() <= shelf as usize {
            let Some(next) = self.shared.stock.chunk(self.shelves.len() as u32) else { return false };
            self.shelves.push(next);
        }
        true
    }

    #[inline]
    fn received(&mut self, wc: &Wc, shelf: u32, at: u32, sink: &mut dyn Sink) -> usize {
        if shelf as usize >= self.shelves.len() && !self.load_chunks(shelf) {
            return 0;
        }
        let slots = &self.shelves[shelf as usize];
        let place = slots.place(at as usize, wc.id);
        let Some(InletConnection { pair, .. }) = self.pairs.get(&wc.qpn).filter(|met| !met.lost) else {
            self.freed.push((place, None));
            return 0;
        };
        if wc.status != 0 {
            let pair = Arc::clone(pair);
            self.freed.push((place, None));
            let why = format!("its message was not received: {}", self.shared.context().explain(wc.status));
            self.break_off(&pair, &why, sink);
            return 1;
        }
        // The peer sends only after it knows that this end receives. So its first message shows that both ends are
        // connected.
        let stands = pair.state() == ConnState::ReadyToReceive && pair.advance(ConnState::Established);
        // SAFETY: the completion says that `wc.len` bytes were written, and the slot is posted again only after this
        // function.
        let message = unsafe { slots.message(at as usize, wc.len as usize) };
        let taken = on_message(pair, message, sink);
        self.freed.push((place, matches!(taken, Ok(true)).then_some(wc.qpn)));
        match taken {
            Ok(_) if !stands && !pair.is_waiting() => (),
            Ok(_) => {
                let pair = Arc::clone(pair);
                self.send_control(&pair, sink);
            }
            Err(why) => {
                let pair = Arc::clone(pair);
                let why = match why {
                    PostError::Broken(why) => why,
                    _ => "it has sent what is no message".into(),
                };
                self.break_off(&pair, &why, sink);
            }
        }
        1
    }

    fn send_control(&mut self, pair: &Arc<QpConnection>, sink: &mut dyn Sink) {
        if let Err(PostError::Broken(why)) = pair.send_control() {
            self.break_off(pair, &why, sink);
        }
    }

    fn sent(&mut self, wc: &Wc, number: u64, sink: &mut dyn Sink) -> usize {
        let Some(pair) = self.pairs.get(&wc.qpn).map(|met| Arc::clone(&met.pair)) else { return 0 };
        let mut ended = std::mem::take(&mut self.ended);
        pair.completed(number, wc.status == 0, &mut ended);
        let count = ended.len();
        for (op, is_well) in ended.drain(..) {
            let outcome = if is_well { Ok(()) } else { Err(self.shared.context().explain(wc.status)) };
            sink.completed(op, outcome);
        }
        self.ended = ended;
        if wc.status != 0 {
            let why = match is_flushed(wc.status) {
                true => "the connection is broken".to_owned(),
                false => {
                    let why = format!("it does not answer: {}", self.shared.context().explain(wc.status));
                    self.shared.link_down_reason().unwrap_or(why)
                }
            };
            self.break_off(&pair, &why, sink);
        } else if pair.is_waiting() {
            self.send_control(&pair, sink);
        }
        count
    }

    /// Posts the used slots again, and returns credit to the peers that have enough of it due.
    fn refill(&mut self, sink: &mut dyn Sink) {
        let freed = std::mem::take(&mut self.freed);
        for freed in freed.chunks(BATCH) {
            let mut places = [freed[0].0; BATCH];
            places.iter_mut().zip(freed).for_each(|(place, (freed, _))| *place = *freed);
            // SAFETY: the inlet has processed the completions of these slots. No code accesses a slot before its next
            // completion has come, and the memory is freed after the queue.
            if let Err(error) = unsafe { self.shared.stock.queue().post(&places[..freed.len()]) } {
                log::error!("ibvdev: ibv_post_srq_recv: {error}");
                self.shared.fail(DeviceFailure::Fatal);
                return;
            }
            for qpn in freed.iter().filter_map(|(_, qpn)| *qpn) {
                let Some(met) = self.pairs.get(&qpn) else { continue };
                if met.pair.note_reposted() && !met.lost {
                    let pair = Arc::clone(&met.pair);
                    self.send_control(&pair, sink);
                }
            }
        }
        if self.freed.is_empty() {
            self.freed = freed;
            self.freed.clear();
        }
    }

    /// Breaks the queue pairs of all peers, because no peer is reachable. If the device has failed, it completes no
    /// work request, so this fails the reads as well.
    #[cold]
    fn fail(&mut self, sink: &mut dyn Sink) -> usize {
        let shared = Arc::clone(&self.shared);
        let Some(failure) = shared.failure() else { return 0 };
        let all: Vec<_> = shared.all().into_iter().filter(|pair| pair.state() != ConnState::Closed).collect();
        for pair in &all {
            self.break_off(pair, &failure.to_string(), sink);
            if *failure == DeviceFailure::Fatal {
                let reads = pair.give_up_reads();
                reads.into_iter().for_each(|op| sink.completed(op, Err(failure.to_string())));
            }
        }
        all.len()
    }
}

/// Processes a message. Returns whether its receive counts as credit of the peer.
#[inline]
fn on_message(pair: &QpConnection, message: &[u8], sink: &mut dyn Sink) -> Result<bool, PostError> {
    let (header, head, body) = Header::parse(message).ok_or(PostError::Unsupported)?;
    pair.grant(header.returned);
    let key = || head.try_into().map(u64::from_le_bytes).map_err(|_| PostError::Unsupported);
    match header.kind {
        Kind::Frame => sink.frame(pair.peer, head, body),
        Kind::Many => {
            let mut rest = body;
            while !rest.is_empty() {
                let (head, body, after) = BatchEntry::split(rest).ok_or(PostError::Unsupported)?;
                sink.frame(pair.peer, head, body);
                rest = after;
            }
        }
        Kind::Credit => return Ok(false),
        Kind::Revoke => pair.on_revoke(key()?)?,
        Kind::Quiet => {
            let op = pair.revoke_acked(key()?).ok_or(PostError::Unsupported)?;
            sink.quiesced(op);
        }
    }
    Ok(true)
}

// SAFETY: the inlet delivers whole frames, so it begins no body. It reports a read once, at the completion of its
// work request or at the failure of the device, and then forgets it. It reports an operation as quiesced when it
// removes it from the revocations that are pending.
unsafe impl Inlet for IbvInlet {
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        let mut moved = 0;
        if self.shared.has_news() {
            moved += self.drain_queue(sink);
        }
        let count = self.shared.completions.poll(&mut self.completions[..]);
        for at in 0..count {
            let wc = self.completions[at];
            moved += self.complete(&wc, sink);
        }
        // The completion queue may hold more, among them frames that a peer sent before its exit. The pass counts as
        // progress, which keeps the engine from handling that exit yet.
        moved += usize::from(count == BATCH);
        if self.freed.len() >= self.shared.plan.watermark {
            self.refill(sink);
        }
        if self.lobby.is_busy() {
            for outcome in self.lobby.resend_due(&self.shared) {
                moved += self.on_event(Some(outcome), sink);
            }
        }
        self.passes = self.passes.wrapping_add(1);
        if self.passes.is_multiple_of(SELDOM) {
            self.shared.poll_device_events();
        }
        if self.shared.failure().is_some() {
            moved += self.fail(sink);
        }
        moved
    }
}

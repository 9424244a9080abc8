//! The inlet of `ibvdev`, which processes the completions of all peers.

use std::collections::HashMap;
use std::sync::Arc;

use super::conn_manager::{IbvConnEvent, IbvConnManager};
use super::connection::{ConnState, QpConnection};
use super::frame::{BatchEntry, IbvFrameKind, IbvHeader};
use super::shared::{DeviceFailure, IbvShared};
use super::slots::Slots;
use super::verbs::{BATCH, RecvSge, Wc, is_flushed};
use super::wr_id::WrId;
use crate::device::{Inlet, OpToken, PostError, Sink};

/// The number of passes between two polls of the device's events. They are also polled before each sleep.
const PASSES_PER_EVENT_POLL: u32 = 1 << 14;

#[derive(Debug)]
pub(super) struct IbvInlet {
    conn_manager: IbvConnManager,
    /// The connections by the number of their queue pair.
    connections: HashMap<u32, InletConnection, foldhash::fast::FixedState>,
    /// The chunks of the receive pool that this inlet has seen, by their number.
    chunks: Vec<Arc<Slots>>,
    /// Slots to post again, each with the number of the queue pair whose peer gets credit for it, if any.
    freed: Vec<(RecvSge, Option<u32>)>,
    completions: Box<[Wc; BATCH]>,
    ended: Vec<(OpToken, bool)>,
    passes: u32,
    shared: Arc<IbvShared>,
}

#[derive(Debug)]
struct InletConnection {
    connection: Arc<QpConnection>,
    /// Whether `lose_peer` has closed the connection. Messages that arrive later are discarded.
    lost: bool,
}

impl IbvInlet {
    pub(super) fn new(shared: Arc<IbvShared>, conn_manager: IbvConnManager) -> Self {
        IbvInlet {
            conn_manager,
            connections: HashMap::default(),
            chunks: Vec::new(),
            freed: Vec::new(),
            completions: Box::new([Wc::default(); BATCH]),
            ended: Vec::new(),
            passes: 0,
            shared,
        }
    }

    #[cold]
    fn drain_queue(&mut self, sink: &mut dyn Sink) -> usize {
        let inlet_queue = self.shared.take_inlet_work();
        let count = inlet_queue.quiesced.len();
        for connection in inlet_queue.started {
            let outcome = self.conn_manager.start_connect(&self.shared, connection);
            self.on_event(outcome, sink);
        }
        inlet_queue.quiesced.into_iter().for_each(|op| sink.quiesced(op));
        count
    }

    fn on_event(&mut self, outcome: Option<IbvConnEvent>, sink: &mut dyn Sink) -> usize {
        match outcome {
            None => return 0,
            Some(IbvConnEvent::Established) => (),
            Some(IbvConnEvent::Connected(connection)) => {
                self.connections
                    .insert(connection.qp().number(), InletConnection { connection, lost: false });
            }
            Some(IbvConnEvent::Lost(peer, why)) => {
                if let Some(connection) = self.shared.get(peer) {
                    self.lose_peer(&connection, &why, sink);
                } else {
                    sink.peer_lost(peer, &why);
                }
            }
        }
        1
    }

    /// Closes a connection and reports its peer as lost. Has no effect if the connection was closed before.
    #[cold]
    fn lose_peer(&mut self, connection: &Arc<QpConnection>, why: &str, sink: &mut dyn Sink) {
        let Some(quiesced) = connection.close() else { return };
        if let Some(entry) = self.connections.get_mut(&connection.qp().number()) {
            entry.lost = true;
        }
        self.shared.recv_pool.release(connection.receives());
        quiesced.into_iter().for_each(|op| sink.quiesced(op));
        sink.peer_lost(connection.peer, why);
    }

    #[inline]
    pub(super) fn complete(&mut self, wc: &Wc, sink: &mut dyn Sink) -> usize {
        match WrId::of(wc.id) {
            WrId::Received { chunk, at } => self.received(wc, chunk, at, sink),
            WrId::Sent(number) => self.sent(wc, number, sink),
            // A queue pair is unusable after its first work request that fails.
            WrId::HelloSent(_) | WrId::HelloReceived(_) if wc.status != 0 => {
                let why = self.shared.context().explain(wc.status);
                self.shared.fail(DeviceFailure::Hellos(why));
                0
            }
            WrId::HelloSent(at) => {
                self.conn_manager.hello_sent(at);
                0
            }
            WrId::HelloReceived(at) => {
                let outcome = self.conn_manager.on_datagram(&self.shared, at, wc.len as usize);
                self.on_event(outcome, sink)
            }
        }
    }

    /// Adds the chunks of the receive pool up to number `chunk`. Returns false if the pool has no such chunk.
    #[cold]
    fn load_chunks(&mut self, chunk: u32) -> bool {
        while self.chunks.len() <= chunk as usize {
            let Some(next) = self.shared.recv_pool.chunk(self.chunks.len() as u32) else { return false };
            self.chunks.push(next);
        }
        true
    }

    #[inline]
    fn received(&mut self, wc: &Wc, chunk: u32, at: u32, sink: &mut dyn Sink) -> usize {
        if chunk as usize >= self.chunks.len() && !self.load_chunks(chunk) {
            return 0;
        }
        let slots = &self.chunks[chunk as usize];
        let place = slots.recv_sge(at as usize, wc.id);
        let Some(InletConnection { connection, .. }) =
            self.connections.get(&wc.qpn).filter(|entry| !entry.lost)
        else {
            self.freed.push((place, None));
            return 0;
        };
        if wc.status != 0 {
            let connection = Arc::clone(connection);
            self.freed.push((place, None));
            let why = format!("receive failed: {}", self.shared.context().explain(wc.status));
            self.lose_peer(&connection, &why, sink);
            return 1;
        }
        // The peer sends only after it knows that this end receives, so its first message establishes the connection.
        let newly_established =
            connection.state() == ConnState::ReadyToReceive && connection.advance(ConnState::Established);
        // SAFETY: the completion says that `wc.len` bytes were written, and the slot is posted again only after this
        // function.
        let message = unsafe { slots.message(at as usize, wc.len as usize) };
        let used_credit = on_message(connection, message, sink);
        self.freed.push((place, matches!(used_credit, Ok(true)).then_some(wc.qpn)));
        match used_credit {
            Ok(_) if !newly_established && !connection.has_control() => (),
            Ok(_) => {
                let connection = Arc::clone(connection);
                self.send_control(&connection, sink);
            }
            Err(why) => {
                let connection = Arc::clone(connection);
                let why = match why {
                    PostError::Broken(why) => why,
                    _ => "it sent a malformed message".into(),
                };
                self.lose_peer(&connection, &why, sink);
            }
        }
        1
    }

    fn send_control(&mut self, connection: &Arc<QpConnection>, sink: &mut dyn Sink) {
        if let Err(PostError::Broken(why)) = connection.send_control() {
            self.lose_peer(connection, &why, sink);
        }
    }

    fn sent(&mut self, wc: &Wc, number: u64, sink: &mut dyn Sink) -> usize {
        let Some(connection) = self.connections.get(&wc.qpn).map(|entry| Arc::clone(&entry.connection))
        else {
            return 0;
        };
        let mut ended = std::mem::take(&mut self.ended);
        connection.completed(number, wc.status == 0, &mut ended);
        let count = ended.len();
        for (op, succeeded) in ended.drain(..) {
            let outcome = if succeeded { Ok(()) } else { Err(self.shared.context().explain(wc.status)) };
            sink.completed(op, outcome);
        }
        self.ended = ended;
        if wc.status != 0 {
            let why = match is_flushed(wc.status) {
                true => "the connection is broken".to_owned(),
                false => {
                    let why = format!("a send or read failed: {}", self.shared.context().explain(wc.status));
                    self.shared.link_down_reason().unwrap_or(why)
                }
            };
            self.lose_peer(&connection, &why, sink);
        } else if connection.has_control() {
            self.send_control(&connection, sink);
        }
        count
    }

    /// Posts the used slots again, and sends `Credit` messages to the peers to which half a window of credit is due.
    fn refill(&mut self, sink: &mut dyn Sink) {
        let freed = std::mem::take(&mut self.freed);
        for freed in freed.chunks(BATCH) {
            let mut places = [freed[0].0; BATCH];
            places.iter_mut().zip(freed).for_each(|(place, (freed, _))| *place = *freed);
            // SAFETY: the inlet has processed the completions of these slots. No code accesses a slot before its next
            // completion has come, and the memory is freed after the queue.
            if let Err(error) = unsafe { self.shared.recv_pool.queue().post(&places[..freed.len()]) } {
                log::error!("ibvdev: ibv_post_srq_recv: {error}");
                self.shared.fail(DeviceFailure::Fatal);
                return;
            }
            for qpn in freed.iter().filter_map(|(_, qpn)| *qpn) {
                let Some(entry) = self.connections.get(&qpn) else { continue };
                if entry.connection.note_reposted() && !entry.lost {
                    let connection = Arc::clone(&entry.connection);
                    self.send_control(&connection, sink);
                }
            }
        }
        if self.freed.is_empty() {
            self.freed = freed;
            self.freed.clear();
        }
    }

    /// After a failure that makes all peers unreachable, closes the open connections. A failed device completes no work
    /// request, so in that case this also fails the reads of all connections.
    #[cold]
    fn lose_all_after_failure(&mut self, sink: &mut dyn Sink) -> usize {
        let shared = Arc::clone(&self.shared);
        let Some(failure) = shared.failure() else { return 0 };
        let mut moved = 0;
        for connection in shared.all() {
            if connection.state() != ConnState::Closed {
                self.lose_peer(&connection, &failure.to_string(), sink);
                moved += 1;
            }
            if shared.is_fatal() {
                let reads = connection.take_reads();
                moved += reads.len();
                reads.into_iter().for_each(|op| sink.completed(op, Err(failure.to_string())));
            }
        }
        moved
    }
}

/// Processes a message. Returns whether the message has used credit of the peer.
#[inline]
fn on_message(connection: &QpConnection, message: &[u8], sink: &mut dyn Sink) -> Result<bool, PostError> {
    let (header, head, body) = IbvHeader::parse(message).ok_or(PostError::Unsupported)?;
    connection.grant(header.returned);
    let key = || head.try_into().map(u64::from_le_bytes).map_err(|_| PostError::Unsupported);
    match header.kind {
        IbvFrameKind::Frame => sink.frame(connection.peer, head, body),
        IbvFrameKind::Batch => {
            let mut rest = body;
            while !rest.is_empty() {
                let (head, body, after) = BatchEntry::split(rest).ok_or(PostError::Unsupported)?;
                sink.frame(connection.peer, head, body);
                rest = after;
            }
        }
        IbvFrameKind::Credit => return Ok(false),
        IbvFrameKind::Revoke => connection.on_revoke(key()?)?,
        IbvFrameKind::RevokeAck => {
            let op = connection.revoke_acked(key()?).ok_or(PostError::Unsupported)?;
            sink.quiesced(op);
        }
    }
    Ok(true)
}

// SAFETY: the inlet delivers whole frames, so it begins no body. It reports a read once, at the completion of its
// work request or at the failure of the device, when the read is removed from its list. It reports an operation as
// quiesced once, after the operation was removed from the pending revocations.
unsafe impl Inlet for IbvInlet {
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        let mut moved = 0;
        if self.shared.has_inlet_work() {
            moved += self.drain_queue(sink);
        }
        let count = self.shared.completions.poll(&mut self.completions[..]);
        for at in 0..count {
            let wc = self.completions[at];
            moved += self.complete(&wc, sink);
        }
        // The completion queue might hold more, among them frames that a peer sent before its exit. Counting one more
        // event keeps the engine from handling that exit yet.
        moved += usize::from(count == BATCH);
        if self.freed.len() >= self.shared.sizes.repost_batch {
            self.refill(sink);
        }
        if self.conn_manager.is_busy() {
            for outcome in self.conn_manager.resend_due(&self.shared) {
                moved += self.on_event(Some(outcome), sink);
            }
        }
        self.passes = self.passes.wrapping_add(1);
        if self.passes.is_multiple_of(PASSES_PER_EVENT_POLL) {
            self.shared.poll_device_events();
        }
        if self.shared.failure().is_some() {
            moved += self.lose_all_after_failure(sink);
        }
        moved
    }
}

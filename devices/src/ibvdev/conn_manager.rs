//! Connection set-up: ranks exchange the numbers of their queue pairs in hellos, datagrams that can get lost.
//!
//! Each rank creates its own end of a queue pair and sends the other rank its numbers. So both ranks can start at
//! once, and need not agree on an order. A rank that has received the other's numbers connects its end, which
//! receives from then on, and sends a hello that *knows*. A rank that has received such a hello sends frames. A rank
//! replies to a hello that *asks*. The sender repeats that hello after pauses of 10 to 320 ms until it is answered,
//! without a limit, because a peer can compute for long before it makes progress.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::IbvShared;
use super::connection::{ConnState, QpConnection, RemoteQp};
use super::hello::{HELLO, Hello};
use super::slots::Slots;
use super::verbs::{AddressHandle, CompletionQueue, ProtectionDomain, Qp, QpSizes};
use super::wr_id::WrId;
use crate::device::PeerId;

/// The number of hellos that can arrive between two passes of progress. Further ones are lost, and repeated by their
/// senders.
pub(super) const HEARD: usize = 128;
/// The number of hellos that can be in transit from this rank.
pub(super) const SAID: usize = 32;

/// The length in bytes of the global route header, which precedes each datagram in its slot.
const ROUTE: usize = 40;

/// The first and the longest pause before a hello is repeated.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));

/// The result of a hello, received or sent.
#[derive(Debug)]
pub(super) enum ConnEvent {
    /// This end of a queue pair is connected.
    Connected(Arc<QpConnection>),
    /// Both ends of a queue pair are connected.
    Established,
    /// The peer cannot be connected, for the reason given.
    Lost(PeerId, String),
}

#[derive(Debug)]
pub(super) struct ConnManager {
    // Destroyed before the memory that its work requests name.
    qp: Qp,
    recv_slots: Slots,
    said: Slots,
    /// The free slots of `said`.
    free: Vec<u32>,
    address_handles: HashMap<u32, AddressHandle>,
    asking: Vec<PendingHello>,
    qkey: u32,
}

/// A queue pair that is not established, and the time of its next hello.
#[derive(Debug)]
struct PendingHello {
    pair: Arc<QpConnection>,
    next: Instant,
    pause: Duration,
}

impl ConnManager {
    /// Creates the connection manager of a rank. Other ranks with the same `qkey` reach it by the number of its queue
    /// pair.
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        (port, pkey_index, qkey): (u8, u16, u32),
    ) -> std::io::Result<Self> {
        let room = QpSizes { sends: SAID, receives: HEARD, inline: 0 };
        let qp = Qp::unreliable_datagram(domain, completions, room, (port, pkey_index, qkey))?;
        let heard = Slots::new(domain, HEARD, ROUTE + HELLO)?;
        let said = Slots::new(domain, SAID, HELLO)?;
        let free = (0..SAID as u32).collect();
        let lobby = ConnManager {
            qp,
            recv_slots: heard,
            said,
            free,
            address_handles: HashMap::new(),
            asking: Vec::new(),
            qkey,
        };
        (0..HEARD as u32).try_for_each(|at| lobby.listen(at))?;
        Ok(lobby)
    }

    /// Returns the number of the queue pair that receives hellos.
    pub(super) fn qpn(&self) -> u32 {
        self.qp.number()
    }

    fn listen(&self, at: u32) -> std::io::Result<()> {
        let place = self.recv_slots.place(at as usize, WrId::HelloReceived(at).id());
        // SAFETY: the slot is read only after its completion has come, and its memory is freed after the queue pair.
        unsafe { self.qp.receive(&[place]) }
    }

    /// Whether a hello is to be repeated.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Frees slot `at` after its hello was sent.
    pub(super) fn sent(&mut self, at: u32) {
        self.free.push(at);
    }

    /// Sends a hello to a peer, and repeats it until the queue pair is established.
    pub(super) fn start_connect(&mut self, shared: &IbvShared, pair: Arc<QpConnection>) -> Option<ConnEvent> {
        if pair.state() > ConnState::Connecting {
            return None;
        }
        self.note(&pair);
        self.send_hello(shared, &pair).err().map(|why| ConnEvent::Lost(pair.peer, why))
    }

    /// Schedules hellos to a peer until its queue pair is established.
    fn note(&mut self, pair: &Arc<QpConnection>) {
        if !self.asking.iter().any(|asking| Arc::ptr_eq(&asking.pair, pair)) {
            let (next, pause) = (Instant::now() + PAUSE.0, PAUSE.0);
            self.asking.push(PendingHello { pair: Arc::clone(pair), next, pause });
        }
    }

    /// Repeats the hellos that are due. Returns the peers to which that failed.
    pub(super) fn resend_due(&mut self, shared: &IbvShared) -> Vec<ConnEvent> {
        self.asking.retain(|asking| asking.pair.state() <= ConnState::ReadyToReceive);
        let now = Instant::now();
        let mut asking = std::mem::take(&mut self.asking);
        let due = asking.iter_mut().filter(|asking| asking.next <= now);
        let lost = due.filter_map(|asking| {
            asking.pause = (asking.pause * 2).min(PAUSE.1);
            asking.next = now + asking.pause;
            let said = self.send_hello(shared, &asking.pair);
            said.err().map(|why| ConnEvent::Lost(asking.pair.peer, why))
        });
        let lost = lost.collect();
        self.asking = asking;
        lost
    }

    /// Sends a hello with the state of this end. If no slot is free, this sends nothing: the hello will be repeated.
    fn send_hello(&mut self, shared: &IbvShared, pair: &QpConnection) -> Result<(), String> {
        let state = pair.state();
        let hello = Hello {
            from: shared.site.0,
            to: pair.peer.0,
            is_ready: state >= ConnState::ReadyToReceive,
            wants_reply: state < ConnState::Established,
            card: shared.card,
            qpn: pair.qp().number(),
            psn: pair.psn,
        };
        let Some(bytes) = hello.seal(&shared.key, pair.card.nonce) else { return Ok(()) };
        let way = match self.address_handles.entry(pair.peer.0) {
            Entry::Occupied(way) => way.into_mut(),
            Entry::Vacant(none) => {
                let way = AddressHandle::new(&shared.domain, &pair.card.route(&shared.route));
                none.insert(way.map_err(|e| format!("no way to its port: {e}"))?)
            }
        };
        let Some(at) = self.free.pop() else { return Ok(()) };
        // SAFETY: the slot is free, so only this function uses it.
        let room = unsafe { self.said.room(at as usize) };
        room[..HELLO].write_copy_of_slice(&bytes);
        let piece = self.said.piece(at as usize, HELLO);
        // SAFETY: the slot becomes free only at its completion, and its memory is freed after the queue pair.
        let sent = unsafe { self.qp.send_to(WrId::HelloSent(at).id(), piece, way, pair.card.qpn, self.qkey) };
        sent.map_err(|e| {
            self.free.push(at);
            format!("ibv_post_send of a hello: {e}")
        })
    }

    /// Processes the datagram of `len` bytes in slot `at`.
    pub(super) fn on_datagram(&mut self, shared: &IbvShared, at: u32, len: usize) -> Option<ConnEvent> {
        // SAFETY: the completion says that `len` bytes were written, the global route header among them.
        let message = unsafe { self.recv_slots.message(at as usize, len) };
        let hello = message.get(ROUTE..).and_then(|bytes| Hello::open(bytes, &shared.key, shared.card.nonce));
        let outcome = hello.and_then(|hello| self.on_hello(shared, &hello));
        // If the post fails, the datagram queue pair is broken. Peers then repeat their hellos without an answer.
        let _ = self.listen(at);
        outcome
    }

    fn on_hello(&mut self, shared: &IbvShared, hello: &Hello) -> Option<ConnEvent> {
        let (rank, size) = shared.site;
        if hello.to != rank || hello.from == rank || hello.from >= size {
            return None;
        }
        let peer = PeerId(hello.from);
        let pair = match shared.get_or_create(peer, &hello.card) {
            Ok(pair) => pair,
            Err(why) => return Some(ConnEvent::Lost(peer, why)),
        };
        let remote = RemoteQp { qpn: hello.qpn, psn: hello.psn };
        // Ignore a hello whose card or queue pair is not that of the peer's first one: the peer has opened the device
        // a second time.
        if pair.card != hello.card || *pair.remote.get_or_init(|| remote) != remote {
            return None;
        }
        let mut outcome = None;
        if pair.state() == ConnState::Connecting {
            if let Err(why) = shared.connect(&pair, remote) {
                return Some(ConnEvent::Lost(peer, why));
            }
            pair.advance(ConnState::ReadyToReceive);
            self.note(&pair);
            outcome = Some(ConnEvent::Connected(Arc::clone(&pair)));
        }
        if hello.is_ready
            && pair.state() == ConnState::ReadyToReceive
            && pair.advance(ConnState::Established)
            && outcome.is_none()
        {
            outcome = Some(ConnEvent::Established);
        }
        if hello.wants_reply
            && pair.state() != ConnState::Closed
            && let Err(why) = self.send_hello(shared, &pair)
        {
            return Some(ConnEvent::Lost(peer, why));
        }
        outcome
    }
}

//! Connection set-up: ranks exchange the numbers of their queue pairs in datagrams, the *hellos*, which can get lost.
//! README.md has the states.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{ConnState, QpConnection, RemoteQp};
use super::hello::{HELLO, Hello};
use super::shared::{DeviceFailure, IbvShared};
use super::slots::Slots;
use super::verbs::{AddressHandle, CompletionQueue, ProtectionDomain, Qp, QpSizes};
use super::wr_id::WrId;
use crate::device::PeerId;

/// The number of hellos that can arrive between two polls. Further hellos are lost, and their senders repeat them.
pub(super) const HELLO_RECVS: usize = 128;
/// The number of hellos that this rank can have in transit.
pub(super) const HELLO_SENDS: usize = 32;

/// The length in bytes of the global routing header. Each slot has space for it before the datagram.
const GRH: usize = 40;

/// The first and the longest pause before a hello is repeated.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));

#[derive(Debug)]
pub(super) enum IbvConnEvent {
    /// This end of a queue pair is connected.
    Connected(Arc<QpConnection>),
    /// Both ends of a queue pair are connected.
    Established,
    /// The peer cannot be connected, for the reason given.
    Lost(PeerId, String),
}

#[derive(Debug)]
pub(super) struct IbvConnManager {
    // Destroyed before the memory that its work requests name.
    qp: Qp,
    recv_slots: Slots,
    send_slots: Slots,
    /// The free slots of `send_slots`.
    free: Vec<u32>,
    address_handles: HashMap<u32, AddressHandle>,
    pending: Vec<PendingHello>,
    qkey: u32,
}

/// A connection that is not established, and the time of its next hello.
#[derive(Debug)]
struct PendingHello {
    connection: Arc<QpConnection>,
    next: Instant,
    pause: Duration,
}

impl IbvConnManager {
    /// Creates the connection manager of a rank. Other ranks with the same `qkey` reach it by the number of its queue
    /// pair.
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        (port, pkey_index, qkey): (u8, u16, u32),
    ) -> std::io::Result<Self> {
        let room = QpSizes { sends: HELLO_SENDS, receives: HELLO_RECVS, inline: 0 };
        let qp = Qp::unreliable_datagram(domain, completions, room, (port, pkey_index, qkey))?;
        let mut recv_slots = Slots::new(domain, HELLO_RECVS, GRH + HELLO)?;
        for at in 0..HELLO_RECVS {
            // A device might not write the GRH, and `message` must return initialised bytes.
            // SAFETY: no slot is posted yet.
            unsafe { recv_slots.bytes_mut(at) }.fill(MaybeUninit::new(0));
        }
        let send_slots = Slots::new(domain, HELLO_SENDS, HELLO)?;
        let free = (0..HELLO_SENDS as u32).collect();
        let conn_manager = IbvConnManager {
            qp,
            recv_slots,
            send_slots,
            free,
            address_handles: HashMap::new(),
            pending: Vec::new(),
            qkey,
        };
        (0..HELLO_RECVS as u32).try_for_each(|at| conn_manager.post_recv(at))?;
        Ok(conn_manager)
    }

    pub(super) fn qpn(&self) -> u32 {
        self.qp.number()
    }

    fn post_recv(&self, at: u32) -> std::io::Result<()> {
        let place = self.recv_slots.recv_sge(at as usize, WrId::HelloReceived(at).id());
        // SAFETY: the slot is read only after its completion has come, and its memory is freed after the queue pair.
        unsafe { self.qp.receive(&[place]) }
    }

    /// Returns whether some connections might not be established yet, so that hellos are repeated.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn hello_sent(&mut self, at: u32) {
        self.free.push(at);
    }

    /// Sends a hello to a peer. [`resend_due`](Self::resend_due) repeats it until the connection is established.
    pub(super) fn start_connect(
        &mut self,
        shared: &IbvShared,
        connection: Arc<QpConnection>,
    ) -> Option<IbvConnEvent> {
        if connection.state() > ConnState::Connecting {
            return None;
        }
        self.repeat_later(&connection);
        self.send_hello(shared, &connection).err().map(|why| IbvConnEvent::Lost(connection.peer, why))
    }

    fn repeat_later(&mut self, connection: &Arc<QpConnection>) {
        if !self.pending.iter().any(|pending| Arc::ptr_eq(&pending.connection, connection)) {
            let (next, pause) = (Instant::now() + PAUSE.0, PAUSE.0);
            self.pending.push(PendingHello { connection: Arc::clone(connection), next, pause });
        }
    }

    /// Repeats the hellos that are due. Returns a `Lost` event for each peer to which that failed.
    pub(super) fn resend_due(&mut self, shared: &IbvShared) -> Vec<IbvConnEvent> {
        self.pending.retain(|pending| pending.connection.state() <= ConnState::ReadyToReceive);
        let now = Instant::now();
        let mut pending = std::mem::take(&mut self.pending);
        let due = pending.iter_mut().filter(|pending| pending.next <= now);
        let lost = due.filter_map(|pending| {
            pending.pause = (pending.pause * 2).min(PAUSE.1);
            pending.next = now + pending.pause;
            let sent = self.send_hello(shared, &pending.connection);
            sent.err().map(|why| IbvConnEvent::Lost(pending.connection.peer, why))
        });
        let lost = lost.collect();
        self.pending = pending;
        lost
    }

    /// Sends a hello with the state of this end, if a slot is free. Otherwise this rank or the peer repeats its hello.
    fn send_hello(&mut self, shared: &IbvShared, connection: &QpConnection) -> Result<(), String> {
        let state = connection.state();
        let hello = Hello {
            from: shared.site.0,
            to: connection.peer.0,
            is_ready: state >= ConnState::ReadyToReceive,
            wants_reply: state < ConnState::Established,
            card: shared.card,
            qpn: connection.qp().number(),
            psn: connection.psn,
        };
        let Some(bytes) = hello.seal(&shared.key, connection.card.nonce) else { return Ok(()) };
        let handle = match self.address_handles.entry(connection.peer.0) {
            Entry::Occupied(handle) => handle.into_mut(),
            Entry::Vacant(none) => {
                let handle = AddressHandle::new(&shared.domain, &connection.card.route(&shared.route));
                none.insert(handle.map_err(|e| format!("cannot create an address handle: {e}"))?)
            }
        };
        let Some(at) = self.free.pop() else { return Ok(()) };
        // SAFETY: the slot is free, so only this function uses it.
        let room = unsafe { self.send_slots.bytes_mut(at as usize) };
        room[..HELLO].write_copy_of_slice(&bytes);
        let piece = self.send_slots.send_sge(at as usize, HELLO);
        // SAFETY: the slot becomes free only at its completion, and its memory is freed after the queue pair.
        let sent = unsafe {
            self.qp.send_to(WrId::HelloSent(at).id(), piece, handle, connection.card.qpn, self.qkey)
        };
        sent.map_err(|e| {
            self.free.push(at);
            format!("ibv_post_send of a hello: {e}")
        })
    }

    /// Processes the datagram of `len` bytes in slot `at`.
    pub(super) fn on_datagram(&mut self, shared: &IbvShared, at: u32, len: usize) -> Option<IbvConnEvent> {
        // SAFETY: `len` includes the space of the GRH. `new` has initialised it, the device the rest.
        let message = unsafe { self.recv_slots.message(at as usize, len) };
        let hello = message.get(GRH..).and_then(|bytes| Hello::open(bytes, &shared.key, shared.card.nonce));
        let outcome = hello.and_then(|hello| self.on_hello(shared, &hello));
        if let Err(why) = self.post_recv(at) {
            shared.fail(DeviceFailure::Hellos(why.to_string()));
        }
        outcome
    }

    fn on_hello(&mut self, shared: &IbvShared, hello: &Hello) -> Option<IbvConnEvent> {
        let (rank, size) = shared.site;
        if hello.to != rank || hello.from == rank || hello.from >= size {
            return None;
        }
        let peer = PeerId(hello.from);
        let connection = match shared.get_or_create(peer, &hello.card) {
            Ok(connection) => connection,
            Err(why) => return Some(IbvConnEvent::Lost(peer, why)),
        };
        let remote = RemoteQp { qpn: hello.qpn, psn: hello.psn };
        // A hello with a card or queue pair that differs from the known one comes from another opening of the device.
        if connection.card != hello.card || *connection.remote.get_or_init(|| remote) != remote {
            return None;
        }
        let mut outcome = None;
        if connection.state() == ConnState::Connecting {
            if let Err(why) = shared.connect(&connection, remote) {
                return Some(IbvConnEvent::Lost(peer, why));
            }
            connection.advance(ConnState::ReadyToReceive);
            self.repeat_later(&connection);
            outcome = Some(IbvConnEvent::Connected(Arc::clone(&connection)));
        }
        if hello.is_ready
            && connection.state() == ConnState::ReadyToReceive
            && connection.advance(ConnState::Established)
            && outcome.is_none()
        {
            outcome = Some(IbvConnEvent::Established);
        }
        if hello.wants_reply
            && connection.state() != ConnState::Closed
            && let Err(why) = self.send_hello(shared, &connection)
        {
            return Some(IbvConnEvent::Lost(peer, why));
        }
        outcome
    }
}

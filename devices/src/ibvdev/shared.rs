//! The state that the device of a rank, its endpoints and its inlet share.

mod open;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(super) use open::open;

use super::card::IbvCard;
use super::connection::{INLINE, QpConnection, RemoteQp};
use super::port::PortSelection;
use super::recv_pool::RecvPool;
use super::slots::Slots;
use super::verbs::{CompletionQueue, Context, DeviceEvent, ProtectionDomain, Qp, QpAttrs, QpSizes, Route};
use super::{CONTROL_RECEIVES, IBV_EAGER_LIMIT, QueueSizes};
use crate::byte_order;
use crate::config::PREFIX;
use crate::device::{OpToken, PeerId};
use crate::doorbell::Doorbell;
use crate::site::JobKey;
use crate::sys;

/// The acknowledgement timeout as an exponent (4.096 µs times two to the power of this), and the number of
/// retransmissions. A peer whose host does not answer is lost after 0.9 s, or up to four times as long on some devices.
/// The number of retransmissions is not 7, because soft-RoCE retries without limit then.
const ACK_TIMEOUT: (u8, u8) = (15, 6);

/// The time without a link after which all peers are lost. Sends that are not acknowledged fail earlier.
const LINK_DOWN_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct IbvShared {
    /// The connections, by the rank of the peer.
    connections: Mutex<HashMap<u32, Arc<QpConnection>>>,
    pub(super) recv_pool: Arc<RecvPool>,
    pub(super) completions: Arc<CompletionQueue>,
    pub(super) domain: Arc<ProtectionDomain>,
    /// This rank in the world, and the number of ranks.
    pub(super) site: (u32, u32),
    pub(super) key: Arc<JobKey>,
    pub(super) card: IbvCard,
    /// The local part of the route to every peer. The peer's card supplies the remote part.
    pub(super) route: Route,
    pub(super) sizes: QueueSizes,
    selection: PortSelection,
    bell: Arc<Doorbell>,
    inlet_queue: Mutex<IbvInletQueue>,
    has_inlet_work: AtomicBool,
    link_down_since: Mutex<Option<Instant>>,
    failure: OnceLock<DeviceFailure>,
    is_fatal: AtomicBool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DeviceFailure {
    /// The device has failed, and completes no further work request.
    Fatal,
    /// The port has no link; the text describes it.
    LinkDown(String),
    /// The datagram queue pair has failed, with this error, so no more connections can be established.
    Hellos(String),
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceFailure::Fatal => f.write_str("the device of this host has failed"),
            DeviceFailure::LinkDown(why) => f.write_str(why),
            DeviceFailure::Hellos(why) => write!(f, "the datagram queue pair of this rank has failed: {why}"),
        }
    }
}

/// Work from other threads for the inlet.
#[derive(Debug, Default)]
pub(super) struct IbvInletQueue {
    /// Connections of new endpoints, whose peers must get a hello.
    pub(super) started: Vec<Arc<QpConnection>>,
    /// Operations whose memory is quiesced.
    pub(super) quiesced: Vec<OpToken>,
}

/// Returns the text for an error, with advice if the memory did not suffice.
fn explain(context: &Context, doing: &str, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::OutOfMemory => {
            "; a device locks memory: raise `ulimit -l`, or set a lower MPJ_IBV_SEND_WINDOW"
        }
        _ => "",
    };
    format!("{}: {doing}: {error}{advice}", context.name())
}

impl IbvShared {
    fn connections(&self) -> MutexGuard<'_, HashMap<u32, Arc<QpConnection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inlet_queue(&self) -> MutexGuard<'_, IbvInletQueue> {
        self.inlet_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn context(&self) -> &Context {
        &self.selection.context
    }

    /// Returns the bytes of all slots when every peer is connected, plus a quarter of that as an estimate for queues.
    pub(super) fn slot_bytes(&self) -> usize {
        let QueueSizes { window, max_message, repost_batch, .. } = self.sizes;
        let peers = self.site.1.saturating_sub(1) as usize;
        let slots = peers * (2 * usize::from(window) + CONTROL_RECEIVES) + repost_batch;
        slots.saturating_mul(max_message).saturating_add(slots.saturating_mul(max_message) / 4)
    }

    pub(super) fn longest_read(&self) -> usize {
        self.selection.port.max_message.min(1 << 30)
    }

    /// Returns whether a rank with this card can be reachable: both ports have the same link layer.
    pub(super) fn reaches(&self, card: &IbvCard) -> bool {
        card.is_ethernet == self.card.is_ethernet
    }

    pub(super) fn get(&self, peer: PeerId) -> Option<Arc<QpConnection>> {
        self.connections().get(&peer.0).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<QpConnection>> {
        self.connections().values().cloned().collect()
    }

    /// Returns the connection to a peer. The first call creates it.
    pub(super) fn get_or_create(&self, peer: PeerId, card: &IbvCard) -> Result<Arc<QpConnection>, String> {
        let mut connections = self.connections();
        if let Some(connection) = connections.get(&peer.0) {
            return Ok(Arc::clone(connection));
        }
        if let Some(failure) = self.failure() {
            return Err(failure.to_string());
        }
        byte_order::check(peer, card.is_big_endian)?;
        if card.max_message != self.card.max_message {
            return Err(format!(
                "{PREFIX}{} gives receives of {} bytes on this rank and of {} bytes on rank {}: it must be equal on all ranks",
                IBV_EAGER_LIMIT.name, self.card.max_message, card.max_message, peer.0
            ));
        }
        let connection = self
            .make(peer, card)
            .map_err(|e| explain(self.context(), "no queue pair for one more peer", &e))?;
        let connection = Arc::new(connection);
        connections.insert(peer.0, Arc::clone(&connection));
        Ok(connection)
    }

    fn make(&self, peer: PeerId, card: &IbvCard) -> io::Result<QpConnection> {
        let QueueSizes { window, sends, max_message, .. } = self.sizes;
        let room = QpSizes { sends, receives: 0, inline: INLINE };
        let qp = Qp::reliable_connected(&self.domain, &self.completions, self.recv_pool.queue(), room)?;
        qp.to_init(self.selection.port.number, self.selection.pkey_index)?;
        let slots = Slots::new(&self.domain, window.into(), max_message)?;
        let mut psn = [0; 4];
        // This does not fail, because `open` has already obtained random numbers.
        sys::random(&mut psn);
        let psn = u32::from_le_bytes(psn) & 0xff_ffff;
        self.recv_pool.add(usize::from(window) + CONTROL_RECEIVES)?;
        Ok(QpConnection::new(qp, peer, *card, psn, self.sizes, (slots, Arc::clone(&self.recv_pool))))
    }

    pub(super) fn connect(&self, connection: &QpConnection, remote: RemoteQp) -> Result<(), String> {
        let attrs = QpAttrs {
            mtu: self.card.mtu.min(connection.card.mtu),
            reads: self.card.reads.min(connection.card.reads),
            timeout: ACK_TIMEOUT.0,
            retries: ACK_TIMEOUT.1,
        };
        let route = connection.card.route(&self.route);
        let connected = connection.qp().connect(&route, (remote.qpn, remote.psn), connection.psn, attrs);
        connected.map_err(|e| explain(self.context(), "the queue pair cannot be connected", &e))
    }

    fn push_to_inlet(&self, what: impl FnOnce(&mut IbvInletQueue)) {
        what(&mut self.inlet_queue());
        // SYNC ibv-news (release)
        self.has_inlet_work.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Makes the inlet send hellos to a peer until the connection is established.
    pub(super) fn queue_connect(&self, connection: &Arc<QpConnection>) {
        self.push_to_inlet(|inlet_queue| inlet_queue.started.push(Arc::clone(connection)));
    }

    /// Releases the receives of a connection that an endpoint has closed, and makes the inlet report the operations
    /// whose memory is quiesced by that.
    pub(super) fn release_closed(&self, connection: &QpConnection, quiesced: Vec<OpToken>) {
        self.recv_pool.release(connection.receives());
        self.push_to_inlet(|inlet_queue| inlet_queue.quiesced.extend(quiesced));
    }

    #[inline]
    pub(super) fn has_inlet_work(&self) -> bool {
        // SYNC ibv-news (acquire)
        self.has_inlet_work.load(Ordering::Acquire)
    }

    pub(super) fn take_inlet_work(&self) -> IbvInletQueue {
        let mut inlet_queue = self.inlet_queue();
        self.has_inlet_work.store(false, Ordering::Relaxed);
        std::mem::take(&mut inlet_queue)
    }

    /// Returns the reason why no peer is reachable, if there is one.
    #[inline]
    pub(super) fn failure(&self) -> Option<&DeviceFailure> {
        self.failure.get()
    }

    /// Returns whether the device completes no further work request.
    pub(super) fn is_fatal(&self) -> bool {
        self.is_fatal.load(Ordering::Acquire)
    }

    /// Makes the inlet report all peers as lost. The reason is the first failure that was recorded.
    pub(super) fn fail(&self, failure: DeviceFailure) {
        if failure == DeviceFailure::Fatal {
            self.is_fatal.store(true, Ordering::Release);
        }
        let _ = self.failure.set(failure);
        self.bell.ring();
    }

    fn no_link(&self) -> String {
        format!("port {} of {} has lost its link", self.selection.port.number, self.context().name())
    }

    /// Returns an error text if the port has no link, even if the device has not reported an event yet.
    pub(super) fn link_down_reason(&self) -> Option<String> {
        self.poll_device_events();
        let is_down = || self.context().port(self.selection.port.number).is_ok_and(|port| !port.is_active);
        (self.link_down_since().is_some() || is_down()).then(|| self.no_link())
    }

    fn link_down_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.link_down_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn poll_device_events(&self) {
        let port = self.selection.port.number;
        while let Some(event) = self.context().next_event() {
            match event {
                DeviceEvent::Failed => self.fail(DeviceFailure::Fatal),
                DeviceEvent::LinkLost(number) if number == port => {
                    self.link_down_since().get_or_insert_with(Instant::now);
                }
                DeviceEvent::LinkBack(number) if number == port => *self.link_down_since() = None,
                DeviceEvent::LinkLost(_) | DeviceEvent::LinkBack(_) => (),
            }
        }
        let since = *self.link_down_since();
        if since.is_some_and(|since| since.elapsed() >= LINK_DOWN_LIMIT) {
            self.fail(DeviceFailure::LinkDown(self.no_link()));
        }
    }
}

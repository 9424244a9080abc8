//! The state that the device of a rank, its endpoints and its inlet share, and the opening of the device.
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::card::IbvCard;
use super::conn_manager::{self, IbvConnManager};
use super::connection::{INLINE, QpConnection, RemoteQp};
use super::frame::HEADER;
use super::port::PortSelection;
use super::recv_pool::RecvPool;
use super::slots::Slots;
use super::verbs::{
    CompletionQueue, Context, DeviceEvent, Limits, ProtectionDomain, Qp, QpAttrs, QpSizes, Route,
};
use super::{CONTROL_RECEIVES, IBV_EAGER_LIMIT, IBV_SEND_WINDOW, MAX_READS, QueueSizes, fragment};
use crate::byte_order;
use crate::config::{Config, PREFIX};
use crate::device::{HEAD_MAX, OpToken, PeerId};
use crate::doorbell::Doorbell;
use crate::site::{JobKey, Site};
use crate::sys;

/// The acknowledgement timeout as an exponent (4.096 µs times two to the power of this), and the number of
/// retransmissions. A peer whose host does not answer is lost after 0.9 s, or up to four times as long on some devices.
/// The number of retransmissions is not 7, because soft-RoCE retries without limit then.
const ACK_TIMEOUT: (u8, u8) = (15, 6);

/// The time without a link after which all peers are lost. Sends that are not acknowledged fail earlier.
const LINK_DOWN_LIMIT: Duration = Duration::from_secs(5);

/// The number of work requests of a queue pair in addition to frames: for reads, control messages and fence reads.
const EXTRA_SENDS: usize = MAX_READS + 8;

const MIN_WINDOW: usize = 4;

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

pub(super) fn open(
    key: Arc<JobKey>,
    site: &Site,
    config: &Config,
) -> Result<(Arc<IbvShared>, IbvConnManager), String> {
    let selection = PortSelection::new(config)?;
    let context = Arc::clone(&selection.context);
    let explain = |doing: &str, error: io::Error| explain(&context, doing, &error);
    let limits = context.limits().map_err(|e| explain("it does not answer", e))?;
    let peers = site.size.saturating_sub(1).max(1) as usize;
    let sizes = queue_sizes(&limits, peers, config).ok_or_else(|| {
        format!(
            "{} has no room for the queues of {peers} peers: use fewer ranks, or another device",
            context.name()
        )
    })?;
    let domain =
        ProtectionDomain::new(Arc::clone(&context)).map_err(|e| explain("no protection domain", e))?;
    let receives = peers * (usize::from(sizes.window) + CONTROL_RECEIVES) + sizes.repost_batch;
    let room = receives + peers * sizes.sends + conn_manager::HELLO_RECVS + conn_manager::HELLO_SENDS;
    let completions = CompletionQueue::new(&context, room).map_err(|e| explain("no completion queue", e))?;
    let recv_pool = RecvPool::new(&domain, receives, sizes.max_message, sizes.repost_batch);
    let recv_pool = recv_pool.map_err(|e| explain("no shared receive queue", e))?;
    // The qkey is not secret: it only filters out hellos of other jobs. Its highest bit is for privileged programs.
    let qkey = (key.job ^ key.job >> 32) as u32 & 0x7fff_ffff;
    let address = (selection.port.number, selection.pkey_index, qkey);
    let conn_manager = IbvConnManager::new(&domain, &completions, address)
        .map_err(|e| explain("no queue pair for hellos", e))?;
    let mut nonce = [0; 8];
    if !sys::random(&mut nonce) {
        return Err("the host has no random numbers".into());
    }
    let card = IbvCard {
        is_ethernet: selection.port.is_ethernet,
        is_big_endian: byte_order::IS_BIG_ENDIAN,
        lid: selection.port.lid,
        gid: selection.gid,
        qpn: conn_manager.qpn(),
        nonce: u64::from_le_bytes(nonce),
        slot: sizes.max_message as u32,
        window: sizes.window,
        mtu: selection.mtu,
        reads: limits.max_reads.clamp(1, MAX_READS as u8),
    };
    let route = Route {
        port: selection.port.number,
        gid_index: selection.gid_index,
        gid: selection.gid,
        lid: selection.port.lid,
        service_level: selection.service_level,
    };
    log::debug!("rank {}: port {} of {}", site.rank, selection.port.number, context.name());
    let shared = IbvShared {
        connections: Mutex::default(),
        recv_pool,
        completions,
        domain,
        site: (site.rank, site.size),
        key,
        card,
        route,
        sizes,
        selection,
        bell: Arc::clone(&site.bell),
        inlet_queue: Mutex::default(),
        has_inlet_work: AtomicBool::new(false),
        link_down_since: Mutex::default(),
        failure: OnceLock::new(),
        is_fatal: AtomicBool::new(false),
    };
    Ok((Arc::new(shared), conn_manager))
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

/// Divides the resources of a device among the peers. Returns `None` if they do not suffice for the [`MIN_WINDOW`].
fn queue_sizes(limits: &Limits, peers: usize, config: &Config) -> Option<QueueSizes> {
    let received = (limits.max_shared_receives.checked_sub(config.size(&IBV_SEND_WINDOW))? / peers)
        .checked_sub(CONTROL_RECEIVES)?;
    let completed = (limits.max_completions.checked_sub(
        conn_manager::HELLO_RECVS + conn_manager::HELLO_SENDS + config.size(&IBV_SEND_WINDOW),
    )? / peers)
        .checked_sub(EXTRA_SENDS + CONTROL_RECEIVES)?
        / 2;
    let sent = limits.max_work_requests.checked_sub(EXTRA_SENDS)?;
    let window = config.size(&IBV_SEND_WINDOW).min(received).min(completed).min(sent);
    let max_message = HEADER + HEAD_MAX + fragment(config);
    (window >= MIN_WINDOW).then_some(QueueSizes {
        window: u16::try_from(window).ok()?,
        sends: window + EXTRA_SENDS,
        max_message,
        signal: (window / 4) as u64,
        repost_batch: window / 4,
    })
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
        if card.slot != self.card.slot {
            return Err(format!(
                "{PREFIX}{} gives receives of {} bytes on this rank and of {} bytes on rank {}: it must be equal on all ranks",
                IBV_EAGER_LIMIT.name, self.card.slot, card.slot, peer.0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_shrinks_with_more_peers_until_the_device_is_refused() {
        let config = Config::default();
        let limits = Limits {
            max_work_requests: 16_384,
            max_completions: 32_767,
            max_shared_receives: 32_768,
            max_reads: 16,
            ports: 1,
        };
        assert_eq!(queue_sizes(&limits, 1, &config).unwrap().window, 32);
        let window_of = |peers: usize| {
            let sizes = queue_sizes(&limits, peers, &config)?;
            let window = usize::from(sizes.window);
            let receives = peers * (window + CONTROL_RECEIVES) + sizes.repost_batch;
            assert!(receives <= limits.max_shared_receives, "{peers} peers: {receives} receives");
            assert!(
                receives + peers * sizes.sends + conn_manager::HELLO_RECVS + conn_manager::HELLO_SENDS
                    <= limits.max_completions
            );
            assert!(sizes.repost_batch > 0 && sizes.signal > 0 && sizes.sends > window);
            Some(window)
        };
        let windows: Vec<_> = [10, 100, 500, 900, 1000, 5000].into_iter().map(window_of).collect();
        assert_eq!(windows[..2], [Some(32), Some(32)]);
        assert!(windows.is_sorted_by(|a, b| a >= b), "{windows:?}");
        assert_eq!(windows[4..], [None, None]);
    }
}

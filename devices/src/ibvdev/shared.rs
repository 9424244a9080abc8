//! The state that the device of a rank, its endpoints and its inlet share.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::card::Card;
use super::conn_manager::{self, ConnManager};
use super::connection::{INLINE, QpConnection, RemoteQp};
use super::frame::HEADER;
use super::port::PortSelection;
use super::recv_pool::RecvPool;
use super::slots::Slots;
use super::verbs::{
    CompletionQueue, Context, DeviceEvent, Limits, ProtectionDomain, Qp, QpAttrs, QpSizes, Route,
};
use super::{IBV_EAGER_LIMIT, IBV_SEND_WINDOW, QueueSizes, READS, RESERVED, fragment};
use crate::config::{Config, PREFIX};
use crate::device::{HEAD_MAX, OpToken, PeerId};
use crate::doorbell::Doorbell;
use crate::order;
use crate::site::{JobKey, Site};
use crate::sys;

/// The acknowledgement timeout, as an exponent: 4.096 µs times two to the power of this; and the number of
/// retransmissions. A peer whose host does not answer is given up after 0.9 s, or after up to four times as long on
/// some devices. The number is not 7, because soft-RoCE takes 7 for infinity.
const ACK_TIMEOUT: (u8, u8) = (15, 6);

/// The time without a link after which all peers are lost. It equals the time for which a dead peer can go unnoticed.
const LINK_DOWN_LIMIT: Duration = Duration::from_secs(5);

/// The work requests of a queue pair in addition to frames: reads, control messages, and the mark that all have
/// arrived.
const EXTRA_SENDS: usize = READS + 8;

/// The minimum number of frames in transit to one peer.
const LEAST: usize = 4;

/// The state that the device of a rank, its endpoints and its inlet share.
#[derive(Debug)]
pub(super) struct IbvShared {
    /// The queue pairs, by peer.
    pairs: Mutex<HashMap<u32, Arc<QpConnection>>>,
    pub(super) stock: Arc<RecvPool>,
    pub(super) completions: Arc<CompletionQueue>,
    pub(super) domain: Arc<ProtectionDomain>,
    /// This rank's number in the world, and the number of ranks.
    pub(super) site: (u32, u32),
    pub(super) key: Arc<JobKey>,
    pub(super) card: Card,
    /// The local part of a route. The card of a peer supplies the remote part.
    pub(super) route: Route,
    pub(super) plan: QueueSizes,
    chosen: PortSelection,
    bell: Arc<Doorbell>,
    news: Mutex<InletQueue>,
    has_news: AtomicBool,
    /// The time at which the port lost its link, if it has no link.
    lost: Mutex<Option<Instant>>,
    failure: OnceLock<DeviceFailure>,
}

/// The reason why no peer is reachable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DeviceFailure {
    /// The device has failed, and completes no further work request.
    Fatal,
    /// The port has no link; the text describes it.
    LinkDown(String),
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceFailure::Fatal => f.write_str("the device of this host has failed"),
            DeviceFailure::LinkDown(why) => f.write_str(why),
        }
    }
}

/// Work from other threads for the inlet.
#[derive(Debug, Default)]
pub(super) struct InletQueue {
    /// Queue pairs that are new and need a hello.
    pub(super) started: Vec<Arc<QpConnection>>,
    /// Operations whose memory is quiesced.
    pub(super) quiet: Vec<OpToken>,
}

/// Opens the device for a rank.
pub(super) fn open(
    key: Arc<JobKey>,
    site: &Site,
    config: &Config,
) -> Result<(Arc<IbvShared>, ConnManager), String> {
    let chosen = PortSelection::new(config)?;
    let context = Arc::clone(&chosen.context);
    let explain = |doing: &str, error: io::Error| explain(&context, doing, &error);
    let limits = context.limits().map_err(|e| explain("it does not answer", e))?;
    let peers = site.size.saturating_sub(1).max(1) as usize;
    let plan = plan(&limits, peers, config).ok_or_else(|| {
        format!(
            "{} has no room for the queues of {peers} peers: use fewer ranks, or another device",
            context.name()
        )
    })?;
    let domain =
        ProtectionDomain::new(Arc::clone(&context)).map_err(|e| explain("no protection domain", e))?;
    let receives = peers * (usize::from(plan.window) + RESERVED) + plan.watermark;
    let room = receives + peers * plan.sends + conn_manager::HEARD + conn_manager::SAID;
    let completions = CompletionQueue::new(&context, room).map_err(|e| explain("no completion queue", e))?;
    let stock = RecvPool::new(&domain, receives, plan.slot, plan.watermark);
    let stock = stock.map_err(|e| explain("no shared receive queue", e))?;
    // Not a secret: it rejects the hellos of other jobs. The highest bit is reserved for privileged programs.
    let qkey = (key.job ^ key.job >> 32) as u32 & 0x7fff_ffff;
    let terms = (chosen.port.number, chosen.pkey_index, qkey);
    let lobby =
        ConnManager::new(&domain, &completions, terms).map_err(|e| explain("no queue pair for hellos", e))?;
    let mut nonce = [0; 8];
    if !sys::random(&mut nonce) {
        return Err("the host has no random numbers".into());
    }
    let card = Card {
        is_ethernet: chosen.port.is_ethernet,
        is_big_endian: order::IS_BIG_ENDIAN,
        lid: chosen.port.lid,
        gid: chosen.gid,
        qpn: lobby.qpn(),
        nonce: u64::from_le_bytes(nonce),
        slot: plan.slot as u32,
        window: plan.window,
        mtu: chosen.mtu,
        reads: limits.reads.clamp(1, READS as u8),
    };
    let route = Route {
        port: chosen.port.number,
        gid_index: chosen.gid_index,
        gid: chosen.gid,
        lid: chosen.port.lid,
        service_level: chosen.service_level,
    };
    log::debug!("rank {}: port {} of {}", site.rank, chosen.port.number, context.name());
    let shared = IbvShared {
        pairs: Mutex::default(),
        stock,
        completions,
        domain,
        site: (site.rank, site.size),
        key,
        card,
        route,
        plan,
        chosen,
        bell: Arc::clone(&site.bell),
        news: Mutex::default(),
        has_news: AtomicBool::new(false),
        lost: Mutex::default(),
        failure: OnceLock::new(),
    };
    Ok((Arc::new(shared), lobby))
}

/// Returns the message for an error, with advice.
fn explain(context: &Context, doing: &str, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::OutOfMemory => {
            "; a device locks memory: raise `ulimit -l`, or set a lower MPJ_IBV_SEND_WINDOW"
        }
        _ => "",
    };
    format!("{}: {doing}: {error}{advice}", context.name())
}

/// Divides the resources of a device among the peers. Returns `None` if they are too few.
fn plan(limits: &Limits, peers: usize, config: &Config) -> Option<QueueSizes> {
    let received =
        (limits.shared_queue.checked_sub(config.size(&IBV_SEND_WINDOW))? / peers).checked_sub(RESERVED)?;
    let told = (limits
        .completions
        .checked_sub(conn_manager::HEARD + conn_manager::SAID + config.size(&IBV_SEND_WINDOW))?
        / peers)
        .checked_sub(EXTRA_SENDS + RESERVED)?
        / 2;
    let sent = limits.queue.checked_sub(EXTRA_SENDS)?;
    let window = config.size(&IBV_SEND_WINDOW).min(received).min(told).min(sent);
    let slot = HEADER + HEAD_MAX + fragment(config);
    (window >= LEAST).then_some(QueueSizes {
        window: u16::try_from(window).ok()?,
        sends: window + EXTRA_SENDS,
        slot,
        signal: (window / 4) as u64,
        watermark: window / 4,
    })
}

impl IbvShared {
    fn pairs(&self) -> MutexGuard<'_, HashMap<u32, Arc<QpConnection>>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn news(&self) -> MutexGuard<'_, InletQueue> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn context(&self) -> &Context {
        &self.chosen.context
    }

    /// Returns how many bytes the slots for all peers take when all are connected, plus a quarter of that for queues.
    pub(super) fn slots(&self) -> usize {
        let QueueSizes { window, slot, watermark, .. } = self.plan;
        let peers = self.site.1.saturating_sub(1) as usize;
        let slots = peers * (2 * usize::from(window) + RESERVED) + watermark;
        slots.saturating_mul(slot).saturating_add(slots.saturating_mul(slot) / 4)
    }

    /// Returns the maximum length of one read in bytes.
    pub(super) fn longest_read(&self) -> usize {
        self.chosen.port.message.min(1 << 30)
    }

    /// Whether a rank with this card is reachable: both ports have the same link layer.
    pub(super) fn reaches(&self, card: &Card) -> bool {
        card.is_ethernet == self.card.is_ethernet
    }

    /// Returns the queue pair to a peer, if there is one.
    pub(super) fn get(&self, peer: PeerId) -> Option<Arc<QpConnection>> {
        self.pairs().get(&peer.0).cloned()
    }

    /// Returns all queue pairs.
    pub(super) fn all(&self) -> Vec<Arc<QpConnection>> {
        self.pairs().values().cloned().collect()
    }

    /// Returns the queue pair to a peer, and creates it at first use.
    pub(super) fn get_or_create(&self, peer: PeerId, card: &Card) -> Result<Arc<QpConnection>, String> {
        let mut pairs = self.pairs();
        if let Some(pair) = pairs.get(&peer.0) {
            return Ok(Arc::clone(pair));
        }
        if let Some(failure) = self.failure() {
            return Err(failure.to_string());
        }
        order::check(peer, card.is_big_endian)?;
        if card.slot != self.card.slot {
            return Err(format!(
                "{PREFIX}{} gives receives of {} bytes here and of {} bytes at rank {}: set it for all ranks alike",
                IBV_EAGER_LIMIT.name, self.card.slot, card.slot, peer.0
            ));
        }
        let pair = self
            .make(peer, card)
            .map_err(|e| explain(self.context(), "no queue pair for one more peer", &e))?;
        let pair = Arc::new(pair);
        pairs.insert(peer.0, Arc::clone(&pair));
        Ok(pair)
    }

    fn make(&self, peer: PeerId, card: &Card) -> io::Result<QpConnection> {
        let QueueSizes { window, sends, slot, .. } = self.plan;
        let room = QpSizes { sends, receives: 0, inline: INLINE };
        let qp = Qp::reliable_connected(&self.domain, &self.completions, self.stock.queue(), room)?;
        qp.to_init(self.chosen.port.number, self.chosen.pkey_index)?;
        let slots = Slots::new(&self.domain, window.into(), slot)?;
        let mut psn = [0; 4];
        // This does not fail: the device has opened, which needed random numbers.
        sys::random(&mut psn);
        let psn = u32::from_le_bytes(psn) & 0xff_ffff;
        self.stock.add(usize::from(window) + RESERVED)?;
        Ok(QpConnection::new(qp, peer, *card, psn, self.plan, (slots, Arc::clone(&self.stock))))
    }

    /// Connects this end of a queue pair.
    pub(super) fn connect(&self, pair: &QpConnection, remote: RemoteQp) -> Result<(), String> {
        let manner = QpAttrs {
            mtu: self.card.mtu.min(pair.card.mtu),
            reads: self.card.reads.min(pair.card.reads),
            timeout: ACK_TIMEOUT.0,
            retries: ACK_TIMEOUT.1,
        };
        let route = pair.card.route(&self.route);
        let connected = pair.qp().connect(&route, (remote.qpn, remote.psn), pair.psn, manner);
        connected.map_err(|e| explain(self.context(), "the queue pair cannot be connected", &e))
    }

    fn push_to_inlet(&self, what: impl FnOnce(&mut InletQueue)) {
        what(&mut self.news());
        // SYNC ibv-news (release)
        self.has_news.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Makes the inlet send hellos to a peer until the queue pair is established.
    pub(super) fn queue_connect(&self, pair: &Arc<QpConnection>) {
        self.push_to_inlet(|news| news.started.push(Arc::clone(pair)));
    }

    /// Records that an endpoint has closed its queue pair, and which operations are quiesced by that.
    pub(super) fn ended(&self, pair: &QpConnection, quiet: Vec<OpToken>) {
        self.stock.release(pair.receives());
        self.push_to_inlet(|news| news.quiet.extend(quiet));
    }

    #[inline]
    pub(super) fn has_news(&self) -> bool {
        // SYNC ibv-news (acquire)
        self.has_news.load(Ordering::Acquire)
    }

    pub(super) fn take_news(&self) -> InletQueue {
        let mut news = self.news();
        self.has_news.store(false, Ordering::Relaxed);
        std::mem::take(&mut news)
    }

    /// Returns the reason why no peer is reachable, if that is so.
    #[inline]
    pub(super) fn failure(&self) -> Option<&DeviceFailure> {
        self.failure.get()
    }

    /// Makes the inlet report all peers as lost.
    pub(super) fn fail(&self, failure: DeviceFailure) {
        let _ = self.failure.set(failure);
        self.bell.ring();
    }

    fn no_link(&self) -> String {
        format!("port {} of {} has lost its link", self.chosen.port.number, self.context().name())
    }

    /// Returns the message that the port has no link, if that is so, even before the device has reported it.
    pub(super) fn link_down_reason(&self) -> Option<String> {
        self.poll_device_events();
        let has_lost = || self.context().port(self.chosen.port.number).is_ok_and(|port| !port.is_active);
        (self.link_down_since().is_some() || has_lost()).then(|| self.no_link())
    }

    fn link_down_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes the events of the device and its port.
    pub(super) fn poll_device_events(&self) {
        let port = self.chosen.port.number;
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
    fn a_small_device_is_divided_among_its_peers_until_there_is_too_little() {
        let config = Config::default();
        let limits = Limits { queue: 16_384, completions: 32_767, shared_queue: 32_768, reads: 16, ports: 1 };
        assert_eq!(plan(&limits, 1, &config).unwrap().window, 32);
        let plan_of = |peers: usize| {
            let plan = plan(&limits, peers, &config)?;
            let window = usize::from(plan.window);
            let receives = peers * (window + RESERVED) + plan.watermark;
            assert!(receives <= limits.shared_queue, "{peers} peers: {receives} receives");
            assert!(
                receives + peers * plan.sends + conn_manager::HEARD + conn_manager::SAID
                    <= limits.completions
            );
            assert!(plan.watermark > 0 && plan.signal > 0 && plan.sends > window);
            Some(window)
        };
        let windows: Vec<_> = [10, 100, 500, 900, 1000, 5000].into_iter().map(plan_of).collect();
        assert_eq!(windows[..2], [Some(32), Some(32)]);
        assert!(windows.is_sorted_by(|a, b| a >= b), "{windows:?}");
        assert_eq!(windows[4..], [None, None]);
    }
}

//! Opens the device: its queues, sized for all peers, and the card of this rank.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use super::super::card::IbvCard;
use super::super::conn_manager::{self, IbvConnManager};
use super::super::frame::HEADER;
use super::super::port::PortSelection;
use super::super::recv_pool::RecvPool;
use super::super::verbs::{CompletionQueue, Limits, ProtectionDomain, Route};
use super::super::{CONTROL_RECEIVES, IBV_SEND_WINDOW, MAX_READS, QueueSizes, fragment};
use super::{IbvShared, explain};
use crate::byte_order;
use crate::config::Config;
use crate::device::HEAD_MAX;
use crate::site::{JobKey, Site};
use crate::sys;

/// The number of work requests of a queue pair in addition to frames: for reads, control messages and fence reads.
const EXTRA_SENDS: usize = MAX_READS + 8;

/// The minimum number of frames that a rank may have outstanding to one peer.
const MIN_WINDOW: usize = 4;

/// Opens the device of a rank.
pub(in crate::ibvdev) fn open(
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
    let card = make_card(&selection, sizes, &limits, conn_manager.qpn())?;
    let route = Route {
        port: selection.port.number,
        gid_index: selection.gid_index,
        dgid: selection.gid,
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

/// Returns the card of this rank, whose queue pair `qpn` receives hellos.
fn make_card(
    selection: &PortSelection,
    sizes: QueueSizes,
    limits: &Limits,
    qpn: u32,
) -> Result<IbvCard, String> {
    let mut nonce = [0; 8];
    if !sys::random(&mut nonce) {
        return Err("the host has no random numbers".into());
    }
    Ok(IbvCard {
        is_ethernet: selection.port.is_ethernet,
        is_big_endian: byte_order::IS_BIG_ENDIAN,
        lid: selection.port.lid,
        gid: selection.gid,
        qpn,
        nonce: u64::from_le_bytes(nonce),
        max_message: sizes.max_message as u32,
        window: sizes.window,
        mtu: selection.mtu,
        reads: limits.max_reads.clamp(1, MAX_READS as u8),
    })
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

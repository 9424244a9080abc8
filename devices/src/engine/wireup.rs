//! Wireup: requests the cards of a peer, connects, and then sends the messages that were queued.
//!
//! ```text
//!   Requested ── its cards come, a device connects ──► Connected
//!     ▲   └─ no valid cards, or no device can connect ──────► Unreachable
//!     └───────── the next message or reply requests them again ──┘
//! ```
//! If a peer that waits for a reply cannot be reached, it is reported dead. Otherwise both ranks might wait for ever.
//!
//! Wireup never blocks. A peer has an outbox as soon as a rank first sends to it, and messages are queued there. When
//! the cards arrive, on any thread, the doorbell rings. A thread that makes progress, or first sends to a peer, then
//! connects, and sends the queued messages in order. If the peer exits first, its exit fails them.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use super::channel::Channel;
use super::flush::MAX_AWAITING_REPLY;
use super::peer::{DeferredSend, Outbox, Peer, Wireup};
use super::send::Mode;
use super::{Engine, lock};
use crate::biased::MutexGuard;
use crate::completion::{Started, pair};
use crate::device::{Address, Caps, Device, Endpoint, PeerId};
use crate::fault::Fault;
use crate::liveness::Exit;
use crate::message::{Envelope, Source};
use crate::site::Callback;

/// Publishes a rank's cards, and requests those of its peers.
pub trait CardExchange: Send + Sync + fmt::Debug {
    /// Publishes this rank's cards: the name and address of each of its devices.
    ///
    /// # Errors
    /// The error of the start-up service.
    fn publish(&self, cards: Vec<(String, Address)>) -> Result<(), String>;

    /// Requests the cards of a rank; returns at once.
    ///
    /// `then` is called with the cards, or with the error of the start-up service, on any thread, possibly on this one
    /// before this method returns. It is never called if that rank exits before it has published its cards; the
    /// [`Roster`](crate::Roster) reports the exit.
    fn request(&self, rank: u32, then: Callback<Vec<(String, Address)>>);
}

pub(super) type CardReply = (PeerId, Result<Vec<(String, Address)>, String>);

impl Engine {
    /// Returns a peer; the first use requests its cards.
    #[inline]
    pub(crate) fn peer(&self, id: PeerId) -> Result<&Peer, Fault> {
        match self.peers.get(id) {
            Some(peer) => Ok(peer),
            None => self.create_peer(id),
        }
    }

    #[cold]
    fn create_peer(&self, id: PeerId) -> Result<&Peer, Fault> {
        let mut is_new = false;
        let peer = self.peers.get_or_init(id, || {
            is_new = true;
            Peer::new(id, self.credit.initial, &self.bias)
        });
        let no_such_rank = || Fault::Unreachable { rank: id.0, why: "no such rank in the world".into() };
        let peer = peer.ok_or_else(no_such_rank)?;
        if is_new {
            self.request_cards(id);
        }
        Ok(peer)
    }

    fn request_cards(&self, id: PeerId) {
        self.request(id);
        // `request` might have called the callback already.
        self.process_cards();
    }

    fn request(&self, id: PeerId) {
        let (replies, bell) = (Arc::clone(&self.received_cards), Arc::clone(&self.site.bell));
        let then = move |cards| {
            lock(&replies).push((id, cards));
            bell.ring();
        };
        self.cards.request(id.0, Box::new(then));
        // The exit of the peer might have been applied before.
        self.recheck_peer(id);
    }

    /// Requests the cards of an unreachable peer again, before a frame to it. Returns whether the peer was unreachable.
    #[cold]
    pub(super) fn retry_wireup(&self, out: &mut Outbox) -> bool {
        let was_unreachable = out.wireup == Wireup::Unreachable;
        if was_unreachable {
            out.wireup = Wireup::Requested;
            out.is_closed = false;
            self.request(out.id);
        }
        was_unreachable
    }

    /// Connects to the peers whose cards have arrived, and sends their deferred messages. Returns the number of queued
    /// frames and pieces that were posted.
    pub(super) fn process_cards(&self) -> usize {
        let replies = std::mem::take(&mut *lock(&self.received_cards));
        replies.into_iter().map(|(id, cards)| self.process_card(id, cards)).sum()
    }

    fn process_card(&self, id: PeerId, cards: Result<Vec<(String, Address)>, String>) -> usize {
        let Some(peer) = self.peers.get(id) else { return 0 };
        if peer.outbox().is_closed {
            return 0;
        }
        let connected = cards.and_then(|cards| self.connect(id, &cards));
        let mut out = peer.outbox();
        match connected {
            _ if out.is_closed => 0,
            Ok((device, endpoint)) => {
                self.attach(peer, &mut out, device, endpoint);
                self.flush(peer, out, &mut Vec::new())
            }
            Err(why) => {
                out.wireup = Wireup::Unreachable;
                // The frames that are queued for an unconnected peer are replies, their `Bind` frames and credit. The
                // peer might wait for them for ever.
                let is_owed = !out.queued_frames.is_empty()
                    && matches!(self.exit_of(id.0), None | Some(Exit::ClosingExcept(_)));
                self.close_outbox(out, &Fault::Unreachable { rank: id.0, why: why.as_str().into() });
                if is_owed {
                    self.report_protocol_error(id, &format!("it cannot be replied to: {why}"));
                }
                0
            }
        }
    }

    fn connect(&self, id: PeerId, cards: &[(String, Address)]) -> Result<(usize, Box<dyn Endpoint>), String> {
        let best = self
            .devices
            .iter()
            .enumerate()
            .filter_map(|(index, device)| {
                let (_, address) = cards.iter().find(|(name, _)| name == device.name())?;
                Some((device.affinity(address)?, index, address))
            })
            .max_by_key(|(affinity, index, _)| (*affinity, Reverse(*index)));
        let Some((_, index, address)) = best else {
            let mine: Vec<_> = self.devices.iter().map(|d| d.name()).collect();
            let its: Vec<_> = cards.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!(
                "no device in common (here: {}; there: {})",
                mine.join(", "),
                its.join(", ")
            ));
        };
        let device = &self.devices[index];
        log::debug!("rank {}: reaches rank {} by {}", self.site.rank, id.0, device.name());
        let endpoint = device.connect(id, address).map_err(|e| e.to_string())?;
        Ok((index, endpoint))
    }

    /// Gives a peer its endpoint, and posts or queues the messages that waited for it.
    fn attach(&self, peer: &Peer, out: &mut Outbox, device: usize, endpoint: Box<dyn Endpoint>) {
        // Set once: each request has one reply, and a connected peer is not requested again.
        let _ = peer.device.set(device);
        out.wireup = Wireup::Connected;
        out.caps = self.devices[device].caps().clone();
        if let Some(most) = endpoint.peer_max_body() {
            out.caps.max_send_size = out.caps.max_send_size.min(most);
            out.caps.eager_limit = out.caps.eager_limit.min(most);
        }
        out.endpoint = endpoint;
        out.send_credit = self.credit.initial;
        let was_idle = out.is_idle();
        let deferred = std::mem::take(&mut out.deferred_sends);
        self.note_busy(was_idle, out);
        for message in deferred {
            self.send_deferred(peer, out, message);
        }
    }

    /// Queues a message until its peer is connected; fails if [`MAX_AWAITING_REPLY`] messages are queued already.
    #[cold]
    pub(super) fn defer_send(
        &self,
        channel: &Arc<Channel>,
        peer: &Peer,
        mut out: MutexGuard<'_, Outbox>,
        message: Envelope,
        source: Source,
        mode: Mode,
    ) -> Result<Started, Fault> {
        if out.deferred_sends.len() as u64 >= MAX_AWAITING_REPLY {
            return Err(Fault::TooManyMessages { rank: peer.id.0, limit: MAX_AWAITING_REPLY });
        }
        let (completer, completion) = pair();
        let was_idle = out.is_idle();
        self.retry_wireup(&mut out);
        out.deferred_sends.push_back(DeferredSend {
            channel: Arc::clone(channel),
            message,
            source,
            mode,
            completer,
        });
        self.note_busy(was_idle, &mut out);
        drop(out);
        self.wake_progress();
        self.recheck_exits(channel, Some(peer.id));
        Ok(Started::Pending(completion))
    }

    /// Wakes the holder of the progress lock after something was queued for an unconnected peer: the cards might have
    /// come just before.
    pub(super) fn wake_progress(&self) {
        self.site.bell.ring();
    }

    pub(crate) fn device_of(&self, peer: &Peer) -> Option<&dyn Device> {
        Some(&**self.devices.get(*peer.device.get()?)?)
    }

    /// Returns the capabilities of the device that reaches a peer; [`Caps::NONE`] before it is connected.
    #[cold]
    pub(super) fn caps_of(&self, peer: &Peer) -> &Caps {
        self.device_of(peer).map_or(&Caps::NONE, |device| device.caps())
    }
}

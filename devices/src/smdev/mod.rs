//! `smdev`: ranks that are threads of one process.
//!
//! A short message is one cache line in the [ring](crate::ring) of the pair; up to the eager limit the body goes
//! through a fragment; above it the receiver copies once, straight from the sender's buffer to its own
//! ([`offer`](crate::device::Device::offer) and [`get`](crate::device::Device::get)).

mod hub;
mod inlet;
mod offer;

use std::sync::Arc;

pub use hub::Hub;

use crate::config::{self, Config};
use crate::device::{
    Address, Affinity, Caps, Device, Driver, Link, OpenError, Opened, PeerId, PostError, RemoteKey,
};
use crate::ring::{Area, Consumer, Fragments, Incoming, LateBell, Receivers, Ring, RingLink};
use crate::site::Site;

const NAME: &str = "smdev";

/// Cells of a ring.
const CELLS: u32 = 256;

/// Bytes of a fragment.
const FRAGMENT: u32 = 16 << 10;

/// The driver of `smdev`.
#[derive(Debug)]
pub struct SmDriver;

impl Driver for SmDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        let refuse = |why: String| OpenError { device: NAME, why };
        let hub = site.hub.clone().ok_or_else(|| refuse("this process has no other thread ranks".into()))?;
        let memory = Fragments::new(config.get(&config::SM_FRAGMENTS) as u32, FRAGMENT)
            .map_err(|e| refuse(format!("fragments: {e}")))?;
        let area = Arc::new(Area::new(Arc::new(memory), Receivers::Threads));
        let port = hub.arrive(site.rank, Arc::clone(&site.bell)).map_err(refuse)?;
        let caps = Caps { eager: config.size(&config::SM_EAGER), fragment: FRAGMENT as usize, get: true };
        let inlet = Box::new(inlet::SmInlet::new(port));
        Ok(Opened { device: Box::new(SmDevice { hub, rank: site.rank, area, caps }), inlet })
    }
}

/// `smdev` of one rank.
#[derive(Debug)]
struct SmDevice {
    hub: Arc<Hub>,
    rank: u32,
    area: Arc<Area>,
    caps: Caps,
}

// SAFETY: `Offers` copies all bytes or answers with an error, and its `revoke` waits for copies that have begun.
unsafe impl Device for SmDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address(self.hub.id().to_le_bytes().to_vec())
    }

    fn affinity(&self, peer: &Address) -> Option<Affinity> {
        (*peer == self.address()).then_some(Affinity(100))
    }

    fn connect(&self, peer: PeerId, _at: &Address) -> Result<Box<dyn Link>, OpenError> {
        // What lies at the hub must not keep it.
        let (hub, from) = (Arc::downgrade(&self.hub), PeerId(self.rank));
        let bell = LateBell::new(move || hub.upgrade()?.bell(from));
        let ring = Arc::new(Ring::new(CELLS));
        let consumer = Consumer::new(Arc::clone(&ring), Arc::clone(self.area.memory()));
        let incoming = Incoming::new(from, consumer, bell);
        self.hub.deliver(peer, incoming).map_err(|why| OpenError { device: NAME, why })?;
        let hub = Arc::clone(&self.hub);
        Ok(Box::new(RingLink::new(ring, Arc::clone(&self.area), LateBell::new(move || hub.bell(peer)))))
    }

    #[expect(unsafe_code, reason = "the trait's contract is passed on")]
    unsafe fn offer(&self, from: *const u8, len: usize) -> Option<RemoteKey> {
        // SAFETY: the caller's contract is the one of `Offers::offer`.
        Some(unsafe { self.hub.offers().offer(from, len) })
    }

    fn revoke(&self, key: RemoteKey) {
        self.hub.offers().revoke(key);
    }

    #[expect(unsafe_code, reason = "the trait's contract is passed on")]
    unsafe fn get(&self, _peer: PeerId, key: RemoteKey, to: *mut u8, len: usize) -> Result<(), PostError> {
        // SAFETY: the caller's contract is the one of `Offers::get`.
        unsafe { self.hub.offers().get(key, to, len) }
    }
}

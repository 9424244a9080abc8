//! The engine of one rank: matching and protocols, written once, above every device.
//!
//! ```text
//!   send ─► outbox of the peer ─► Link ══ device ══► Inlet ─► inbox of the peer ─► channel: match ─► recv
//!           (lock a peer)                            (the turn: one lock for all)  (lock a channel)
//! ```
//! * A **channel** is a matching space. Threads that post receives meet the thread that delivers messages there.
//! * An **outbox** orders what goes to one peer: frames, then bodies in pieces.
//! * The **turn** is the right to take frames from the devices. Whoever waits takes it and delivers for everybody;
//!   threads that find it taken wait for the holder.
//!
//! Locks are taken in the order turn, channel, outbox, and no lock is held while a user's memory of more than the eager
//! limit is copied.

pub(crate) mod channel;
mod contact;
mod failure;
mod inbox;
pub(crate) mod ops;
mod outbox;
pub(crate) mod peer;
mod progress;
mod receive;
mod send;
mod waits;
mod withdraw;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

pub use channel::Channel;
pub use contact::Cards;
pub use receive::Message;
pub use send::Mode;
pub use waits::{Wait, Waiting};

use crate::config::{self, Config};
use crate::device::{Device, OpenError};
use crate::fault::Fault;
use crate::group::Group;
use crate::liveness::{End, Roster};
use crate::registry::Registry;
use crate::site::Site;
use crate::wait::Policy;
use peer::{Peer, Table};
use progress::{Parking, Turn};
use waits::Waits;

/// The most channels at once; their numbers travel in 16 bits.
const CHANNELS: usize = 1 << 16;

/// The engine of one rank.
pub struct Engine {
    pub(crate) site: Site,
    pub(crate) devices: Vec<Box<dyn Device>>,
    cards: Arc<dyn Cards>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) peers: Table<Peer>,
    /// Cards that have come and were not acted on.
    answers: Arc<Mutex<Vec<contact::Answer>>>,
    channels: RwLock<Channels>,
    turn: Mutex<Turn>,
    parking: Parking,
    waits: Waits,
    pub(crate) policy: Policy,
    pub(crate) credit: u64,
    /// How many outboxes have something waiting.
    pub(crate) busy: AtomicUsize,
    /// The ends that are known and have been learned.
    ends: RwLock<HashMap<u32, End>>,
    /// Whether there is any.
    troubled: AtomicBool,
    /// Whether pending operations must be held against the ends again.
    recheck: AtomicBool,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Channels {
    by_context: HashMap<u64, Arc<Channel>>,
    free: Vec<u16>,
    next: usize,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine(rank {} of {})", self.site.rank, self.site.size)
    }
}

impl Engine {
    /// Opens the devices of a rank and publishes its cards.
    ///
    /// # Errors
    /// No device of the registry can be opened here, or the cards could not be published.
    pub fn open(
        site: Site,
        registry: &Registry,
        config: &Config,
        cards: Arc<dyn Cards>,
        roster: Arc<Roster>,
    ) -> Result<Arc<Self>, OpenError> {
        let opened = registry.open(&site, config)?;
        let (mut devices, mut inlets) = (Vec::new(), Vec::new());
        for one in opened {
            devices.push(one.device);
            inlets.push(one.inlet);
        }
        let own = devices.iter().map(|d| (d.name().to_owned(), d.address())).collect();
        cards.publish(own).map_err(|why| OpenError { device: "start-up", why })?;
        roster.subscribe(Arc::clone(&site.bell));
        Ok(Arc::new(Engine {
            policy: Policy::new(config, site.local),
            peers: Table::new(site.size),
            turn: Mutex::new(Turn::new(inlets, site.size)),
            credit: config.get(&config::CREDIT),
            site,
            devices,
            cards,
            roster,
            answers: Arc::default(),
            channels: RwLock::default(),
            parking: Parking::default(),
            waits: Waits::default(),
            busy: AtomicUsize::new(0),
            ends: RwLock::default(),
            troubled: AtomicBool::new(false),
            recheck: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }))
    }

    /// Returns this rank's place.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Returns who is known to have ended.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Joins the channel `context`, of which this rank is member `rank`.
    ///
    /// # Errors
    /// [`Fault::TooManyChannels`], [`Fault::Joined`].
    pub fn join(&self, context: u64, group: Group, rank: u32) -> Result<Arc<Channel>, Fault> {
        let channel = self.channel(context)?;
        if !channel.join(group, rank) {
            return Err(Fault::Joined { context });
        }
        self.drop_forged(&channel);
        self.apply_ends(&channel);
        Ok(channel)
    }

    /// Leaves a channel: receives posted there end with [`Fault::Freed`], early messages are dropped.
    pub fn leave(&self, channel: &Arc<Channel>) {
        self.fail_channel(channel, &Fault::Freed);
        let early = channel.matching().leave();
        early.iter().for_each(|early| self.release_early(early));
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        if channels.by_context.remove(&channel.context).is_some() {
            channels.free.push(channel.number);
        }
    }

    /// Returns the channel of a context, joined or not.
    pub(crate) fn channel(&self, context: u64) -> Result<Arc<Channel>, Fault> {
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.by_context.get(&context) {
            return Ok(Arc::clone(channel));
        }
        let number = match channels.free.pop() {
            Some(number) => number,
            None if channels.next < CHANNELS => {
                channels.next += 1;
                (channels.next - 1) as u16
            }
            None => return Err(Fault::TooManyChannels),
        };
        let channel = Arc::new(Channel::new(context, number));
        channels.by_context.insert(context, Arc::clone(&channel));
        Ok(channel)
    }

    /// Returns how many channels more this rank can join.
    pub fn spare_channels(&self) -> usize {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.free.len() + (CHANNELS - channels.next)
    }

    pub(crate) fn all_channels(&self) -> Vec<Arc<Channel>> {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.by_context.values().map(Arc::clone).collect()
    }

    /// Ends this rank's part: waits until what it has sent is on its way, then tells the others that it has left.
    ///
    /// It never waits for a peer that has itself begun to close: what such a peer has not received it never will.
    pub fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        for channel in self.all_channels() {
            self.withdraw_receives(&channel);
        }
        self.recheck();
        // An answer to a peer's message must be on its way before the peer hears that no more will come.
        let leaving = |_: &()| Wait::call("leaving the job: what it has sent is not received");
        self.wait_for(
            &mut (),
            |()| self.peers.iter().all(|p| p.outbox().is_settled()).then_some(()),
            leaving,
        );
        crate::steps::reach(crate::steps::Step::Closing, self.site.rank);
        self.roster.report(self.site.rank, End::Closing);
        self.wait_for(&mut (), |()| self.is_quiet().then_some(()), leaving);
        self.roster.report(self.site.rank, End::Left);
    }

    /// Whether nothing this rank has sent, or has begun to receive, is still under way.
    fn is_quiet(&self) -> bool {
        self.busy.load(Ordering::Acquire) == 0
            && self.peers.iter().all(|p| p.outbox().is_settled())
            && self.all_channels().iter().all(|c| c.ops().is_empty())
    }
}

impl Drop for Engine {
    /// Takes back what was lent to peers: an engine that was not closed leaves them no pointer.
    fn drop(&mut self) {
        for channel in self.all_channels() {
            // Nobody holds the turn of an engine that is dropped: no device writes any more.
            channel.ops().take_all_back();
            self.fail_channel(&channel, &Fault::Freed);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

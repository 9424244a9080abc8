//! The engine of one rank: matching and protocols, written once, above every device.
//!
//! ```text
//!   send ─► outbox of the peer ─► Link ══ device ══► Inlet ─► inbox of the peer ─► channel: match ─► recv
//!           (lock a peer)                            (the turn: one lock for all)  (lock a channel)
//! ```
//! * A **channel** is a matching space. Threads that post receives meet the thread that delivers messages there.
//! * An **outbox** orders what goes to one peer: frames, then bodies in pieces.
//! * The **turn** is the progress lock: the right to take frames from the devices. Whoever waits takes it and delivers for
//!   everybody; threads that find it taken wait for the holder.
//!
//! `README.md` in this folder tells the life of a message: its states, its frames, and what the end of a rank changes.
//!
//! Locks are taken in the order turn, channel (its matching), outbox, operations of a channel. What is copied under one has a bound that does not depend on the
//! length of a message:
//! * Under a channel's, one frame's body: an eager message that no receive waits for, or a piece of a longer one. A message
//!   to oneself is packed outside, whatever its length.
//! * Under an outbox's, each time: the frames that wait, up to 16 pieces of bodies that are sent, and of bodies that the
//!   device gets at once about 1 MiB. The rest goes on in the next pass. What ends by that is ended when the lock is open.
//! * Under the turn, what a pass takes from the devices and moves out of the outboxes. Whoever waits holds it from pass to
//!   pass, and gives it up for work of its own that is long, as a collective's is, and to drive what nobody waits for.

pub(crate) mod channel;
mod channels;
mod contact;
mod credit;
mod delivery;
mod driven;
mod ends;
mod failure;
mod fetch;
mod inbox;
mod landing;
mod lent;
mod moves;
pub(crate) mod ops;
mod outbox;
mod parking;
pub(crate) mod peer;
mod progress;
mod receive;
mod received_cards;
mod send;
mod slab;
mod tracing;
mod traffic;
mod waits;
mod withdraw;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;

pub use channel::{Calls, Channel};
pub use contact::Cards;
use credit::CreditPool;
pub use credit::{BUDGET, CREDIT};
pub use driven::ProgressTask;
use failure::{Blamed, GIVE_UP};
pub use lent::ViewedMessage;
pub use receive::{Matched, MatchedMessage};
pub use send::{Coalesce, Mode, Sent};
pub use traffic::{Count, LocalTraffic, Stats, Traffic};
pub use waits::{BlockedThread, WORLD, WaitReason};

use mpj_pool::{Growth, Magazine, Pages, Storage};

use crate::biased::{self, Bias};
use crate::config::{Config, PATH};
use crate::device::{Device, OpenError, PeerId};
use crate::fault::Fault;
use crate::layout::Stages;
use crate::liveness::{Exit, Roster};
use crate::path::DataPath;
use crate::registry::{Openings, Registry};
use crate::site::Site;
use crate::trace::Trace;
use crate::wait::Policy;
use channels::Channels;
use driven::Tasks;
use ends::KnownExits;
use moves::{DeviceOp, DeviceOps};
use ops::Op;
use parking::Parking;
use peer::{NoLink, Peer, Table};
use progress::ProgressState;
use traffic::Tally;
use waits::Waits;

/// The engine of one rank.
pub struct Engine {
    pub(crate) site: Site,
    pub(crate) devices: Vec<Box<dyn Device>>,
    refused: Vec<OpenError>,
    cards: Arc<dyn Cards>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) peers: Table<Peer>,
    /// Cards that have come and were not acted on.
    answers: Arc<Mutex<Vec<contact::Answer>>>,
    channels: RwLock<Channels>,
    /// What devices have in hand.
    moves: Mutex<DeviceOps>,
    /// The thread that the locks between a send and its receive are biased to.
    bias: Arc<Bias>,
    turn: biased::Mutex<ProgressState>,
    parking: Parking,
    waits: Waits,
    /// What is driven though nobody waits for it.
    tasks: Tasks,
    pub(crate) policy: Policy,
    /// The way of messages that say nothing of their own.
    pub(crate) path: DataPath,
    /// Whether such messages go by no path of their own, and none is recorded.
    is_plain: bool,
    /// Whether there is a device that wants memory registered.
    registers: bool,
    /// What goes through blocks then, though nobody has asked for it.
    stages: Stages,
    pub(crate) credit: CreditPool,
    /// How many outboxes have something waiting.
    pub(crate) busy: AtomicUsize,
    /// The peers of these outboxes, each once, and of some that have become idle since.
    busy_peers: biased::Mutex<Vec<PeerId>>,
    /// The ends that are known and have been learned.
    ends: RwLock<KnownExits>,
    /// Whether there are ends that pending operations must be held against.
    recheck: AtomicBool,
    /// Operations that wait for a death to become known.
    blamed: Mutex<Vec<Blamed>>,
    /// Whether this rank has begun to leave the job.
    leaving: AtomicBool,
    /// Whether it takes part in nothing more.
    closed: AtomicBool,
    /// By device, what was copied out of it.
    copied_out: Box<[Tally]>,
    /// What channels had moved that this rank has left, and the copies of messages that matched probes took.
    left: Mutex<LocalTraffic>,
    /// What is recorded, if this rank is traced.
    trace: Option<Box<Trace>>,
    pool: OnceLock<RankPool>,
}

/// The pool of a rank: see [`Engine::pool`].
pub type RankPool = Magazine<Box<dyn Storage>>;

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
        let bias = Bias::new();
        let site = Site { bias: Arc::clone(&bias), ..site };
        let Openings { opened, failed: refused } = registry.open(&site, config)?;
        let trace = Trace::open(config, site.rank);
        let path = config.choice(&PATH);
        let (mut devices, mut inlets) = (Vec::new(), Vec::new());
        for one in opened {
            devices.push(one.device);
            inlets.push(one.inlet);
        }
        let own = devices.iter().map(|d| (d.name().to_owned(), d.address())).collect();
        let arrived = devices.iter().map(|_| Tally::default()).collect();
        cards.publish(own).map_err(|why| OpenError { device: "start-up", why })?;
        roster.subscribe(Arc::clone(&site.bell));
        Ok(Arc::new(Engine {
            policy: Policy::new(config, site.ranks_on_host),
            path,
            is_plain: path == DataPath::Auto && trace.is_none(),
            registers: devices.iter().any(|device| device.caps().register_from.is_some()),
            stages: Stages::default(),
            peers: Table::new(site.size),
            turn: biased::Mutex::new(&bias, ProgressState::new(inlets, site.size)),
            credit: CreditPool::new(config, site.size),
            site,
            devices,
            refused,
            cards,
            roster,
            answers: Arc::default(),
            channels: RwLock::default(),
            moves: Mutex::default(),
            parking: Parking::new(),
            waits: Waits::default(),
            tasks: Tasks::default(),
            busy: AtomicUsize::new(0),
            busy_peers: biased::Mutex::new(&bias, Vec::new()),
            bias,
            ends: RwLock::default(),
            recheck: AtomicBool::new(false),
            blamed: Mutex::default(),
            leaving: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            copied_out: arrived,
            left: Mutex::default(),
            trace,
            pool: OnceLock::new(),
        }))
    }

    /// Returns by which way messages go that do not say so themselves.
    pub fn path(&self) -> DataPath {
        self.path
    }

    /// Returns the pool of this rank. Its blocks lie where the peers of a device can look at them, if there is a device with such
    /// [memory](Device::exportable_storage) that has any left; then messages in them need not be copied. Otherwise it is a pool like others.
    pub fn pool(&self) -> &RankPool {
        self.pool.get_or_init(|| {
            let sources: Vec<_> =
                self.devices.iter().filter_map(|device| device.exportable_storage()).collect();
            // The first region fits into the least room that there may be.
            let growth = Growth::default().first_region(256 << 10);
            Magazine::growing(growth, move |len| {
                let pages = || Pages::create(len).map(|pages| Box::new(pages) as Box<dyn Storage>);
                sources.iter().find_map(|make| make(len).ok()).map_or_else(pages, Ok)
            })
        })
    }

    /// Returns this rank's place.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Returns the bias of this rank's locks: to the thread that has opened the engine, until another comes.
    pub fn bias(&self) -> &Arc<Bias> {
        &self.bias
    }

    /// Returns the devices that could not be opened, and why.
    pub fn refused(&self) -> &[OpenError] {
        &self.refused
    }

    /// Returns who is known to have ended.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Ends this rank's part: waits until what it has sent is on its way, then tells the others that it has left.
    ///
    /// It never waits for a peer that has itself begun to close: what such a peer has not received it never will.
    pub fn close(&self) {
        if self.leaving.swap(true, Ordering::SeqCst) {
            return;
        }
        self.drain_tasks();
        self.closed.store(true, Ordering::SeqCst);
        for channel in self.all_channels() {
            self.cancel_receives(&channel);
        }
        self.recheck_all();
        // What was started since ends at once.
        if self.tasks.are_open() {
            self.poll_tasks(true);
        }
        // An answer to a peer's message must be on its way before the peer hears that no more will come.
        let leaving = |_: &()| WaitReason::call("leaving the job: what it has sent is not received");
        self.wait_for(
            &mut (),
            |()| (!self.tasks.are_open() && self.peers.iter().all(|p| p.outbox().is_drained())).then_some(()),
            leaving,
        );
        crate::steps::reach(crate::steps::KillPoint::Closing, self.site.rank);
        self.roster.report(self.site.rank, Exit::Closing);
        let has_ended =
            |peer: PeerId| self.exit_of(peer.0).is_some_and(|end| !matches!(end, Exit::ClosingExcept(_)));
        self.wait_for(&mut (), |()| self.is_drained(has_ended).then_some(()), leaving);
        // Devices give back soon after what these peers had received; one that does not is not waited for any longer.
        let end = Instant::now() + GIVE_UP;
        self.wait_until(|| (self.is_drained(|_| false) || Instant::now() >= end).then_some(()));
        self.end_received();
        self.roster.report(self.site.rank, Exit::Left);
    }

    /// Drives to their ends the operations that nobody waits for any more. Before that it says that it does nothing else: who
    /// waits for something else of it, while it is waited for here, asks for that.
    fn drain_tasks(&self) {
        let contexts = self.tasks.contexts();
        if contexts.is_empty() {
            return;
        }
        for channel in self.all_channels() {
            if !contexts.contains(&channel.context) {
                self.cancel_receives(&channel);
            }
        }
        let is_settled = |_: &mut ()| self.peers.iter().all(|p| p.outbox().is_drained()).then_some(());
        self.wait_for(&mut (), is_settled, |()| {
            WaitReason::call("leaving the job: what it has sent is not received")
        });
        self.roster.report(self.site.rank, Exit::ClosingExcept(contexts.into()));
        self.poll_tasks(true);
        let have_ended = |_: &mut ()| (!self.tasks.are_open()).then_some(());
        self.wait_for(&mut (), have_ended, |()| {
            WaitReason::call("leaving the job: others are late in collectives it has started")
        });
    }

    /// Whether an operation is a send whose receiver looks at the message where it lies.
    pub(crate) fn is_viewed_send(&self, op: &Op) -> bool {
        let Op::Send { peer, registration: Some(registration), .. } = op else { return false };
        let device = self.peers.get(*peer).and_then(|peer| self.device_of(peer));
        device.is_some_and(|device| device.is_received(registration))
    }

    /// Whether nothing this rank has sent, or has begun to receive, is still under way. What is lent and looked at has been
    /// received. A device that does not give memory back after the end of the peer does not keep the rank for long: the
    /// memory is given back when the device is dropped.
    fn is_drained(&self, has_ended: impl Fn(PeerId) -> bool + Copy) -> bool {
        self.busy.load(Ordering::Acquire) == 0
            && self.peers.iter().all(|p| p.outbox().is_drained())
            && self.all_channels().iter().all(|c| c.ops().is_settled(has_ended, |op| self.is_viewed_send(op)))
            && lock(&self.moves).allows_close(has_ended)
    }
}

impl Drop for Engine {
    /// Takes back what was lent to devices and peers, once no device is left that could touch it: an engine that was not
    /// closed leaves nobody a pointer.
    fn drop(&mut self) {
        for peer in self.peers.iter() {
            peer.outbox().link = Box::new(NoLink);
        }
        self.turn.get_mut().close();
        self.devices.clear();
        for channel in self.all_channels() {
            let failed = channel.ops().reclaim_all();
            failed.into_iter().for_each(|(op, fault)| op.complete(Err(fault)));
            self.fail_channel(&channel, &Fault::Freed);
        }
        let moves = lock(&self.moves).drain();
        for left in moves {
            match left {
                DeviceOp::Quiesce { op, fault } => op.complete(Err(fault)),
                DeviceOp::SendZcopy { sending, .. } => sending.fail(&Fault::Freed),
                DeviceOp::Get { .. } => (),
            }
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

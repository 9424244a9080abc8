//! The engine of one rank. It implements matching and the protocols once, above all devices.
//!
//! * A **channel** is a matching space: it has the posted receives and the unexpected messages of one context.
//! * An **outbox** is the send queue to one peer. It sends frames first, then posts gets, then sends pieces of bodies.
//! * An **inbox** is the state of one sender: the meaning of its channel ids, its credit, the body that is arriving.
//! * The holder of the **progress lock** takes frames from the devices, and delivers them for all threads of the rank.
//!
//! `README.md` in this folder describes the life of a message.
//!
//! A thread that holds several of these locks takes them in this order: progress lock, matching of a channel, outbox,
//! operations of a channel. The amount of data that is copied under a lock is limited:
//! * Under a lock of a channel, the engine copies the body of one frame: an unexpected eager message, or a piece of a
//!   longer one. A message to the rank itself is packed without the lock, whatever its length.
//! * Under the lock of an outbox, one pass sends the queued frames, up to 16 pieces of bodies, and up to 16 pieces of
//!   gets. It also stops the gets when they have copied 1 MiB within their calls. The next pass continues.
//! * Under the progress lock, a pass takes frames from the devices, sends from the outboxes, and completes receives. A
//!   receive unpacks its whole bounce buffer: up to 16 MiB, or any length with [`DataPath::Buffered`]. A waiting thread
//!   holds the lock from pass to pass, and releases it to poll tasks and to drop users' values.

mod background;
mod blocked;
mod cancel;
pub(crate) mod channel;
mod channels;
mod credit;
mod delivery;
mod device_ops;
mod driver_fd;
mod exits;
mod failure;
mod failure_listeners;
mod flush;
mod inbox;
mod incoming_body;
mod matched;
pub(crate) mod ops;
mod parking;
mod path_select;
pub(crate) mod peer;
mod progress;
mod receive;
mod rendezvous;
mod replies;
mod send;
mod send_self;
mod slab;
mod tasks;
mod tracing;
mod traffic;
mod view;
mod waiting;
mod wireup;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use background::Background;
pub use background::{AsyncWait, PROGRESS};
pub use blocked::{BlockedCall, WORLD, WaitReason};
pub use channel::{Calls, Channel};
use credit::CreditPool;
pub use credit::{EAGER_CREDIT, EAGER_CREDIT_TOTAL};
pub use driver_fd::DriverFd;
use failure::{Blamed, CLOSE_GRACE};
pub use failure_listeners::FailureListener;
pub use matched::{Matched, MatchedMessage};
pub use send::{Coalesce, Mode, Sent};
pub use tasks::ProgressTask;
pub use traffic::{Count, LocalTraffic, Stats, Traffic};
pub use view::ViewedMessage;
pub use wireup::CardExchange;

use mpj_pool::{Growth, Magazine, Pages, Storage};

use crate::biased::{self, Bias};
use crate::config::{Config, DATA_PATH};
use crate::data_path::DataPath;
use crate::device::{Device, OpenError, PeerId};
use crate::fault::Fault;
use crate::liveness::{Exit, Roster};
use crate::message::BounceBuffers;
use crate::registry::{OpenedDevices, Registry};
use crate::site::Site;
use crate::trace::Trace;
use crate::wait::Policy;
use blocked::BlockedCalls;
use channels::Channels;
use device_ops::{DeviceOp, DeviceOps};
use exits::KnownExits;
use ops::Op;
use parking::Parking;
use peer::{NoEndpoint, Peer, PeerTable};
use progress::ProgressState;
use tasks::TaskList;
use traffic::AtomicCount;

/// The engine of one rank.
pub struct Engine {
    pub(crate) site: Site,
    pub(crate) devices: Vec<Box<dyn Device>>,
    failed: Vec<OpenError>,
    cards: Arc<dyn CardExchange>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) peers: PeerTable<Peer>,
    received_cards: Arc<Mutex<Vec<wireup::CardReply>>>,
    channels: RwLock<Channels>,
    device_ops: Mutex<DeviceOps>,
    bias: Arc<Bias>,
    progress_lock: biased::Mutex<ProgressState>,
    parking: Parking,
    waits: BlockedCalls,
    tasks: TaskList,
    background: Background,
    pub(crate) policy: Policy,
    background_policy: Policy,
    max_sleep: Duration,
    pub(crate) path: DataPath,
    /// Whether messages without a data path of their own use [`DataPath::Auto`] and the rank is not traced.
    has_fast_path: bool,
    /// Whether a device needs local memory to be registered.
    registers: bool,
    /// The bounce buffers for devices that register memory, although no data path requests them.
    bounce_buffers: BounceBuffers,
    pub(crate) credit: CreditPool,
    /// Number of outboxes that are not idle.
    pub(crate) busy: AtomicUsize,
    /// Peers whose outboxes must be flushed; some might be idle. A pass takes the whole list.
    busy_peers: biased::Mutex<Vec<PeerId>>,
    known_exits: RwLock<KnownExits>,
    /// Whether pending operations must be checked against the exits.
    exits_pending: AtomicBool,
    /// Operations for which a NACK named a death that is not known here. Each fails when that death becomes known.
    blamed: Mutex<Vec<Blamed>>,
    /// Whether this rank has begun to leave the job.
    closing: AtomicBool,
    /// See [`is_closed`](Self::is_closed).
    closed: AtomicBool,
    /// The fault of all operations after [`fail_all`](Self::fail_all), or after this rank was reported dead.
    failure: OnceLock<Fault>,
    failure_listeners: Mutex<Vec<Weak<dyn FailureListener>>>,
    copied_by_device: Box<[AtomicCount]>,
    /// Local traffic of freed channels, and copies of messages that were received by matched probes.
    freed_traffic: Mutex<LocalTraffic>,
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
    /// No device of the registry could be opened, or the cards could not be published.
    pub fn open(
        site: Site,
        registry: &Registry,
        config: &Config,
        cards: Arc<dyn CardExchange>,
        roster: Arc<Roster>,
    ) -> Result<Arc<Self>, OpenError> {
        let bias = Bias::new();
        let site = Site { bias: Arc::clone(&bias), ..site };
        let OpenedDevices { opened, failed } = registry.open(&site, config)?;
        let trace = Trace::open(config, site.rank);
        let path = config.choice(&DATA_PATH);
        let (mut devices, mut inlets) = (Vec::new(), Vec::new());
        for one in opened {
            devices.push(one.device);
            inlets.push(one.inlet);
        }
        let own = devices.iter().map(|d| (d.name().to_owned(), d.address())).collect();
        let copied_by_device = devices.iter().map(|_| AtomicCount::default()).collect();
        cards.publish(own).map_err(|why| OpenError { device: "start-up", why })?;
        roster.subscribe(Arc::clone(&site.bell));
        Ok(Arc::new(Engine {
            background: Background::default(),
            policy: Policy::new(config, site.ranks_on_host),
            background_policy: Policy::background(),
            max_sleep: progress::max_sleep(site.ranks_on_host),
            path,
            has_fast_path: path == DataPath::Auto && trace.is_none(),
            registers: devices.iter().any(|device| device.caps().register_min.is_some()),
            bounce_buffers: BounceBuffers::default(),
            peers: PeerTable::new(site.size),
            progress_lock: biased::Mutex::new(&bias, ProgressState::new(inlets, site.size)),
            credit: CreditPool::new(config, site.size),
            site,
            devices,
            failed,
            cards,
            roster,
            received_cards: Arc::default(),
            channels: RwLock::default(),
            device_ops: Mutex::default(),
            parking: Parking::new(),
            waits: BlockedCalls::default(),
            tasks: TaskList::default(),
            busy: AtomicUsize::new(0),
            busy_peers: biased::Mutex::new(&bias, Vec::new()),
            bias,
            known_exits: RwLock::default(),
            exits_pending: AtomicBool::new(false),
            blamed: Mutex::default(),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            failure: OnceLock::new(),
            failure_listeners: Mutex::default(),
            copied_by_device,
            freed_traffic: Mutex::default(),
            trace,
            pool: OnceLock::new(),
        }))
    }

    /// Returns the data path of messages that do not choose one.
    pub fn path(&self) -> DataPath {
        self.path
    }

    /// Returns the pool of this rank. If a device has [exportable storage](Device::exportable_storage), the pool uses
    /// that storage as long as it has space. Peers can then receive a message in a block without a copy.
    pub fn pool(&self) -> &RankPool {
        self.pool.get_or_init(|| {
            let sources: Vec<_> =
                self.devices.iter().filter_map(|device| device.exportable_storage()).collect();
            // A small first region also fits into small exportable storage.
            let growth = Growth::default().first_region(256 << 10);
            Magazine::growing(growth, move |len| {
                let pages = || Pages::create(len).map(|pages| Box::new(pages) as Box<dyn Storage>);
                sources.iter().find_map(|make| make(len).ok()).map_or_else(pages, Ok)
            })
        })
    }

    /// Returns the site of this rank: its rank, the size of the job and its host.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Returns the bias of this rank's locks to the thread that opened the engine; another thread's first lock ends it.
    pub fn bias(&self) -> &Arc<Bias> {
        &self.bias
    }

    /// Returns the devices that could not be opened, with the reasons.
    pub fn failed_devices(&self) -> &[OpenError] {
        &self.failed
    }

    /// Returns the roster, which records the exits that are known.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Leaves the job: waits until the messages of this rank have been transferred, then reports its exit.
    ///
    /// Pending messages to a peer that has itself begun to close fail, unless that peer has requested their bodies. A
    /// second call returns at once.
    pub fn close(&self) {
        if self.closing.swap(true, Ordering::SeqCst) {
            return;
        }
        self.stop_background();
        self.drain_tasks();
        self.closed.store(true, Ordering::SeqCst);
        for channel in self.all_channels() {
            // Threads that post or search later check the flag.
            channel.mark_exits();
            self.cancel_receives(&channel);
        }
        self.recheck_all();
        // Threads that wait for a message without a posted receive check the flag, too.
        self.wake_all();
        // Tasks that were spawned after `closed` was set complete at once.
        if self.tasks.any() {
            self.poll_tasks(true);
        }
        // A reply to a peer's message must be on its way before the peer learns that this rank is closing.
        let leaving = |_: &()| WaitReason::call("leaving the job: messages it sent have not been received");
        self.wait_for(
            &mut (),
            |()| (!self.tasks.any() && self.peers.iter().all(|p| p.outbox().is_drained())).then_some(()),
            leaving,
        );
        crate::kill_points::kill_point(crate::kill_points::KillPoint::Closing, self.site.rank);
        self.roster.report(self.site.rank, Exit::Closing);
        let has_exited =
            |peer: PeerId| self.exit_of(peer.0).is_some_and(|end| !matches!(end, Exit::ClosingExcept(_)));
        self.wait_for(&mut (), |()| self.is_drained(has_exited).then_some(()), leaving);
        // Devices soon return the memory of transfers with these peers. The time limit covers a device that does not.
        let end = Instant::now() + CLOSE_GRACE;
        self.wait_for_until(end, &mut (), |()| self.is_drained(|_| false).then_some(()), leaving);
        self.complete_received_sends();
        self.roster.report(self.site.rank, Exit::Left);
    }

    /// Completes the tasks. Before that, it cancels the receives in all other contexts and reports that this rank takes
    /// part only in the tasks. A peer that waits for another message of this rank then fails instead of blocking.
    fn drain_tasks(&self) {
        // Some tasks end because this rank is leaving.
        self.poll_tasks(true);
        let contexts = self.tasks.contexts();
        if contexts.is_empty() {
            return;
        }
        for channel in self.all_channels() {
            if !contexts.contains(&channel.context) {
                self.cancel_receives(&channel);
            }
        }
        let is_drained = |_: &mut ()| self.peers.iter().all(|p| p.outbox().is_drained()).then_some(());
        self.wait_for(&mut (), is_drained, |()| {
            WaitReason::call("leaving the job: messages it sent have not been received")
        });
        self.roster.report(self.site.rank, Exit::ClosingExcept(contexts.into()));
        self.poll_tasks(true);
        let have_ended = |_: &mut ()| (!self.tasks.any()).then_some(());
        self.wait_for(&mut (), have_ended, |()| {
            WaitReason::call("leaving the job: collectives it started are not complete")
        });
    }

    /// Returns whether an operation is a send whose receiver views the message in place or is known to have copied it.
    pub(crate) fn is_received_send(&self, op: &Op) -> bool {
        let Op::Rendezvous { peer, registration: Some(registration), .. } = op else { return false };
        let device = self.peers.get(*peer).and_then(|peer| self.device_of(peer));
        device.is_some_and(|device| device.is_received(registration))
    }

    /// Returns whether a closing rank has nothing to wait for. Such a rank does not wait for
    /// [received sends](Self::is_received_send), failed rendezvous sends, and memory that a device keeps for transfers
    /// with exited peers (`has_exited`).
    fn is_drained(&self, has_exited: impl Fn(PeerId) -> bool + Copy) -> bool {
        self.busy.load(Ordering::Acquire) == 0
            && self.peers.iter().all(|p| p.outbox().is_drained())
            && self
                .all_channels()
                .iter()
                .all(|c| c.ops().allows_close(has_exited, |op| self.is_received_send(op)))
            && lock(&self.device_ops).allows_close(has_exited)
    }
}

impl Drop for Engine {
    /// Drops endpoints, inlets and devices, so that nothing can access user memory, and then reclaims that memory.
    fn drop(&mut self) {
        self.background.stop();
        for peer in self.peers.iter() {
            peer.outbox().endpoint = Box::new(NoEndpoint);
        }
        self.progress_lock.get_mut().close();
        self.devices.clear();
        for channel in self.all_channels() {
            let failed = channel.ops().reclaim_all();
            failed.into_iter().for_each(|(op, fault)| op.complete(Err(fault)));
            self.fail_channel(&channel, &Fault::Freed);
        }
        let device_ops = lock(&self.device_ops).drain();
        for left in device_ops {
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

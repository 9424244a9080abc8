//! The device interface: the traits between the engine, which matches messages and runs protocols, and the transports,
//! which move frames.
//!
//! A *frame* is a head of 8 to [`HEAD_MAX`] bytes and a body. A device keeps the frames of one peer in order, never
//! merges or splits them, and does not interpret them. All threads share the [`Device`]: its methods take `&self`. The
//! state that changes with each message is in two kinds of values, which the engine protects by its own locks:
//!
//! * An [`Endpoint`] is the sending end to one peer. The engine stores it in the send queue of that peer, and uses it
//!   under the queue's lock.
//! * The [`Inlet`] is the receiving end for all peers. The engine uses it under its progress lock.

mod body;
mod endpoint;
mod inlet;
mod memory;

use std::fmt;
use std::time::Duration;

use mpj_pool::{Access, Region, RegisterError, Storage, StorageError};

use crate::config::Config;
pub use crate::message::{KeepAlive, Pieces};
use crate::site::Site;
use crate::sys::{self, BorrowedFd};
pub use body::{Body, PackSource, PackedBody};
pub use endpoint::Endpoint;
pub use inlet::{Inlet, Landing, Sink};
pub use memory::{
    KEY_MAX, MemoryDesc, MemoryPart, OpStatus, OpToken, QuiesceStatus, Registration, RemoteKey, SizeRange,
    View,
};

/// The longest head of a frame in bytes: with the header of a ring cell and three lengths of 4 bytes, it fills a cache
/// line.
pub const HEAD_MAX: usize = 44;

/// The longest time for which a device delays a frame to coalesce it with others: see [`Endpoint::post_more`].
pub const MAX_COALESCE_DELAY: Duration = Duration::from_millis(1);

/// A process of the job, by its rank in the world.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", self.0)
    }
}

/// The address of a device: the bytes of its card, published once at start. Peers connect to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address(pub Vec<u8>);

/// The priority of a device for a peer: the engine uses the first of the devices with the highest value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Affinity(pub u32);

/// The capabilities of a device: one row for each path, with the lengths for which it is worthwhile.
///
/// | path of a body | field | for bodies | longest operation |
/// |---|---|---|---|
/// | one eager frame | `eager_limit` | up to this length, with credit | the same |
/// | pieces in frames, copied | `max_send_size` | that no other path takes | this length |
/// | pieces in frames, from user memory | `zcopy` | from `min` on | `max` and `max_send_size` |
/// | a get by the receiver | `get` | from `min` on | `max` |
/// | a put by the sender | `put` | no protocol of the engine uses it yet | `max` |
/// | a get from or into memory that is registered for it | `register_min` | from this length on | as `get` |
/// | a get from or into a registered pool block (bounce buffer) | `register_min` | below this length; all with an unsupported layout | as `get` |
/// | a view in the sender's memory | `export_min` | in a pool block, from this length on | the body |
///
/// All lengths are in bytes and inclusive. A name with `min` is a lower bound on the body of the message, however it is
/// divided into operations; `limit`, `max` and `max_send_size` are upper bounds. An option other than `register_min` is
/// `None` if the device does not support the path. The minimum of an operation is for [`Auto`](crate::DataPath::Auto)
/// and [`Buffered`](crate::DataPath::Buffered); [`ZeroCopy`](crate::DataPath::ZeroCopy) ignores it. The engine combines
/// the rows in one place (`engine/path_select.rs`).
#[derive(Clone, Debug)]
pub struct Caps {
    /// The longest body that a sender with credit sends eagerly, that is, in one frame.
    pub eager_limit: usize,
    /// The longest body of one frame, at least `eager_limit`.
    pub max_send_size: usize,
    /// Sizes for which [`Endpoint::get`] pays. A get that copies within the call delays sends to that peer;
    /// [`SizeRange::max`] limits the bytes of each call.
    pub get: Option<SizeRange>,
    /// Sizes for which [`Endpoint::put`] pays.
    pub put: Option<SizeRange>,
    /// Sizes for which [`Endpoint::post_zcopy`] pays. The device sends from the user's memory.
    pub zcopy: Option<SizeRange>,
    /// Whether `get`, `put` and `post_zcopy` accept every datatype and chains, not only contiguous memory.
    pub noncontiguous: bool,
    /// The smallest body for which it pays to register memory outside of a pool region for one operation; `None` if
    /// `get`, `put` and `post_zcopy` need no local registration.
    pub register_min: Option<usize>,
    /// The smallest body that the sender [exports](Device::export) instead of sending it eagerly, if it is in a pool
    /// block, so that its receiver can [view](Endpoint::view) it. A body that is not eager is exported at any length.
    pub export_min: Option<usize>,
    /// Whether a [view](Endpoint::view) is in memory that another process can write. The device exports only blocks of
    /// its [exportable storage](Device::exportable_storage) then.
    pub shared_views: bool,
}

impl Caps {
    /// The capabilities of a device that is not connected: no body is eager.
    pub(crate) const NONE: Caps = Caps::frames(0, 0);

    /// Returns the capabilities of a device that sends frames and cannot access remote memory.
    pub const fn frames(eager: usize, fragment: usize) -> Self {
        let (get, put, zcopy) = (None, None, None);
        Caps {
            eager_limit: eager,
            max_send_size: fragment,
            get,
            put,
            zcopy,
            noncontiguous: false,
            register_min: None,
            export_min: None,
            shared_views: false,
        }
    }
}

/// The reason why an endpoint did not accept a frame or an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The device has no space now. When it has, it rings the doorbell of this rank or makes the descriptor of
    /// [`arm`](crate::Device::arm) readable; post again then.
    Again,
    /// The connection is broken for good, or the peer has violated the protocol. The engine treats the peer as dead.
    Broken(String),
    /// The owner has revoked the key: the bytes at the destination are undefined, and the connection still works.
    Revoked,
    /// The device does not support this operation for this memory or key (see [`Caps`]), or the frame is too long.
    Unsupported,
}

/// The reason why a device or an endpoint could not be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenError {
    /// The name of the device; `start-up` if publishing the cards failed; empty if no single device is concerned.
    pub device: &'static str,
    /// The failed step and how to correct it.
    pub why: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device {
            "" => f.write_str(&self.why),
            device => write!(f, "{device}: {}", self.why),
        }
    }
}

impl std::error::Error for OpenError {}

/// Allocates memory of at least the given number of bytes for a pool.
pub type MakeStorage = Box<dyn Fn(usize) -> Result<Box<dyn Storage>, StorageError> + Send + Sync>;

/// A kind of device, as a [`Registry`](crate::Registry) stores it. The value brings the resources that the device
/// needs, such as the memory that processes share.
///
/// # Safety
/// The inlet that [`open`](Self::open) returns belongs to the device that the same call opened: it reports the
/// completion only of operations that endpoints of this device have started.
///
/// The trait is `unsafe`, so safe code cannot complete the operations of one device through the inlet of another:
/// ```compile_fail,E0200
/// # use mpj_devices::{Driver, OpenError, Opened, Site, SmDriver, config::Config};
/// #[derive(Debug)]
/// struct Crossed(SmDriver, SmDriver);
///
/// impl Driver for Crossed {
///     fn name(&self) -> &'static str {
///         "crossed"
///     }
///
///     fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
///         let (one, other) = (self.0.open(site, config)?, self.1.open(site, config)?);
///         Ok(Opened { device: one.device, inlet: other.inlet })
///     }
/// }
/// ```
#[expect(unsafe_code, reason = "memory is reclaimed when an inlet reports that the device no longer uses it")]
pub unsafe trait Driver: Send + Sync + fmt::Debug {
    /// Returns the name by which users select the device, such as `smdev`.
    fn name(&self) -> &'static str;

    /// Opens the device for one rank.
    ///
    /// # Errors
    /// If the device cannot be used, for example because the site lacks a resource.
    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError>;
}

/// An opened device.
#[derive(Debug)]
pub struct Opened {
    /// The part that all threads share.
    pub device: Box<dyn Device>,
    /// The receiving end.
    pub inlet: Box<dyn Inlet>,
}

/// The device of one rank; all threads of the rank share it.
///
/// # Safety
/// For the device, and the endpoints that [`connect`](Self::connect) makes:
/// * [`Endpoint::get`] returns [`OpStatus::Done`] only when all bytes are written. Until it has returned `Done`, or
///   until [`Sink::completed`] is called with its token, it writes those bytes and no others. Afterwards, and after an
///   error, it writes nothing. [`Endpoint::put`] and [`Endpoint::post_zcopy`] read their bytes only within the same
///   period.
/// * After [`quiesce`](Self::quiesce) has returned [`QuiesceStatus::Done`], and from the call of [`Sink::quiesced`] on,
///   the peer writes no memory through any key of that registration, and receives no data from that memory: a copy
///   under way fails with [`PostError::Revoked`]. If the peer opened a view before, the message counts as
///   [received](Self::is_received). A read that another process executes may continue, if its data is discarded.
/// * After the endpoints, the inlet and then the device have been dropped, none of this memory is accessed any more.
#[expect(unsafe_code, reason = "messages are delivered from memory that a device reports as written")]
pub unsafe trait Device: Send + Sync + fmt::Debug {
    /// Returns the name of its driver.
    fn name(&self) -> &'static str;

    /// Returns the capabilities of the device.
    fn caps(&self) -> &Caps;

    /// Returns the address through which peers reach this device.
    fn address(&self) -> Address;

    /// Returns the priority of the device for the peer at this address, or `None` if it cannot reach that peer.
    fn affinity(&self, peer: &Address) -> Option<Affinity>;

    /// Starts a connection and returns at once. Until the connection is established, [`Endpoint::post`] returns
    /// [`PostError::Again`].
    ///
    /// # Errors
    /// If the address is invalid, the peer cannot be reached or is not compatible, or the device has no resources for
    /// it.
    fn connect(&self, peer: PeerId, at: &Address) -> Result<Box<dyn Endpoint>, OpenError>;

    /// Registers memory with the device, for keys or for local access by the device.
    ///
    /// The engine calls it for each operation that needs a registration. For a pool block, `region` is given: a device
    /// with costly registration registers the whole region once, with every kind of access that may be needed later,
    /// and stores the result in [`Region::registrations`].
    ///
    /// # Errors
    /// If the device or the operating system reports an error, or does not support registration. The engine then sends
    /// the message in frames.
    ///
    /// # Safety
    /// The memory remains valid and readable, and writable if the device or a peer is to write it, until the last copy
    /// of the registration is dropped. `region`, if given, is the region that contains the memory.
    #[expect(unsafe_code, reason = "the device and peers reach the memory later")]
    unsafe fn register(
        &self,
        _memory: &MemoryDesc,
        _region: Option<&Region>,
        _access: Access,
    ) -> Result<Registration, RegisterError> {
        Err(RegisterError { call: "register", errno: sys::NOT_SUPPORTED })
    }

    /// Packs the key through which a peer accesses the packed bytes `at..at + len` of registered memory. Returns `None`
    /// if the device cannot name that range.
    fn pack_key(&self, _memory: &Registration, _at: usize, _len: usize) -> Option<RemoteKey> {
        None
    }

    /// Ends a peer's access to registered memory through the keys that were packed for it, and returns at once. The
    /// engine calls it before it releases memory for which the peer has not reported completion.
    ///
    /// Later operations of the peer with such a key fail with [`PostError::Revoked`]; a live peer is not affected
    /// otherwise. The connection to a peer that has [died or exited](Endpoint::peer_gone) may be broken to enforce
    /// this.
    fn quiesce(&self, _peer: PeerId, _memory: &Registration, _op: OpToken) -> QuiesceStatus {
        QuiesceStatus::Done
    }

    /// Returns a function that allocates memory which peers can view in place; `None` if the device has no views, or
    /// does not need special memory for them. The function may be used for longer than the device.
    fn exportable_storage(&self) -> Option<MakeStorage> {
        None
    }

    /// Returns whether a peer could [view](Endpoint::view) this memory after an [`export`](Self::export), as long as
    /// not too much is exported.
    fn can_export(&self, _memory: &MemoryDesc) -> bool {
        false
    }

    /// Exports memory to a peer, which may [view](Endpoint::view) it in place if it is contiguous, or
    /// [get](Endpoint::get) from it if the device supports that. Returns `None` if the device cannot export this
    /// memory, or if too much is exported.
    ///
    /// The device holds a copy of `keep` for as long as the peer views the memory, even after the registration was
    /// dropped. After that drop, the owner may reuse the memory as soon as it has the only copy of `keep`.
    ///
    /// # Safety
    /// The memory is initialised. It stays valid and is not written to while a copy of `keep` exists.
    #[expect(unsafe_code, reason = "peers read the memory later")]
    unsafe fn export(&self, _memory: &MemoryDesc, _keep: &KeepAlive) -> Option<Registration> {
        None
    }

    /// Returns whether the peer has received the message: it has begun to view the exported memory, or the device knows
    /// that it has copied all of the registered memory. After [`quiesce`](Self::quiesce) the result does not change.
    fn is_received(&self, _memory: &Registration) -> bool {
        false
    }

    /// Returns a descriptor that becomes readable when a frame arrives or an operation completes, for devices that do
    /// not ring the doorbell of this rank for these events. The rank calls it before each sleep, and polls the inlet
    /// once more afterwards.
    fn arm(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

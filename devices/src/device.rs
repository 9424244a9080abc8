//! What a device is: the traits between the engine, which matches and runs protocols, and the transports, which move
//! frames.
//!
//! A *frame* is a head of 8 to [`HEAD_MAX`] bytes and a body. A device keeps the frames of one peer in order, never
//! merges or splits them, and does not look into them. [`Device`] is `&self` throughout and shared by all threads; the
//! two ends that carry state per message are values with one owner each, so that no device needs a lock of its own:
//!
//! * a [`Endpoint`] is the sending end to one peer and lives in that peer's outbox, under the outbox's lock;
//! * the [`Inlet`] is the receiving end for all peers and lives in the engine's turn, under the turn's lock.

mod body;
mod inlet;
mod link;
mod memory;

use std::fmt;
use std::time::Duration;

use mpj_pool::{Access, Region, RegisterError, Storage, StorageError};

use crate::config::Config;
pub use crate::layout::{KeepAlive, Pieces};
use crate::site::Site;
use crate::sys::{self, BorrowedFd};
pub use body::{Body, Packed, PackedBody};
pub use inlet::{Inlet, Landing, Sink};
pub use link::Endpoint;
pub use memory::{
    KEY_MAX, MemoryDesc, MemoryPart, OpStatus, OpToken, QuiesceStatus, Reach, Registration, RemoteKey, View,
};

/// The longest head of a frame in bytes: what fits in a cache line beside the ring's own 8 bytes.
pub const HEAD_MAX: usize = 56;

/// The longest time that a device keeps a frame back of its own accord: see [`Endpoint::post_more`].
pub const MAX_COALESCE_DELAY: Duration = Duration::from_millis(1);

/// A process of the job, by its rank in the world.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", self.0)
    }
}

/// How a peer reaches a device: the bytes of its card, published once at start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address(pub Vec<u8>);

/// How good a device is for a peer; the highest wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Affinity(pub u32);

/// What a device can do, and from which sizes on which path pays.
#[derive(Clone, Debug)]
pub struct Caps {
    /// Bodies up to this many bytes go eagerly, copied through the device.
    pub eager_limit: usize,
    /// The longest body of one frame in bytes, at least `eager`.
    pub max_send_size: usize,
    /// For which bodies [`Endpoint::get`] pays, if it works: the receiver moves them from the sender's memory. A device that
    /// has moved the bytes when the call returns holds up who wants to send to that peer: `most` bounds for how long.
    pub get: Option<Reach>,
    /// For which bodies [`Endpoint::put`] pays, if it works: the sender moves them to the receiver's memory. No protocol of
    /// the engine uses it yet.
    pub put: Option<Reach>,
    /// For which bodies [`Endpoint::post_zcopy`] pays, if it works: they are sent from where they lie.
    pub zcopy: Option<Reach>,
    /// Whether [`Endpoint::get`] and [`Endpoint::put`] move memory of any layout, and chains; otherwise they are used for one run
    /// alone.
    pub noncontiguous: bool,
    /// Whether they, and [`Endpoint::post_zcopy`], want their own end of a move registered, and from how many bytes on it pays to
    /// register memory that lies in no region of a pool, for one operation. Shorter bodies go through a block of the global
    /// pool, but by [`DataPath::ZeroCopy`](crate::DataPath::ZeroCopy); and so do those of a layout that is not moved.
    pub register_from: Option<usize>,
    /// Whether peers can [look at](Endpoint::view) memory that this rank [lends](Device::export), where it lies.
    pub exports: bool,
}

impl Caps {
    /// What a device can do that moves frames and no memory.
    pub const fn frames(eager: usize, fragment: usize) -> Self {
        let (get, put, lend) = (None, None, None);
        Caps {
            eager_limit: eager,
            max_send_size: fragment,
            get,
            put,
            zcopy: lend,
            noncontiguous: false,
            register_from: None,
            exports: false,
        }
    }
}

/// Why a frame was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PostError {
    /// No room now. The device rings the doorbell of this rank when there is; post again then.
    Again,
    /// The link is broken for good, or the peer has broken the protocol: it is as good as dead.
    Broken(String),
    /// What a key names was taken back by its owner: nothing was moved, and the link is fine.
    Revoked,
    /// The device cannot do this at all; see [`Caps`].
    Unsupported,
}

/// Why a device or a link could not be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenError {
    /// The device; empty if the error is about no single device.
    pub device: &'static str,
    /// What failed and what to do about it.
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

/// Makes memory of at least so many bytes for a pool.
pub type MakeStorage = Box<dyn Fn(usize) -> Result<Box<dyn Storage>, StorageError> + Send + Sync>;

/// A kind of device: what a [`Registry`](crate::Registry) holds. It is a value that brings what the device needs, such as
/// the memory that processes share.
///
/// # Safety
/// The inlet that [`open`](Self::open) returns is that of the device, which was opened for this call: the moves whose ends it
/// tells are those that links of the device have started.
///
/// So that code without `unsafe` cannot end the moves of one device in the name of another:
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
#[expect(unsafe_code, reason = "memory is given back when an inlet says that a device is done with it")]
pub unsafe trait Driver: Send + Sync + fmt::Debug {
    /// Returns the name users choose the device by, such as `smdev`.
    fn name(&self) -> &'static str;

    /// Opens the device for one rank.
    ///
    /// # Errors
    /// What the device needs and the site does not have.
    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError>;
}

/// An opened device: its shared face and its receiving end.
#[derive(Debug)]
pub struct Opened {
    /// The face all threads share.
    pub device: Box<dyn Device>,
    /// The receiving end.
    pub inlet: Box<dyn Inlet>,
}

/// A device of one rank, opened.
///
/// # Safety
/// Of the device, and of the links that [`connect`](Self::connect) makes:
/// * [`Endpoint::get`] answers [`OpStatus::Done`] only when all bytes are written. Until it has, or until
///   [`Sink::completed`] is called with its token, it writes those bytes and nothing else; afterwards, and after an error,
///   nothing. [`Endpoint::put`] and [`Endpoint::post_zcopy`] read theirs as long, and no longer.
/// * Where [`quiesce`](Self::quiesce) has answered [`QuiesceStatus::Done`], and from the call of [`Sink::quiesced`] on, the peer
///   writes no memory by any key that was packed for it, and receives nothing of it: a copy under way fails with
///   [`PostError::Revoked`]. A view that the peer took before makes the message [received](Self::is_received). The peer may go
///   on to read, where that is another process's doing and harms nobody.
/// * When the links, the inlet and then the device have been dropped, nothing of all this is read or written any more.
#[expect(unsafe_code, reason = "messages are delivered from memory that a device says it has written")]
pub unsafe trait Device: Send + Sync + fmt::Debug {
    /// Returns the name of its driver.
    fn name(&self) -> &'static str;

    /// Returns what it can do.
    fn caps(&self) -> &Caps;

    /// Returns what peers need to reach it.
    fn address(&self) -> Address;

    /// Returns how good it is for that peer, or `None` if it cannot reach it.
    fn affinity(&self, peer: &Address) -> Option<Affinity>;

    /// Starts a connection and returns at once; [`Endpoint::post`] answers [`PostError::Again`] until it stands.
    ///
    /// # Errors
    /// An address that makes no sense, or no resources for one more peer.
    fn connect(&self, peer: PeerId, at: &Address) -> Result<Box<dyn Endpoint>, OpenError>;

    /// Makes memory known to the device, for keys or for this process's own end of a move.
    ///
    /// It is called for each operation: a device for which it takes long keeps what it has registered. Of a block of a
    /// pool it is told the `region`, which it registers once for all its blocks, and so for every access that it may be
    /// asked for: what it makes of the region stays in [`Region::registrations`], and a key names a place in it.
    ///
    /// # Errors
    /// What the device, or the system in its name, said: the message goes in frames then.
    ///
    /// # Safety
    /// The memory stays as it is, readable and for [`Access::WRITE`] writable, until the last copy of the registration
    /// is dropped; `region`, if any, is the one that the memory lies in.
    #[expect(unsafe_code, reason = "the device and peers reach the memory later")]
    unsafe fn register(
        &self,
        _memory: &MemoryDesc,
        _region: Option<&Region>,
        _access: Access,
    ) -> Result<Registration, RegisterError> {
        Err(RegisterError { call: "register", errno: sys::NOT_SUPPORTED })
    }

    /// Packs what a peer needs to reach the packed bytes `at..at + len` of registered memory; `None` if it cannot.
    fn pack_key(&self, _memory: &Registration, _at: usize, _len: usize) -> Option<RemoteKey> {
        None
    }

    /// Makes sure that a peer does not reach registered memory any more by a key that was packed for it, before the
    /// memory goes back without the peer's word that it is done; returns at once.
    ///
    /// A peer that tries afterwards is told [`PostError::Revoked`]. To a peer that lives nothing else happens; the
    /// connection to one that has [died or left](Endpoint::peer_gone) may be broken for it.
    fn quiesce(&self, _peer: PeerId, _memory: &Registration, _op: OpToken) -> QuiesceStatus {
        QuiesceStatus::Done
    }

    /// Returns what makes memory that peers can look at where it lies, if there is such memory; it may be used for longer than
    /// the device.
    fn exportable_storage(&self) -> Option<MakeStorage> {
        None
    }

    /// Lends memory of [such a exportable_storage](Self::exportable_storage) to a peer, which may [look at it](Endpoint::view) where it lies, or
    /// [get](Endpoint::get) from it. `None` if the memory lies elsewhere, or too much is lent.
    ///
    /// The registration has a key as others have. It keeps `keep` for as long as the peer looks at the memory, also when it was
    /// dropped before that: who drops it may go on to use the memory if nobody else has a copy of `keep`.
    ///
    /// # Safety
    /// The memory is initialised, and as long as there is a copy of `keep` it stays there and nobody writes to it.
    #[expect(unsafe_code, reason = "peers read the memory later")]
    unsafe fn export(&self, _memory: &MemoryDesc, _keep: &KeepAlive) -> Option<Registration> {
        None
    }

    /// Returns whether the peer has received the message: it has begun to view the lent memory, or the device knows that it has
    /// copied all of the registered memory. After [`quiesce`](Self::quiesce) the answer does not change.
    fn is_received(&self, _memory: &Registration) -> bool {
        false
    }

    /// Returns a descriptor that becomes readable when a frame arrives or a move ends, for devices that do not ring the
    /// doorbell of this rank then. Called before each sleep, with one more look at the inlet after.
    fn arm(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

//! What a device is: the traits between the engine, which matches and runs protocols, and the transports, which move
//! frames.
//!
//! A *frame* is a head of 8 to [`HEAD_MAX`] bytes and a body. A device keeps the frames of one peer in order, never
//! merges or splits them, and does not look into them. [`Device`] is `&self` throughout and shared by all threads; the
//! two ends that carry state per message are values with one owner each, so that no device needs a lock of its own:
//!
//! * a [`Link`] is the sending end to one peer and lives in that peer's outbox, under the outbox's lock;
//! * the [`Inlet`] is the receiving end for all peers and lives in the engine's turn, under the turn's lock.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use crate::config::Config;
pub use crate::layout::Pieces;
use crate::site::Site;

/// The longest head of a frame in bytes: what fits in a cache line beside the ring's own 8 bytes.
pub const HEAD_MAX: usize = 56;

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

/// Names memory that [`Device::offer`] lent to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteKey(pub u64);

/// What a device can do, and from which sizes on which path pays.
#[derive(Clone, Debug)]
pub struct Caps {
    /// Bodies up to this many bytes go eagerly, copied through the device.
    pub eager: usize,
    /// The longest body of one frame in bytes, at least `eager`.
    pub fragment: usize,
    /// Whether [`Device::offer`] and [`Device::get`] work: one copy from the sender's memory to the receiver's.
    pub get: bool,
}

/// The body of a frame to post.
pub enum Body<'a> {
    /// No body.
    Empty,
    /// These bytes; the device has copied or written them when `post` returns `Ok`.
    Bytes(&'a [u8]),
    /// Bytes in pieces, to be written one after the other.
    Chain(Pieces<'a>),
    /// Bytes that are written straight into the device's memory.
    Fill(Fill<'a>),
}

impl Body<'_> {
    /// Returns the length of the body in bytes.
    pub fn len(&self) -> usize {
        match self {
            Body::Empty => 0,
            Body::Bytes(bytes) => bytes.len(),
            Body::Chain(pieces) => pieces.len(),
            Body::Fill(fill) => fill.len,
        }
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} B)", self.len())
    }
}

/// Bytes that are packed where they are wanted.
///
/// # Safety
/// [`pack`](Self::pack) initialises every byte of its room: a device sends what is there then.
#[expect(unsafe_code, reason = "a device takes its memory for written")]
pub unsafe trait Packed {
    /// Writes the bytes from `position` on to `room`, which reaches no further than they do.
    fn pack(&self, position: usize, room: &mut [MaybeUninit<u8>]);
}

/// A body that does not lie in one piece: who posts it packs it where the device wants it.
pub struct Fill<'a> {
    packed: &'a dyn Packed,
    position: usize,
    len: usize,
}

impl<'a> Fill<'a> {
    /// Makes a body of `len` bytes from `position` on.
    #[inline]
    pub fn new(packed: &'a dyn Packed, position: usize, len: usize) -> Self {
        Fill { packed, position, len }
    }

    /// Writes the body to `room`, which is as long as the [body](Body::len); its bytes are initialised then.
    #[inline]
    pub fn write(self, room: &mut [MaybeUninit<u8>]) {
        self.packed.pack(self.position, room);
    }
}

impl fmt::Debug for Fill<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fill({} B)", self.len)
    }
}

/// Why a frame was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PostError {
    /// No room now. The device rings the doorbell of this rank when there is; post again then.
    Again,
    /// The link is broken for good.
    Broken(String),
    /// The device cannot do this at all; see [`Caps`].
    Unsupported,
}

/// Why a device or a link could not be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenError {
    /// The device.
    pub device: &'static str,
    /// What failed and what to do about it.
    pub why: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.device, self.why)
    }
}

impl std::error::Error for OpenError {}

/// A kind of device: what a [`Registry`](crate::Registry) holds.
pub trait Driver: Sync + fmt::Debug {
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
/// * [`get`](Self::get) answers `Ok` only when it has written all `len` bytes at `to`, and writes nothing there after it
///   has returned, whatever it answers.
/// * When [`revoke`](Self::revoke) has returned, nobody reads through the pointer that was offered.
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

    /// Starts a connection and returns at once; [`Link::post`] answers [`PostError::Again`] until it stands.
    ///
    /// # Errors
    /// An address that makes no sense, or no resources for one more peer.
    fn connect(&self, peer: PeerId, at: &Address) -> Result<Box<dyn Link>, OpenError>;

    /// Lends `len` bytes at `from` to a peer's [`get`](Self::get); `None` if the device cannot.
    ///
    /// # Safety
    /// The bytes stay readable and unchanged until [`revoke`](Self::revoke) has returned.
    #[expect(unsafe_code, reason = "the peer reads through the pointer later")]
    unsafe fn offer(&self, _from: *const u8, _len: usize) -> Option<RemoteKey> {
        None
    }

    /// Takes an offer back. When it returns, no peer reads the bytes any more; it waits for a copy that has begun.
    fn revoke(&self, _key: RemoteKey) {}

    /// Reads the first `len` bytes of a peer's offer into `to`; the copy is complete when it returns.
    ///
    /// # Errors
    /// [`PostError::Broken`] if the offer was taken back or is shorter than `len`.
    ///
    /// # Safety
    /// `to` is valid for writes of `len` bytes.
    #[expect(unsafe_code, reason = "copies to a raw destination")]
    unsafe fn get(&self, _peer: PeerId, _key: RemoteKey, _to: *mut u8, _len: usize) -> Result<(), PostError> {
        Err(PostError::Unsupported)
    }

    /// Returns a descriptor that becomes readable on arrival, for devices whose peers do not ring the doorbell.
    fn arm(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The sending end to one peer.
pub trait Link: Send + fmt::Debug {
    /// Sends one frame; on `Ok` head and body may be reused.
    ///
    /// # Errors
    /// [`PostError::Again`] if there is no room now, and the body was not [written](Fill::write).
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError>;

    /// Moves bytes that `post` took but could not yet write out; returns whether any are left.
    ///
    /// # Errors
    /// [`PostError::Broken`].
    fn flush(&mut self) -> Result<bool, PostError> {
        Ok(false)
    }

    /// Returns whether [`post`](Self::post) has taken bytes that are not written out: [`flush`](Self::flush) has work.
    fn is_staged(&self) -> bool {
        false
    }

    /// Takes note that the peer has left or died: nothing more is posted, a connection that does not stand yet is not
    /// tried again, and what the peer holds of this rank's comes back as soon as it cannot touch it any more.
    fn forget(&mut self) {}

    /// Returns whether all that `post` took has reached the peer's host, for a device that does not deliver at once.
    /// A rank says that it has left only then.
    fn is_settled(&mut self) -> bool {
        true
    }
}

/// The receiving end for all peers.
///
/// # Safety
/// * Of what [`Sink::begin`] answers with [`Landing::Into`], the `len` bytes of that body are written and nothing else, and
///   only within [`progress`](Self::progress).
/// * [`Sink::landed`] is called only when all of them are.
/// * A peer has one body at a time: from `begin` to [`Sink::landed`] or [`Sink::lost`], which ends the writing.
///
/// So that code without `unsafe` cannot pass off memory as written:
/// ```compile_fail,E0200
/// # use mpj_devices::{Inlet, PeerId, Sink};
/// #[derive(Debug)]
/// struct Hollow;
///
/// impl Inlet for Hollow {
///     fn progress(&mut self, sink: &mut dyn Sink) -> usize {
///         sink.begin(PeerId(1), &[0; 40], 500);
///         sink.landed(PeerId(1));
///         1
///     }
/// }
/// ```
#[expect(unsafe_code, reason = "messages are delivered from memory that an inlet says it has written")]
pub unsafe trait Inlet: Send + fmt::Debug {
    /// Hands every frame that has arrived to `sink`, up to a bound; never blocks. Returns how many frames.
    fn progress(&mut self, sink: &mut dyn Sink) -> usize;
}

/// Where the body of an arriving frame goes.
#[derive(Debug)]
pub enum Landing {
    /// To these bytes, exactly as long as the body; they stay valid until [`Sink::landed`] or [`Sink::lost`].
    Into(*mut u8),
    /// To [`Sink::piece`], in order, in pieces of any length.
    Pieces,
}

/// What an [`Inlet`] hands frames to.
///
/// # Safety
/// What [`begin`](Self::begin) answers with [`Landing::Into`] is valid for writes of `len` bytes, and used by nobody else,
/// until [`landed`](Self::landed) or [`lost`](Self::lost) is called for that peer; where neither is, as long as the inlet is
/// used, with this sink or another.
#[expect(unsafe_code, reason = "an inlet writes to where the sink says")]
pub unsafe trait Sink {
    /// Takes a frame whose body is all there. `body` need not outlive the call.
    fn frame(&mut self, from: PeerId, head: &[u8], body: &[u8]);

    /// Takes a head whose body of `len` bytes still comes; says where to. One body a peer at a time.
    fn begin(&mut self, from: PeerId, head: &[u8], len: usize) -> Landing;

    /// Takes the next bytes of a body that goes to [`Landing::Pieces`].
    fn piece(&mut self, from: PeerId, bytes: &[u8]);

    /// Ends a body: all of it has landed.
    fn landed(&mut self, from: PeerId);

    /// Tells that nothing more will come from a peer, and why; a body under way is void.
    fn lost(&mut self, from: PeerId, why: &str);
}

//! What a device is: the traits between the engine, which matches and runs protocols, and the transports, which move
//! frames.
//!
//! A *frame* is a head of 8 to [`HEAD_MAX`] bytes and a body. A device keeps the frames of one peer in order, never
//! merges or splits them, and does not look into them. [`Device`] is `&self` throughout and shared by all threads; the
//! two ends that carry state per message are values with one owner each, so that no device needs a lock of its own:
//!
//! * a [`Link`] is the sending end to one peer and lives in that peer's outbox, under the outbox's lock;
//! * the [`Inlet`] is the receiving end for all peers and lives in the engine's turn, under the turn's lock.

mod memory;

use std::fmt;
use std::mem::MaybeUninit;
use std::time::Duration;

use mpj_pool::{Access, Region, RegisterError};

use crate::config::Config;
pub use crate::layout::Pieces;
use crate::site::Site;
use crate::sys::{self, BorrowedFd};
pub use memory::{KEY_MAX, Memory, Moved, Part, Quiet, Reach, Registration, RemoteKey, Token};

/// The longest head of a frame in bytes: what fits in a cache line beside the ring's own 8 bytes.
pub const HEAD_MAX: usize = 56;

/// The longest time that a device keeps a frame back of its own accord: see [`Link::post_more`].
pub const HELD: Duration = Duration::from_millis(1);

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
    pub eager: usize,
    /// The longest body of one frame in bytes, at least `eager`.
    pub fragment: usize,
    /// For which bodies [`Link::get`] pays, if it works: the receiver moves them from the sender's memory. A device that
    /// has moved the bytes when the call returns holds up who wants to send to that peer: `most` bounds for how long.
    pub get: Option<Reach>,
    /// For which bodies [`Link::put`] pays, if it works: the sender moves them to the receiver's memory. No protocol of
    /// the engine uses it yet.
    pub put: Option<Reach>,
    /// For which bodies [`Link::post_lent`] pays, if it works: they are sent from where they lie.
    pub lend: Option<Reach>,
    /// Whether [`Link::get`] and [`Link::put`] move memory of any layout, and chains; otherwise they are used for one run
    /// alone.
    pub layouts: bool,
    /// Whether they, and [`Link::post_lent`], want their own end of a move registered.
    pub registers: bool,
}

impl Caps {
    /// What a device can do that moves frames and no memory.
    pub const fn frames(eager: usize, fragment: usize) -> Self {
        Caps { eager, fragment, get: None, put: None, lend: None, layouts: false, registers: false }
    }
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

    /// Writes the bytes from `at` on to `room`, which reaches no further than the body does.
    #[inline]
    pub(crate) fn write_part(&self, at: usize, room: &mut [MaybeUninit<u8>]) {
        self.packed.pack(self.position + at, room);
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
    /// The link is broken for good, or the peer has broken the protocol: it is as good as dead.
    Broken(String),
    /// What a key names was taken back by its owner: nothing was moved, and the link is fine.
    Withdrawn,
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

/// A kind of device: what a [`Registry`](crate::Registry) holds. It is a value that brings what the device needs, such as
/// the memory that processes share.
pub trait Driver: Send + Sync + fmt::Debug {
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
/// * [`Link::get`] answers [`Moved::Done`] only when all bytes are written. Until it has, or until
///   [`Sink::moved`] is called with its token, it writes those bytes and nothing else; afterwards, and after an error,
///   nothing. [`Link::put`] and [`Link::post_lent`] read theirs as long, and no longer.
/// * Where [`quiesce`](Self::quiesce) has answered [`Quiet::Now`], and from the call of [`Sink::quiet`] on, the peer
///   writes no memory by any key that was packed for it, and receives nothing of it. It may go on to read, where that is
///   another process's doing and harms nobody.
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

    /// Starts a connection and returns at once; [`Link::post`] answers [`PostError::Again`] until it stands.
    ///
    /// # Errors
    /// An address that makes no sense, or no resources for one more peer.
    fn connect(&self, peer: PeerId, at: &Address) -> Result<Box<dyn Link>, OpenError>;

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
        _memory: &Memory,
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
    /// A peer that tries afterwards is told [`PostError::Withdrawn`]. To a peer that lives nothing else happens; the
    /// connection to one that has [died or left](Link::forget) may be broken for it.
    fn quiesce(&self, _peer: PeerId, _memory: &Registration, _op: Token) -> Quiet {
        Quiet::Now
    }

    /// Returns a descriptor that becomes readable when a frame arrives or a move ends, for devices that do not ring the
    /// doorbell of this rank then. Called before each sleep, with one more look at the inlet after.
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

    /// Sends one frame as [`post`](Self::post) does, of a caller that may have more to send at once: where a frame alone
    /// costs much, the device may keep it back to send several together.
    ///
    /// What is kept back [is staged](Self::is_staged), and leaves with the next frame that is posted or by
    /// [`flush`](Self::flush), whichever is first; without either it leaves within [`HELD`] all the same where there is
    /// room for it, as the thread that started it may compute for long.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    #[inline]
    fn post_more(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.post(head, body)
    }

    /// Sends one frame whose body stays where it is until the device is done with it.
    ///
    /// The order among frames is that of the calls, as for [`post`](Self::post).
    ///
    /// # Errors
    /// As [`post`](Self::post).
    ///
    /// # Safety
    /// The bytes of `body` stay as they are until this has answered [`Moved::Done`] or an error, or
    /// [`Sink::moved`] has been called with `op`; or until the device is dropped.
    #[expect(unsafe_code, reason = "the device reads the memory later")]
    unsafe fn post_lent(&mut self, _head: &[u8], _body: &[Part<'_>], _op: Token) -> Result<Moved, PostError> {
        Err(PostError::Unsupported)
    }

    /// Moves bytes from the peer's memory that `key` names, beginning with its byte `at`, to all of `to`.
    ///
    /// # Errors
    /// [`PostError::Again`] if there is no room now, [`PostError::Withdrawn`] if the peer has taken the memory back,
    /// [`PostError::Broken`] if the key makes no sense.
    ///
    /// # Safety
    /// `to` stays writable, and nobody else reads or writes it, until this has answered [`Moved::Done`] or an error, or
    /// [`Sink::moved`] has been called with `op`; or until the device is dropped.
    #[expect(unsafe_code, reason = "the device writes the memory later")]
    unsafe fn get(
        &mut self,
        _key: &RemoteKey,
        _at: u64,
        _to: Part<'_>,
        _op: Token,
    ) -> Result<Moved, PostError> {
        Err(PostError::Unsupported)
    }

    /// Moves all of `from` to the peer's memory that `key` names, beginning with its byte `at`. When it has ended the
    /// bytes are in the peer's memory, before any frame that is posted then.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// As [`post_lent`](Self::post_lent), of `from`.
    #[expect(unsafe_code, reason = "the device reads the memory later")]
    unsafe fn put(
        &mut self,
        _key: &RemoteKey,
        _at: u64,
        _from: Part<'_>,
        _op: Token,
    ) -> Result<Moved, PostError> {
        Err(PostError::Unsupported)
    }

    /// Moves bytes that `post` took but could not yet write out, or was asked to keep back; returns whether any are left.
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
    /// tried again, and what the peer holds of this rank's comes back as soon as it cannot touch it any more. Moves that
    /// have been started end all the same, as failed.
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
/// * [`Sink::moved`] is called once for each move that was [started](Moved::Started), when its bytes are not used any more;
///   with `Ok` only if all of them have moved. [`Sink::quiet`] is called once for each [`Quiet::Later`].
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
    /// Hands every frame that has arrived, and every move that has ended, to `sink`, up to a bound; never blocks. Returns
    /// how many. No lock is held meanwhile that a call of the device or a link takes.
    fn progress(&mut self, sink: &mut dyn Sink) -> usize;

    /// Takes note that a peer has died, as others say: its connection may stay open for ever. A body from it that is under
    /// way ends, by [`Sink::lost`]. What has come whole from before the death was handed over by then.
    ///
    /// A peer that [leaves](Link::forget) ends no body: it leaves when all that it has sent has arrived. A device that
    /// hands over whole frames alone has nothing to do.
    fn bury(&mut self, _peer: PeerId, _sink: &mut dyn Sink) {}
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

    /// Tells that a move has ended that a link has [started](Moved::Started): its bytes have moved, or why they have not.
    fn moved(&mut self, op: Token, outcome: Result<(), String>);

    /// Tells that a peer does not reach the memory any more that [`Device::quiesce`] was asked about.
    fn quiet(&mut self, op: Token);
}

//! The one connection to a peer, shared by the link that writes and the inlet that reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::frame::{Header, Kind};
use super::outgoing::SendBuffer;
use super::poller::{Poller, Token};
use crate::device::PeerId;
use crate::engine::lock;
use crate::sys::Interest;
use crate::sys::{Errno, OwnedFd, socket};

/// The connection to one peer, from before it stands until both ends have let go of it.
#[derive(Debug)]
pub(super) struct TcpConnection {
    pub(super) peer: PeerId,
    poller: Arc<Poller>,
    stream: OnceLock<OwnedFd>,
    /// Nothing more goes to the peer: it has left, or it cannot be reached. The inlet says which.
    over: AtomicBool,
    /// A frame was cut off in the middle, so the connection cannot end with a goodbye.
    torn: AtomicBool,
    watch: Mutex<Watch>,
    out: Mutex<SendBuffer>,
}

/// What the poller was told.
#[derive(Debug)]
struct Watch {
    token: Option<Token>,
    room: bool,
}

impl TcpConnection {
    pub(super) fn new(peer: PeerId, poller: Arc<Poller>) -> Self {
        TcpConnection {
            peer,
            poller,
            stream: OnceLock::new(),
            over: AtomicBool::new(false),
            torn: AtomicBool::new(false),
            watch: Mutex::new(Watch { token: None, room: false }),
            out: Mutex::default(),
        }
    }

    /// Returns the connection if it stands.
    #[inline]
    pub(super) fn stream(&self) -> Option<&OwnedFd> {
        self.stream.get()
    }

    /// Takes a connection whose handshake is done; false if there is one.
    pub(super) fn establish(&self, stream: OwnedFd) -> bool {
        !self.is_over() && self.stream.set(stream).is_ok()
    }

    /// Watches for arrivals under this token, and for room if the link has asked for it already.
    pub(super) fn watch(&self, token: Token) -> Result<(), Errno> {
        let mut watch = lock(&self.watch);
        watch.token = Some(token);
        let what = if watch.room { Interest::Both } else { Interest::Read };
        self.stream.get().map_or(Ok(()), |stream| self.poller.change(stream, token, what))
    }

    /// Has the poller wake this rank when there is room to write, once.
    #[cold]
    pub(super) fn set_write_interest(&self, room: bool) {
        let mut watch = lock(&self.watch);
        if watch.room == room || self.is_over() {
            return;
        }
        watch.room = room;
        if let (Some(stream), Some(token)) = (self.stream.get(), watch.token) {
            let what = if room { Interest::Both } else { Interest::Read };
            // If this fails, a sleeping rank only wakes up later.
            let _ = self.poller.change(stream, token, what);
        }
    }

    /// Returns what waits to be written: the link's, and the flusher's.
    #[inline]
    pub(super) fn out(&self) -> MutexGuard<'_, SendBuffer> {
        lock(&self.out)
    }

    /// Writes out what was held back, for the flusher; returns whether any is left, as the socket has no room.
    pub(super) fn write_held(&self) -> bool {
        let mut out = self.out();
        out.watched = false;
        out.write_out(self)
    }

    /// Tries once more to write out what was left; returns whether to try again. No, if frames are held since: they are
    /// looked after.
    pub(super) fn write_stuck(&self) -> bool {
        let mut out = self.out();
        !out.watched && out.write_out(self)
    }

    /// Whether there is, or was, a connection, or never will be.
    pub(super) fn needs_no_connect(&self) -> bool {
        self.stream.get().is_some() || self.is_over()
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Nothing more goes to the peer.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Nothing more comes from the peer, either.
    pub(super) fn shut(&self) {
        self.end();
        if let Some(stream) = self.stream.get() {
            self.poller.remove(stream);
            socket::shut(stream);
        }
    }

    pub(super) fn mark_truncated(&self) {
        self.torn.store(true, Ordering::Relaxed);
    }
}

impl Drop for TcpConnection {
    /// Says goodbye, so that the peer does not take the end of the connection for a death.
    fn drop(&mut self) {
        let Some(stream) = self.stream.get() else { return };
        if !self.is_over() && !self.torn.load(Ordering::Relaxed) && !std::thread::panicking() {
            let goodbye = Header::bare(Kind::Goodbye).to_bytes();
            // Best effort: the peer also hears from its roster that this rank has left.
            let _ = socket::send(stream, &goodbye);
        }
        socket::shut_writing(stream);
        // To close with bytes unread resets the connection, and the peer would lose what it has not read.
        let mut rest = [0u8; 4096];
        for _ in 0..1024 {
            match socket::recv(stream, &mut rest) {
                Ok(1..) => (),
                _ => break,
            }
        }
    }
}

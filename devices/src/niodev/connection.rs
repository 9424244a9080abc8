//! The connection to a peer, shared by the endpoint that writes and the inlet that reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::frame::{NioFrameKind, NioHeader};
use super::poller::{Poller, Token};
use super::send_buffer::SendBuffer;
use crate::device::PeerId;
use crate::engine::lock;
use crate::sys::Interest;
use crate::sys::{Errno, OwnedFd, socket};

/// The connection to one peer, from before it is established until device, endpoint and inlet have been dropped.
#[derive(Debug)]
pub(super) struct TcpConnection {
    pub(super) peer: PeerId,
    poller: Arc<Poller>,
    stream: OnceLock<OwnedFd>,
    /// Whether nothing more is sent: the peer exits, has died or is unreachable, or the connection has failed.
    closed: AtomicBool,
    /// Whether the endpoint was dropped with unsent bytes, so that the connection cannot end with a goodbye.
    truncated: AtomicBool,
    registration: Mutex<PollerRegistration>,
    send_buffer: Mutex<SendBuffer>,
}

#[derive(Debug)]
struct PollerRegistration {
    token: Option<Token>,
    /// Whether the poller also reports space to write.
    write: bool,
}

impl TcpConnection {
    pub(super) fn new(peer: PeerId, poller: Arc<Poller>) -> Self {
        TcpConnection {
            peer,
            poller,
            stream: OnceLock::new(),
            closed: AtomicBool::new(false),
            truncated: AtomicBool::new(false),
            registration: Mutex::new(PollerRegistration { token: None, write: false }),
            send_buffer: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn stream(&self) -> Option<&OwnedFd> {
        self.stream.get()
    }

    /// Sets the socket after the handshake. Returns false if a socket was set before, or if the connection is closed.
    pub(super) fn establish(&self, stream: OwnedFd) -> bool {
        !self.is_closed() && self.stream.set(stream).is_ok()
    }

    /// Makes the poller report input under `token`, and also space to write if the endpoint has already requested that.
    pub(super) fn register_reader(&self, token: Token) -> Result<(), Errno> {
        let mut registration = lock(&self.registration);
        registration.token = Some(token);
        let what = if registration.write { Interest::Both } else { Interest::Read };
        self.stream.get().map_or(Ok(()), |stream| self.poller.change(stream, token, what))
    }

    /// Sets whether the poller reports space to write. The inlet resets it after each report.
    #[cold]
    pub(super) fn set_write_interest(&self, write: bool) {
        let mut registration = lock(&self.registration);
        if registration.write == write || self.is_closed() {
            return;
        }
        registration.write = write;
        if let (Some(stream), Some(token)) = (self.stream.get(), registration.token) {
            let what = if write { Interest::Both } else { Interest::Read };
            // If this fails, a sleeping rank posts refused frames again only when its sleep times out.
            let _ = self.poller.change(stream, token, what);
        }
    }

    #[inline]
    pub(super) fn send_buffer(&self) -> MutexGuard<'_, SendBuffer> {
        lock(&self.send_buffer)
    }

    /// Writes the buffered frames, for the flusher; returns whether any bytes remain because the socket has no space.
    pub(super) fn flush_coalesced(&self) -> bool {
        let mut out = self.send_buffer();
        out.in_flusher = false;
        out.write_out(self)
    }

    /// Tries again to write the remaining bytes, for the flusher; returns whether another attempt is needed. If the
    /// connection is in the flusher's list again, returns false without a write.
    pub(super) fn retry_write(&self) -> bool {
        let mut out = self.send_buffer();
        !out.in_flusher && out.write_out(self)
    }

    /// Returns whether the connection is established, was established, or cannot be established any more.
    pub(super) fn is_connected_or_closed(&self) -> bool {
        self.stream.get().is_some() || self.is_closed()
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Ends both directions: nothing more is sent or received.
    pub(super) fn close_both(&self) {
        self.close();
        if let Some(stream) = self.stream.get() {
            self.poller.remove(stream);
            socket::shut(stream);
        }
    }

    pub(super) fn mark_truncated(&self) {
        self.truncated.store(true, Ordering::Relaxed);
    }
}

impl Drop for TcpConnection {
    /// Sends a goodbye, so that the peer does not report this rank as dead. Sends none if the connection is closed,
    /// bytes could not be sent, or the thread panics.
    fn drop(&mut self) {
        let Some(stream) = self.stream.get() else { return };
        if !self.is_closed() && !self.truncated.load(Ordering::Relaxed) && !std::thread::panicking() {
            let goodbye = NioHeader::bare(NioFrameKind::Goodbye).to_bytes();
            // Best effort: the roster also reports this rank's exit to the peer.
            let _ = socket::send(stream, &goodbye);
        }
        socket::shut_writing(stream);
        // Closing a socket with unread bytes resets the connection, and the peer could lose data that it has not read.
        let mut rest = [0u8; 4096];
        for _ in 0..1024 {
            match socket::recv(stream, &mut rest) {
                Ok(1..) => (),
                _ => break,
            }
        }
    }
}

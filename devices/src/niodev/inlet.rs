//! The inlet of `niodev`.

use std::sync::Arc;

use super::NioShared;
use super::conn_manager::{NioConnEvent, NioConnManager};
use super::connection::TcpConnection;
use super::poller::{ReadyEvent, Token};
use super::reader::{CloseReason, Reader};
use super::recv_buffer::RecvBuffer;
use crate::device::{Inlet, PeerId, Sink};
use crate::sys::{Errno, OwnedFd};

/// Up to this number of connections, each is read without a preceding `epoll_wait`: a read that finds nothing costs
/// about as much as that call.
const DIRECT_READ_MAX: usize = 2;

/// With one to [`DIRECT_READ_MAX`] connections, and unless the connection manager is busy, `epoll_wait` is called once
/// in this number of passes. It then only serves new connections and endpoints that wait for socket space.
const PASSES_PER_EPOLL: u32 = 16;

#[derive(Debug)]
pub(super) struct NioInlet {
    shared: Arc<NioShared>,
    pub(super) conn_manager: NioConnManager,
    readers: Vec<Option<Box<Reader>>>,
    recv_buffer: RecvBuffer,
    established: usize,
    events: Vec<ReadyEvent>,
}

impl NioInlet {
    pub(super) fn new(shared: Arc<NioShared>, listeners: Vec<OwnedFd>) -> Result<Self, Errno> {
        Ok(NioInlet {
            conn_manager: NioConnManager::new(Arc::clone(&shared), listeners)?,
            shared,
            readers: Vec::new(),
            recv_buffer: RecvBuffer::new(),
            established: 0,
            events: Vec::new(),
        })
    }

    #[cfg(test)]
    pub(super) fn established(&self) -> usize {
        self.established
    }

    /// Returns the capacity of all readers' buffers for incomplete frames, in bytes.
    #[cfg(test)]
    pub(super) fn partial_capacity(&self) -> usize {
        self.readers.iter().flatten().map(|reader| reader.partial_capacity()).sum()
    }

    /// Polls the sockets and handles the events; reads from connections if `read`. Returns 0 only if nothing was read,
    /// no connection was established or lost, and the poller has no more events.
    fn poll_sockets(&mut self, read: bool, sink: &mut dyn Sink) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let all = self.shared.poller.poll(&mut events);
        // The poller might have more events, among them frames that a peer sent before its exit. Counting one more
        // event keeps the engine from handling that exit yet.
        let mut moved = usize::from(!all);
        for event in &events {
            let Token::Established(at) = event.token else {
                self.conn_manager.on_event(*event);
                continue;
            };
            if event.writable
                && let Some(Some(reader)) = self.readers.get(at)
            {
                // An endpoint that still has no space requests it again.
                reader.connection().set_write_interest(false);
            }
            if event.readable && read {
                moved += self.read(at, sink);
            }
        }
        self.events = events;
        for outcome in self.conn_manager.outcomes() {
            match outcome {
                NioConnEvent::Established(connection, accepted) => {
                    self.add_reader(connection, accepted, sink);
                }
                NioConnEvent::Lost(peer, why) => sink.peer_lost(PeerId(peer), &why),
            }
            moved += 1;
        }
        moved
    }

    fn add_reader(&mut self, connection: Arc<TcpConnection>, accepted: bool, sink: &mut dyn Sink) {
        let at = self.readers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.readers.push(None);
            self.readers.len() - 1
        });
        if let Err(error) = connection.register_reader(Token::Established(at)) {
            connection.close_both();
            return sink.peer_lost(connection.peer, &format!("epoll: {error}"));
        }
        self.readers[at] = Some(Box::new(Reader::new(connection, accepted)));
        self.established += 1;
    }

    #[inline]
    fn read(&mut self, at: usize, sink: &mut dyn Sink) -> usize {
        let Some(Some(reader)) = self.readers.get_mut(at) else { return 0 };
        match reader.read(&mut self.recv_buffer, sink) {
            Ok(moved) => moved,
            Err(end) => {
                self.remove_reader(at, end, sink);
                1
            }
        }
    }

    #[cold]
    fn remove_reader(&mut self, at: usize, reason: CloseReason, sink: &mut dyn Sink) {
        let Some(reader) = self.readers.get_mut(at).and_then(Option::take) else { return };
        self.established -= 1;
        while let Some(None) = self.readers.last() {
            self.readers.pop();
        }
        reader.connection().close_both();
        let peer = reader.connection().peer;
        match reason {
            CloseReason::Goodbye => (),
            CloseReason::Unconfirmed(why) => self.conn_manager.on_unconfirmed_end(peer.0, why),
            CloseReason::Lost(why) => sink.peer_lost(peer, &why),
        }
    }
}

// SAFETY: a `Reader` writes the whole body that it has begun, and then reports `landed`. A peer has one established
// connection, and so one reader; if that ends during a body, the peer is lost. The device starts no operations.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Inlet for NioInlet {
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        if self.shared.has_started() {
            self.conn_manager.collect_started();
        }
        let polls = self.shared.note_poll();
        let few = self.established <= DIRECT_READ_MAX;
        let mut moved = 0;
        if !few
            || self.established == 0
            || polls.is_multiple_of(PASSES_PER_EPOLL)
            || self.conn_manager.is_busy()
        {
            moved += self.poll_sockets(!few, sink);
        }
        if few {
            for at in 0..self.readers.len() {
                moved += self.read(at, sink);
            }
        }
        moved
    }

    fn needs_syscall(&self) -> bool {
        true
    }

    fn abort_body(&mut self, peer: PeerId, sink: &mut dyn Sink) {
        let is_cut = |reader: &Reader| reader.connection().peer == peer && reader.has_body_in_transfer();
        if let Some(at) = self.readers.iter().position(|it| it.as_deref().is_some_and(is_cut)) {
            self.remove_reader(at, CloseReason::Lost("it died in the middle of a message".into()), sink);
        }
    }
}

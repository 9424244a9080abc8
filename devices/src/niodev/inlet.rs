//! The receiving end for all peers.

use std::sync::Arc;

use super::NioShared;
use super::conn_manager::{ConnEvent, ConnManager};
use super::connection::TcpConnection;
use super::poller::{ReadyEvent, Token};
use super::reader::{CloseReason, Reader};
use super::recv_buffer::RecvBuffer;
use crate::device::{Inlet, PeerId, Sink};
use crate::sys::{Errno, OwnedFd};

/// Up to this number of connections, each is read without a preceding poll: a read that finds nothing costs about as
/// much as the poll.
const DIRECT_READ_MAX: usize = 2;

/// With few connections, the number of passes between two polls, which serve the handshakes and endpoints that wait for
/// socket space.
const PASSES_PER_EPOLL: u32 = 16;

/// The receiving end of `niodev`.
#[derive(Debug)]
pub(super) struct NioInlet {
    shared: Arc<NioShared>,
    pub(super) lobby: ConnManager,
    readers: Vec<Option<Box<Reader>>>,
    stage: RecvBuffer,
    standing: usize,
    news: Vec<ReadyEvent>,
}

impl NioInlet {
    pub(super) fn new(shared: Arc<NioShared>, listener: OwnedFd) -> Result<Self, Errno> {
        Ok(NioInlet {
            lobby: ConnManager::new(Arc::clone(&shared), listener)?,
            shared,
            readers: Vec::new(),
            stage: RecvBuffer::new(),
            standing: 0,
            news: Vec::new(),
        })
    }

    /// Returns the number of established connections.
    #[cfg(test)]
    pub(super) fn established(&self) -> usize {
        self.standing
    }

    /// Returns the capacity of the memory in which its connections keep incomplete frames, in bytes.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.readers.iter().flatten().map(|reader| reader.room()).sum()
    }

    /// Polls and handles the events; reads from connections if `read`. Returns the number of events and frames.
    fn poll_sockets(&mut self, read: bool, sink: &mut dyn Sink) -> usize {
        let mut news = std::mem::take(&mut self.news);
        let all = self.shared.poller.look(&mut news);
        // There may be more events than fit, among them frames that a peer sent before its exit. Counting one event as
        // moved keeps the engine from acting on that exit yet.
        let mut moved = usize::from(!all);
        for one in &news {
            let Token::Whole(at) = one.token else {
                self.lobby.on_event(*one);
                continue;
            };
            if one.writable
                && let Some(Some(reader)) = self.readers.get(at)
            {
                // The interest is satisfied: an endpoint that still has no space requests it again.
                reader.pipe().set_write_interest(false);
            }
            if one.readable && read {
                moved += self.read(at, sink);
            }
        }
        self.news = news;
        for outcome in self.lobby.outcomes() {
            match outcome {
                ConnEvent::Established(pipe) => self.add_reader(pipe, sink),
                ConnEvent::Lost(peer, why) => sink.peer_lost(PeerId(peer), &why),
            }
            moved += 1;
        }
        moved
    }

    fn add_reader(&mut self, pipe: Arc<TcpConnection>, sink: &mut dyn Sink) {
        let at = self.readers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.readers.push(None);
            self.readers.len() - 1
        });
        if let Err(error) = pipe.watch(Token::Whole(at)) {
            pipe.close_both();
            return sink.peer_lost(pipe.peer, &format!("epoll: {error}"));
        }
        self.readers[at] = Some(Box::new(Reader::new(pipe)));
        self.standing += 1;
    }

    #[inline]
    fn read(&mut self, at: usize, sink: &mut dyn Sink) -> usize {
        let Some(Some(reader)) = self.readers.get_mut(at) else { return 0 };
        match reader.read(&mut self.stage, sink) {
            Ok(moved) => moved,
            Err(end) => {
                self.end(at, end, sink);
                1
            }
        }
    }

    #[cold]
    fn end(&mut self, at: usize, end: CloseReason, sink: &mut dyn Sink) {
        let Some(reader) = self.readers.get_mut(at).and_then(Option::take) else { return };
        self.standing -= 1;
        while let Some(None) = self.readers.last() {
            self.readers.pop();
        }
        reader.pipe().close_both();
        if let CloseReason::Lost(why) = end {
            sink.peer_lost(reader.pipe().peer, &why);
        }
    }
}

// SAFETY: a `Reader` writes the rest of its body, and reports `landed` when all of it is written. A peer has one
// established connection, and so one reader; if that ends during a body, the peer is lost.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Inlet for NioInlet {
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        if self.shared.has_started() {
            self.lobby.collect();
        }
        let looks = self.shared.note_look();
        let few = self.standing <= DIRECT_READ_MAX;
        let mut moved = 0;
        if !few || self.standing == 0 || looks.is_multiple_of(PASSES_PER_EPOLL) || self.lobby.is_busy() {
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
        let is_cut = |reader: &Reader| reader.pipe().peer == peer && reader.has_begun();
        if let Some(at) = self.readers.iter().position(|it| it.as_deref().is_some_and(is_cut)) {
            self.end(at, CloseReason::Lost("it died in the middle of a message".into()), sink);
        }
    }
}

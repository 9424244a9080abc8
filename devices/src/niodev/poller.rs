//! The poller of a device: it reports which sockets are ready.

use crate::sys::{BorrowedFd, Errno, Interest, OwnedFd, Poll, Readiness};

/// The socket to which an event belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    Listener,
    /// A connection during its handshake, by its index in the table.
    Handshaking(usize),
    /// An established connection, by the index of its reader.
    Established(usize),
}

impl Token {
    fn word(self) -> u64 {
        match self {
            Token::Listener => u64::MAX,
            Token::Handshaking(at) => 1 << 32 | at as u64,
            Token::Established(at) => at as u64,
        }
    }

    fn of(word: u64) -> Self {
        let at = word as u32 as usize;
        match word >> 32 {
            0 => Token::Established(at),
            1 => Token::Handshaking(at),
            _ => Token::Listener,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyEvent {
    pub(super) token: Token,
    /// There is space to write, or an error.
    pub(super) writable: bool,
    /// There are bytes to read, the end of the stream, or an error.
    pub(super) readable: bool,
}

#[derive(Debug)]
pub(super) struct Poller(Poll);

impl Poller {
    pub(super) fn new() -> Result<Self, Errno> {
        Poll::new().map(Poller)
    }

    pub(super) fn add(&self, socket: &OwnedFd, token: Token, what: Interest) -> Result<(), Errno> {
        self.0.add(socket, token.word(), what)
    }

    pub(super) fn change(&self, socket: &OwnedFd, token: Token, what: Interest) -> Result<(), Errno> {
        self.0.change(socket, token.word(), what)
    }

    pub(super) fn remove(&self, socket: &OwnedFd) {
        self.0.remove(socket);
    }

    /// Replaces the contents of `events` by current events. Returns false if there might be more.
    pub(super) fn poll(&self, events: &mut Vec<ReadyEvent>) -> bool {
        events.clear();
        self.0.poll(|Readiness { token, read, write }| {
            events.push(ReadyEvent { token: Token::of(token), writable: write, readable: read });
        })
    }

    /// Returns a descriptor that is readable while events are pending.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }
}

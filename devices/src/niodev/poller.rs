//! Which sockets have news: one poll a device.

use crate::sys::{BorrowedFd, Errno, Interest, OwnedFd, Poll, Readiness};

/// The socket that an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// The listening socket has a connection to accept.
    Listener,
    /// A connection whose handshake is under way, by its place.
    Half(usize),
    /// A connection that stands, by its place.
    Whole(usize),
}

impl Token {
    fn word(self) -> u64 {
        match self {
            Token::Listener => u64::MAX,
            Token::Half(at) => 1 << 32 | at as u64,
            Token::Whole(at) => at as u64,
        }
    }

    fn of(word: u64) -> Self {
        let at = word as u32 as usize;
        match word >> 32 {
            0 => Token::Whole(at),
            1 => Token::Half(at),
            _ => Token::Listener,
        }
    }
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyEvent {
    pub(super) token: Token,
    /// There is room to write, or an error.
    pub(super) writable: bool,
    /// There is something to read, the end, or an error.
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

    /// Puts what there is now into `news`; returns whether that was all.
    pub(super) fn look(&self, news: &mut Vec<ReadyEvent>) -> bool {
        news.clear();
        self.0.look(|Readiness { token, read, write }| {
            news.push(ReadyEvent { token: Token::of(token), writable: write, readable: read });
        })
    }

    /// Returns what is readable when there is news.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }
}

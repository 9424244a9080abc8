//! Which sockets have news: one epoll a device, level-triggered.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

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
    fn data(self) -> EventData {
        EventData::new_u64(match self {
            Token::Listener => u64::MAX,
            Token::Half(at) => 1 << 32 | at as u64,
            Token::Whole(at) => at as u64,
        })
    }

    fn of(event: Event) -> Self {
        let word = event.data.u64();
        let at = word as u32 as usize;
        match word >> 32 {
            0 => Token::Whole(at),
            1 => Token::Half(at),
            _ => Token::Listener,
        }
    }
}

/// What a socket is watched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum For {
    Arrivals,
    Room,
    Both,
}

impl For {
    fn flags(self) -> EventFlags {
        match self {
            For::Arrivals => EventFlags::IN,
            For::Room => EventFlags::OUT,
            For::Both => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub(super) token: Token,
    /// There is room to write, or an error.
    pub(super) room: bool,
    /// There is something to read, the end, or an error.
    pub(super) arrival: bool,
}

/// The most news taken at once.
const BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(super) fn new() -> rustix::io::Result<Self> {
        Ok(Poller { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    pub(super) fn add(&self, socket: impl AsFd, token: Token, what: For) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, socket, token.data(), what.flags())
    }

    pub(super) fn change(&self, socket: impl AsFd, token: Token, what: For) -> rustix::io::Result<()> {
        epoll::modify(&self.epoll, socket, token.data(), what.flags())
    }

    pub(super) fn remove(&self, socket: impl AsFd) {
        // An error says that the socket was not watched, and so it is not.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Puts what there is now into `news`; returns whether that was all.
    pub(super) fn look(&self, news: &mut Vec<News>) -> bool {
        news.clear();
        let mut events = [MaybeUninit::<Event>::uninit(); BATCH];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted call has found nothing.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&now)) else { return true };
        news.extend(events.iter().map(|event| {
            let flags = event.flags;
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            News {
                token: Token::of(*event),
                room: broken || flags.contains(EventFlags::OUT),
                arrival: broken || flags.contains(EventFlags::IN),
            }
        }));
        news.len() < BATCH
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

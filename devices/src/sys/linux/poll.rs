//! Polls the readiness of sockets with level-triggered epoll.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    Read,
    Write,
    Both,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Interest::Read => EventFlags::IN,
            Interest::Write => EventFlags::OUT,
            Interest::Both => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// The readiness of a socket. After an error or a hang-up both flags are set, because both a read and a write then
/// report it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) token: u64,
    pub(crate) read: bool,
    pub(crate) write: bool,
}

const BATCH: usize = 64;

#[derive(Debug)]
pub(crate) struct Poll(OwnedFd);

impl Poll {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Poll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    pub(crate) fn add(&self, socket: &OwnedFd, token: u64, what: Interest) -> Result<(), Errno> {
        epoll::add(&self.0, socket, EventData::new_u64(token), what.flags())
    }

    pub(crate) fn change(&self, socket: &OwnedFd, token: u64, what: Interest) -> Result<(), Errno> {
        epoll::modify(&self.0, socket, EventData::new_u64(token), what.flags())
    }

    pub(crate) fn remove(&self, socket: &OwnedFd) {
        // An error means that the socket was not watched.
        let _ = epoll::delete(&self.0, socket);
    }

    /// Calls `each` for up to [`BATCH`] current events. Returns false if there might be more.
    #[inline]
    pub(crate) fn poll(&self, each: impl FnMut(Readiness)) -> bool {
        let mut events = [MaybeUninit::<Event>::uninit(); BATCH];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If a signal interrupts the call, report no event.
        let Ok((events, _)) = epoll::wait(&self.0, &mut events, Some(&now)) else { return true };
        let ready = |event: &Event| {
            let flags = event.flags;
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            Readiness {
                token: event.data.u64(),
                read: broken || flags.contains(EventFlags::IN),
                write: broken || flags.contains(EventFlags::OUT),
            }
        };
        events.iter().map(ready).for_each(each);
        events.len() < BATCH
    }

    /// Adds a descriptor whose events make this descriptor readable. [`poll`](Self::poll) reports them with token 0.
    pub(crate) fn watch(&self, other: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::add(&self.0, other, EventData::new_u64(0), EventFlags::IN)
    }

    /// Returns whether the descriptor is readable.
    pub(crate) fn has_events(&self) -> bool {
        let mut any = false;
        self.poll(|_| any = true);
        any
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

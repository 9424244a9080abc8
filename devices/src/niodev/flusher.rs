//! A thread that writes out what waits on a stage while its rank computes.
//!
//! It sleeps unless something waits, and is woken at most once in [`HELD`], whatever is sent: a connection is looked
//! after until what waits on it is written. Where the socket has no room for it, the thread tries again from time to
//! time; a rank that waits, or tests, is told by the poller and is faster.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::pipe::TcpConnection;
use crate::device::MAX_COALESCE_DELAY;
use crate::engine::lock;

/// How often it is tried to write to sockets that had no room.
const DOZE: Duration = Duration::from_millis(50);

/// The flusher of a device. Its thread is started when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    desk: Arc<FlusherState>,
    /// None if there could not be one.
    thread: OnceLock<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct FlusherState {
    watched: Mutex<Watched>,
    news: Condvar,
}

/// The connections that are looked after.
#[derive(Debug, Default)]
struct Watched {
    pipes: Vec<Weak<TcpConnection>>,
    /// Whether the device is dropped.
    ended: bool,
}

impl Flusher {
    /// Whether there is a thread; started by the first call.
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        self.thread.get_or_init(|| self.start()).is_some()
    }

    #[cold]
    fn start(&self) -> Option<JoinHandle<()>> {
        let desk = Arc::clone(&self.desk);
        let thread = std::thread::Builder::new().name("mpj-niodev".into());
        thread.spawn(move || desk.look_after()).ok()
    }

    /// Looks after a connection until what waits on it is written, if there is a thread for it.
    #[cold]
    pub(super) fn watch(&self, pipe: &Arc<TcpConnection>) {
        if !self.is_there() {
            return;
        }
        let mut watched = lock(&self.desk.watched);
        watched.pipes.push(Arc::downgrade(pipe));
        if watched.pipes.len() == 1 {
            drop(watched);
            self.desk.news.notify_one();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        lock(&self.desk.watched).ended = true;
        self.desk.news.notify_one();
        if let Some(thread) = self.thread.take().flatten() {
            // It does not panic, and writes to sockets that do not block.
            let _ = thread.join();
        }
    }
}

impl FlusherState {
    fn look_after(&self) {
        let (mut due, mut stuck) = (Vec::new(), Vec::new());
        let mut watched = lock(&self.watched);
        while !watched.ended {
            if watched.pipes.is_empty() && stuck.is_empty() {
                watched = self.news.wait(watched).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let nap = if watched.pipes.is_empty() { DOZE } else { MAX_COALESCE_DELAY };
            let goes_on = |watched: &mut Watched| {
                !watched.ended && (nap == MAX_COALESCE_DELAY || watched.pipes.is_empty())
            };
            let woken = self.news.wait_timeout_while(watched, nap, goes_on);
            let (woken, outcome) = woken.unwrap_or_else(PoisonError::into_inner);
            watched = woken;
            if !outcome.timed_out() {
                continue;
            }
            mem::swap(&mut due, &mut watched.pipes);
            drop(watched);
            let is_left = |pipe: &Weak<TcpConnection>| pipe.upgrade().is_some_and(|pipe| pipe.write_held());
            let is_stuck = |pipe: &Weak<TcpConnection>| pipe.upgrade().is_some_and(|pipe| pipe.write_stuck());
            stuck.retain(is_stuck);
            stuck.extend(due.drain(..).filter(is_left));
            watched = lock(&self.watched);
        }
    }
}

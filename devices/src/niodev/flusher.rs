//! A thread that writes coalesced and blocked frames while its rank computes.
//!
//! It sleeps unless frames are waiting, and is woken at most once within [`MAX_COALESCE_DELAY`], however many frames
//! are sent. A connection is watched until its frames are written. If the socket has no space for them, the thread
//! retries from time to time. A rank that waits or tests is notified by the poller, which is faster.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::connection::TcpConnection;
use crate::device::MAX_COALESCE_DELAY;
use crate::engine::lock;

/// The interval between two attempts to write to sockets that had no space.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The flusher of a device. Its thread is started when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    state: Arc<FlusherState>,
    /// `None` if the thread could not be started.
    thread: OnceLock<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct FlusherState {
    watched: Mutex<Watched>,
    news: Condvar,
}

/// The connections whose frames the thread writes.
#[derive(Debug, Default)]
struct Watched {
    pipes: Vec<Weak<TcpConnection>>,
    /// Whether the device was dropped.
    ended: bool,
}

impl Flusher {
    /// Returns whether there is a thread; the first call starts it.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.thread.get_or_init(|| self.start()).is_some()
    }

    #[cold]
    fn start(&self) -> Option<JoinHandle<()>> {
        let desk = Arc::clone(&self.state);
        let thread = std::thread::Builder::new().name("mpj-niodev".into());
        thread.spawn(move || desk.run()).ok()
    }

    /// Watches a connection until its waiting frames are written, if there is a thread.
    #[cold]
    pub(super) fn watch(&self, pipe: &Arc<TcpConnection>) {
        if !self.is_running() {
            return;
        }
        let mut watched = lock(&self.state.watched);
        watched.pipes.push(Arc::downgrade(pipe));
        if watched.pipes.len() == 1 {
            drop(watched);
            self.state.news.notify_one();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        lock(&self.state.watched).ended = true;
        self.state.news.notify_one();
        if let Some(thread) = self.thread.take().flatten() {
            // The thread does not panic, and its sockets do not block.
            let _ = thread.join();
        }
    }
}

impl FlusherState {
    fn run(&self) {
        let (mut due, mut stuck) = (Vec::new(), Vec::new());
        let mut watched = lock(&self.watched);
        while !watched.ended {
            if watched.pipes.is_empty() && stuck.is_empty() {
                watched = self.news.wait(watched).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let nap = if watched.pipes.is_empty() { RETRY_INTERVAL } else { MAX_COALESCE_DELAY };
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
            let is_left =
                |pipe: &Weak<TcpConnection>| pipe.upgrade().is_some_and(|pipe| pipe.flush_coalesced());
            let is_stuck = |pipe: &Weak<TcpConnection>| pipe.upgrade().is_some_and(|pipe| pipe.retry_write());
            stuck.retain(is_stuck);
            stuck.extend(due.drain(..).filter(is_left));
            watched = lock(&self.watched);
        }
    }
}

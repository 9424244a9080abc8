//! A thread that writes coalesced and blocked frames while its rank computes.
//!
//! It sleeps unless frames are waiting, and wakes to write at most once per [`MAX_COALESCE_DELAY`]. It watches a
//! connection until its frames are written. If the socket has no space for them, the thread retries every
//! [`RETRY_INTERVAL`], or sooner when it writes other frames. A rank that makes progress also writes waiting frames.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::connection::TcpConnection;
use crate::device::MAX_COALESCE_DELAY;
use crate::engine::lock;

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
    wakeup: Condvar,
}

#[derive(Debug, Default)]
struct Watched {
    connections: Vec<Weak<TcpConnection>>,
    /// Whether the flusher was dropped.
    ended: bool,
}

impl Flusher {
    /// Returns whether the thread runs; the first call starts it.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.thread.get_or_init(|| self.start()).is_some()
    }

    #[cold]
    fn start(&self) -> Option<JoinHandle<()>> {
        let state = Arc::clone(&self.state);
        let thread = std::thread::Builder::new().name("mpj-niodev".into());
        thread.spawn(move || state.run()).ok()
    }

    /// Watches a connection until its frames are written. Has no effect if the thread could not be started.
    #[cold]
    pub(super) fn watch(&self, connection: &Arc<TcpConnection>) {
        if !self.is_running() {
            return;
        }
        let mut watched = lock(&self.state.watched);
        watched.connections.push(Arc::downgrade(connection));
        if watched.connections.len() == 1 {
            drop(watched);
            self.state.wakeup.notify_one();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        lock(&self.state.watched).ended = true;
        self.state.wakeup.notify_one();
        if let Some(thread) = self.thread.take().flatten() {
            // The join does not fail or hang: the thread does not panic, and its sockets do not block.
            let _ = thread.join();
        }
    }
}

impl FlusherState {
    fn run(&self) {
        let (mut due, mut stuck) = (Vec::new(), Vec::new());
        let mut watched = lock(&self.watched);
        while !watched.ended {
            if watched.connections.is_empty() && stuck.is_empty() {
                watched = self.wakeup.wait(watched).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let nap = if watched.connections.is_empty() { RETRY_INTERVAL } else { MAX_COALESCE_DELAY };
            let keeps_sleeping = |watched: &mut Watched| {
                !watched.ended && (nap == MAX_COALESCE_DELAY || watched.connections.is_empty())
            };
            let woken = self.wakeup.wait_timeout_while(watched, nap, keeps_sleeping);
            let (woken, outcome) = woken.unwrap_or_else(PoisonError::into_inner);
            watched = woken;
            if !outcome.timed_out() {
                continue;
            }
            mem::swap(&mut due, &mut watched.connections);
            drop(watched);
            let is_left = |connection: &Weak<TcpConnection>| {
                connection.upgrade().is_some_and(|connection| connection.flush_coalesced())
            };
            let is_stuck = |connection: &Weak<TcpConnection>| {
                connection.upgrade().is_some_and(|connection| connection.retry_write())
            };
            stuck.retain(is_stuck);
            stuck.extend(due.drain(..).filter(is_left));
            watched = lock(&self.watched);
        }
    }
}

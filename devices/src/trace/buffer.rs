//! The events of a rank that are not written yet, and the counts of its messages.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::Names;
use super::event::{EventKind, TraceEvent};
use super::files::RankFile;

const BUFFER_EVENTS: usize = 4096;

const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct TraceBuffer {
    pub(super) file: RankFile,
    pub(super) events: Vec<TraceEvent>,
    /// The number of events that may still be recorded.
    pub(super) events_left: u64,
    /// The number of events beyond the limit, which were not recorded.
    pub(super) dropped: u64,
    pub(super) is_closed: bool,
    threads: Vec<u32>,
    pub(super) counters_recorded_at_ns: u64,
    /// The numbers of messages sent to each rank, and arrived from it.
    pub(super) sent: HashMap<u32, u64>,
    pub(super) arrived: HashMap<u32, u64>,
    /// The number of each rendezvous message whose body has not arrived. The key is the sender, the context, and the
    /// number of the sender's operation.
    pub(super) rendezvous: HashMap<(u32, u64, u64), u64>,
    pub(super) names: Names,
}

impl TraceBuffer {
    pub(super) fn new(file: RankFile, most_events: u64) -> Self {
        TraceBuffer {
            file,
            events: Vec::with_capacity(BUFFER_EVENTS),
            events_left: most_events,
            dropped: 0,
            is_closed: false,
            threads: Vec::new(),
            counters_recorded_at_ns: 0,
            sent: HashMap::new(),
            arrived: HashMap::new(),
            rendezvous: HashMap::new(),
            names: Names::new(),
        }
    }

    /// Adds an event of a thread whose name is `thread`.
    pub(super) fn push(&mut self, event: TraceEvent, rank: u32, thread: Option<&str>) {
        if self.events_left == 0 {
            self.dropped += 1;
            return;
        }
        self.events_left -= 1;
        if !self.threads.contains(&event.thread) {
            self.threads.push(event.thread);
            let text = thread.map(Into::into);
            self.events.push(TraceEvent { kind: EventKind::Thread, text, ..event.clone() });
        }
        self.events.push(event);
        if self.events.len() >= BUFFER_EVENTS {
            self.write(rank);
        }
    }

    pub(super) fn write(&mut self, rank: u32) {
        self.file.write(rank, &self.events, &self.names);
        self.events.clear();
    }
}

pub(super) fn lock(buffer: &Mutex<TraceBuffer>) -> MutexGuard<'_, TraceBuffer> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the buffered events periodically, until the trace has ended.
pub(super) fn flush_periodically(buffer: &Weak<Mutex<TraceBuffer>>, rank: u32) {
    loop {
        std::thread::sleep(FLUSH_INTERVAL);
        let Some(buffer) = buffer.upgrade() else { return };
        let mut buffer = lock(&buffer);
        if buffer.is_closed {
            return;
        }
        buffer.write(rank);
    }
}

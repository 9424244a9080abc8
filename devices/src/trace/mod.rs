//! The trace of a job: the waits, messages and collectives of all ranks, as one JSON file for Perfetto or Chrome.
//!
//! ```text
//!   engine ── waits, messages, pieces, ──────┐
//!             counters, exits                │
//!   mpj ───── collectives, blocking sends ───┴─► Trace (per rank) ───► FILE.rankN ─► TraceFiles::join ─► FILE
//!                                                events in a buffer     JSON: a line   by the launcher, or the process
//!                                                                       per event      that hosts all ranks
//! ```
//! * A rank is a process of the trace, and its threads are threads of that process. A slice is the time that a thread
//!   spends in one action (a wait, a call, a send), and the slices of a thread nest. A message is a flow from the slice
//!   in which the sender posts its first frame to the slice in which its arrival is complete: with the frame of an
//!   eager message, or, for a rendezvous, when the last byte of the body arrives, or when the body is viewed or
//!   refused.
//! * A flow is identified by sender, receiver and the number of the message between these two. Both sides count the
//!   messages. Because frames of a sender keep their order, the number need not be sent.
//! * Times are those of the host's monotonic clock, which all processes of a host share. Hosts have different clocks.
//! * The buffer is written when it is full, and at the end. A separate thread also writes it twice a second, because a
//!   rank that computes or waits might record nothing for a long time. So a rank that is killed usually loses little of
//!   its trace.
//!
//! A rank that is not traced has no [`Trace`].

mod buffer;
mod event;
mod files;
mod summary;

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;
use std::time::Duration;

pub use files::TraceFiles;
pub use summary::Summary;

use buffer::{TraceBuffer, flush_periodically, lock};
pub(crate) use event::ArgValue;
use event::{Args, EventKind, TraceEvent};
use files::RankFile;

use crate::config::{Config, Number, Text};
use crate::engine::{Channel, Traffic};
use crate::sys;

/// The file to which the trace of a job is written.
pub const TRACE: Text = Text {
    name: "TRACE",
    default: "",
    form: "a file",
    accepts: |_| true,
    help: "file for the trace of the job, to open at ui.perfetto.dev; empty for no trace",
};

/// The maximum number of events of a rank in a trace.
pub const TRACE_MAX_EVENTS: Number = Number {
    name: "TRACE_MAX_EVENTS",
    default: 250_000,
    range: (1, 1 << 32),
    help: "events that each rank writes to MPJ_TRACE, about 200 bytes each; further ones are only counted",
};

const COUNTER_INTERVAL_NS: u64 = 10_000_000;

/// The minimum time in nanoseconds between two results of [`Trace::now`] on a thread. Readers that store microseconds
/// as floating point can lose differences of about 1 ns.
const TICK_NS: u64 = 10;

/// A moment of the host's clock, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timestamp(u64);

thread_local! {
    /// The number of this thread and its last timestamp. The timestamps of a thread increase, so that its slices nest.
    static THREAD: (u32, Cell<u64>) = (sys::thread_id(), const { Cell::new(0) });
}

pub(crate) fn thread_number() -> u32 {
    THREAD.try_with(|(number, _)| *number).unwrap_or(0)
}

/// The recorder of one rank.
pub struct Trace {
    rank: u32,
    /// A `std` lock, not a [`biased::Mutex`](crate::biased::Mutex): if the flushing thread took one of the engine's
    /// biased locks, it would end their bias to their owner thread.
    buffer: Arc<Mutex<TraceBuffer>>,
}

/// A message in flight, as both sides identify it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Its number among the messages of the pair.
    pub(crate) order: u64,
}

/// The names of communicators, by context.
type Names = HashMap<u64, Arc<str>>;

impl Trace {
    pub(crate) fn open(config: &Config, rank: u32) -> Option<Box<Self>> {
        let path = config.text(&TRACE);
        if path.is_empty() {
            return None;
        }
        let buffer = TraceBuffer::new(RankFile::open(path, rank), config.number(&TRACE_MAX_EVENTS));
        let buffer = Arc::new(Mutex::new(buffer));
        let weak = Arc::downgrade(&buffer);
        // If the thread cannot be started, a rank that is killed loses more of its trace.
        let _ =
            std::thread::Builder::new().name("trace".into()).spawn(move || flush_periodically(&weak, rank));
        Some(Box::new(Trace { rank, buffer }))
    }

    pub(crate) fn name_context(&self, context: u64, name: &Arc<str>) {
        self.buffer().names.insert(context, Arc::clone(name));
    }

    fn buffer(&self) -> MutexGuard<'_, TraceBuffer> {
        lock(&self.buffer)
    }

    /// Returns the current time, which is at least a tick later than this thread's last timestamp.
    pub fn now(&self) -> Timestamp {
        let now = sys::monotonic_ns();
        let later = |(_, last): &(u32, Cell<u64>)| {
            last.set(now.max(last.get() + TICK_NS));
            last.get()
        };
        // A thread that is ending has no last timestamp.
        Timestamp(THREAD.try_with(later).unwrap_or(now))
    }

    /// Records a collective call that ends now: its name, channel, number of items that this rank contributed or
    /// received, and whether it has failed.
    pub fn collective(
        &self,
        begun: Timestamp,
        call: &'static str,
        channel: &Channel,
        items: usize,
        failed: bool,
    ) {
        let args = [
            ("count", ArgValue::Number(items as u64)),
            ("ranks", ArgValue::Number(channel.size().into())),
            ("context", ArgValue::Number(channel.context())),
            if failed { ("failed", ArgValue::Number(1)) } else { event::NONE },
        ];
        self.slice(begun, ["", call], "collective", &args);
    }

    /// Records a blocking send that ends now. `to` is the receiver's rank in the channel.
    #[cold]
    pub fn send(
        &self,
        begun: Timestamp,
        call: &'static str,
        channel: &Channel,
        to: i32,
        tag: i32,
        failed: bool,
    ) {
        let peer = u32::try_from(to).ok().and_then(|to| channel.group().peer(to));
        let args = [
            peer.map_or(event::NONE, |peer| ("to", ArgValue::Number(peer.0.into()))),
            ("tag", ArgValue::Signed(tag)),
            (event::CONTEXT, ArgValue::Number(channel.context())),
            if failed { ("failed", ArgValue::Number(1)) } else { event::NONE },
        ];
        self.slice(begun, ["", call], "send", &args);
    }

    pub(crate) fn slice(
        &self,
        begun: Timestamp,
        name: [&'static str; 2],
        category: &'static str,
        args: &[(&'static str, ArgValue)],
    ) {
        self.record(begun, EventKind::Slice { end: self.now() }, name, category, args);
    }

    /// Records a slice that ends now, and the start or end of a message in it.
    pub(crate) fn slice_with_flow(
        &self,
        begun: Timestamp,
        name: &'static str,
        flow: Flow,
        args: &[(&'static str, ArgValue)],
    ) {
        self.slice(begun, ["", name], "message", args);
        let kind = if flow.from == self.rank { EventKind::Start(flow) } else { EventKind::Finish(flow) };
        // This time is inside the slice, because its begin and end are at least a tick apart.
        self.record(Timestamp(begun.0 + TICK_NS / 2), kind, ["", ""], "message", &[]);
    }

    /// Records a slice of another thread that began `elapsed` ago and is not over, as if it ended now.
    pub(crate) fn open_slice(
        &self,
        (number, thread): (u32, &Thread),
        elapsed: Duration,
        name: [&'static str; 2],
        category: &'static str,
        args: &[(&'static str, ArgValue)],
    ) {
        let end = self.now();
        let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let begun = Timestamp(end.0.saturating_sub(elapsed));
        let event = self.event(begun, EventKind::Slice { end }, name, category, args);
        let event = TraceEvent { thread: number, ..event };
        self.buffer().push(event, self.rank, thread.name());
    }

    pub(crate) fn flush(&self) {
        self.buffer().write(self.rank);
    }

    pub(crate) fn instant(
        &self,
        name: &'static str,
        category: &'static str,
        args: &[(&'static str, ArgValue)],
        why: Option<&str>,
    ) {
        let event = self.event(self.now(), EventKind::Instant, ["", name], category, args);
        self.push(TraceEvent { text: why.map(Into::into), ..event });
    }

    pub(crate) fn wants_counters(&self) -> bool {
        let now = sys::monotonic_ns();
        let mut buffer = self.buffer();
        // Another thread might have recorded the counters after this thread has read the clock.
        let is_due = now.saturating_sub(buffer.counters_recorded_at_ns) >= COUNTER_INTERVAL_NS;
        if is_due {
            buffer.counters_recorded_at_ns = now;
        }
        is_due
    }

    pub(crate) fn counters(&self, device: &'static str, traffic: &Traffic) {
        let Traffic { eager, rendezvous, zero_copy, registered, copied } = traffic;
        let args = [
            ("eager", ArgValue::Number(eager.bytes)),
            ("rendezvous", ArgValue::Number(rendezvous.bytes)),
            ("zero-copy", ArgValue::Number(zero_copy.bytes)),
            ("registered", ArgValue::Number(registered.bytes)),
            ("copied", ArgValue::Number(copied.bytes)),
        ];
        self.record(self.now(), EventKind::Count, [device, ", bytes:"], "", &args);
    }

    pub(crate) fn copies(&self, bytes: u64) {
        self.record(
            self.now(),
            EventKind::Count,
            ["", "copies, bytes:"],
            "",
            &[("all", ArgValue::Number(bytes))],
        );
    }

    /// Counts a message to `to`. Calls are in the order in which the first frames are posted to the device.
    pub(crate) fn count_sent(&self, to: u32) -> Flow {
        Flow { from: self.rank, to, order: increment(&mut self.buffer().sent, to) }
    }

    /// Counts a message from `from`. Calls are in the order in which the first frames arrive.
    pub(crate) fn count_arrived(&self, from: u32) -> Flow {
        Flow { from, to: self.rank, order: increment(&mut self.buffer().arrived, from) }
    }

    /// Remembers a message of which only the RTS has arrived.
    pub(crate) fn expect_body(&self, flow: Flow, context: u64, op: u64) {
        self.buffer().rendezvous.insert((flow.from, context, op), flow.order);
    }

    /// Removes and returns a message of [`expect_body`](Self::expect_body) whose body has arrived or will not arrive.
    pub(crate) fn take_expected_body(&self, from: u32, context: u64, op: u64) -> Option<Flow> {
        let order = self.buffer().rendezvous.remove(&(from, context, op))?;
        Some(Flow { from, to: self.rank, order })
    }

    fn record(
        &self,
        at: Timestamp,
        kind: EventKind,
        name: [&'static str; 2],
        category: &'static str,
        args: &[(&'static str, ArgValue)],
    ) {
        self.push(self.event(at, kind, name, category, args));
    }

    fn event(
        &self,
        at: Timestamp,
        kind: EventKind,
        name: [&'static str; 2],
        category: &'static str,
        args: &[(&'static str, ArgValue)],
    ) -> TraceEvent {
        let mut all: Args = [event::NONE; event::ARGS];
        all.iter_mut().zip(args).for_each(|(place, arg)| *place = *arg);
        TraceEvent { at, kind, thread: thread_number(), name, category, args: all, text: None }
    }

    fn push(&self, event: TraceEvent) {
        self.buffer().push(event, self.rank, std::thread::current().name());
    }

    /// Ends the trace: later events are lost.
    ///
    /// # Errors
    /// If not all recorded events are in the file.
    pub(crate) fn close(&self) -> Result<(), String> {
        let now = self.now();
        let mut buffer = self.buffer();
        if buffer.dropped > 0 {
            let args = [("events", ArgValue::Number(buffer.dropped))];
            let event = self.event(
                now,
                EventKind::Instant,
                ["", "events dropped (MPJ_TRACE_MAX_EVENTS)"],
                "trace",
                &args,
            );
            buffer.events.push(event);
        }
        buffer.events_left = 0;
        buffer.is_closed = true;
        buffer.write(self.rank);
        buffer.file.close(self.rank)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn increment(counts: &mut HashMap<u32, u64>, peer: u32) -> u64 {
    let count = counts.entry(peer).or_default();
    *count += 1;
    *count
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("rank", &self.rank).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread reads the clock before it takes the lock, so the recorded time can be later than its reading.
    #[test]
    #[cfg_attr(miri, ignore = "Miri isolates tests from files")]
    fn late_clock_reading_records_no_counters() {
        let mut config = Config::default();
        let path = std::env::temp_dir().join(format!("mpj-trace-{}", std::process::id()));
        config.set_text(&TRACE, path.to_str().unwrap()).unwrap();
        let trace = Trace::open(&config, 0).unwrap();
        assert!(trace.wants_counters() && !trace.wants_counters());
        trace.buffer().counters_recorded_at_ns = sys::monotonic_ns() + COUNTER_INTERVAL_NS;
        assert!(!trace.wants_counters());
        drop(trace);
        std::fs::remove_file(path.with_extension("rank0")).unwrap();
    }
}

//! The trace of a job: what every rank waited for and moved, as one file of JSON that Perfetto and Chrome open.
//!
//! ```text
//!   engine ── waits, messages, moves, ends ──┐
//!   mpj ───── collectives ───────────────────┴─► Trace (one a rank) ─► FILE.rankN ─► TraceFiles::join ─► FILE
//!                                                events in a buffer     JSON, a line   by the launcher, or the process
//!                                                                       an event       that hosts all ranks
//! ```
//! * `event` is one event and how it is written, `parts` the files, `summary` what they say of waits, as a table.
//! * A rank is a process of the trace, its threads are threads. What takes time is a slice on the thread that did it, and
//!   slices of a thread nest. A message is a flow from the slice in which its first frame was given to the device to the
//!   slice in which it had arrived: an eager one with its frame, an announced one with the last byte of its body.
//! * Both sides know a flow by the pair of ranks and the message's place in the order of all messages of that pair, which
//!   they count: frames of a pair keep their order, so nothing of it travels.
//! * Times are those of the host's monotonic clock, which all processes of a host read alike. Hosts have different ones.
//! * The buffer is written when it is full, twice a second by a thread of its own, as a rank that computes or waits records
//!   nothing for long, and at the end. So of a rank that was killed all but the last second is there.
//!
//! A rank that is not traced has no [`Trace`]: it costs a test of a pointer for each message at either side, for each
//! wait that does not end at once, and for each collective.

mod event;
mod parts;
mod summary;

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

pub use parts::TraceFiles;
pub use summary::Summary;

pub(crate) use event::Value;
use event::{Args, Event, EventKind};
use parts::RankFile;

use crate::config::{Config, Number, Text};
use crate::engine::{Channel, Traffic};
use crate::sys;

/// The file that a job is traced in.
pub const TRACE: Text = Text {
    name: "TRACE",
    default: "",
    form: "a file",
    accepts: |_| true,
    help: "the file to trace the job in, for ui.perfetto.dev; empty for no trace",
};

/// How long a trace may become.
pub const TRACE_EVENTS: Number = Number {
    name: "TRACE_EVENTS",
    default: 250_000,
    range: (1, 1 << 32),
    help: "events that each rank writes to MPJ_TRACE, about 200 bytes each; later ones are counted only",
};

/// Events that are kept before they are written.
const BUFFER: usize = 4096;

/// How often what is kept is written.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// How often counters are recorded, at most.
const COUNTER_INTERVAL_NS: u64 = 10_000_000;

/// The least time between two events of a thread: less is lost where a reader keeps microseconds as floating point.
const TICK: u64 = 10;

/// A moment of the host's clock, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

thread_local! {
    /// The number of this thread and its last moment: two events of a thread are never at once, so that slices nest.
    static THREAD: (u32, Cell<u64>) = (sys::thread(), const { Cell::new(0) });
}

/// What one rank records.
pub struct Trace {
    rank: u32,
    /// Under a lock of its own: the thread that writes it now and then is no reason to take the engine's bias away.
    book: Arc<Mutex<TraceBuffer>>,
}

/// A message on its way, as both sides know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Its place among the messages of the pair.
    pub(crate) order: u64,
}

/// What a rank has recorded.
struct TraceBuffer {
    part: RankFile,
    events: Vec<Event>,
    /// How many events more are kept, and how many were not.
    events_left: u64,
    left_out: u64,
    is_over: bool,
    /// The threads that have been named.
    threads: Vec<u32>,
    sampled: u64,
    /// How many messages were sent to each rank, and have come from it.
    sent: HashMap<u32, u64>,
    came: HashMap<u32, u64>,
    /// The messages that were announced and have not arrived, by their sender, context and operation there.
    announced: HashMap<(u32, u64, u64), u64>,
    /// What communicators are called, by the contexts of their channels.
    names: Names,
}

/// The names of communicators, by context.
type Names = HashMap<u64, Arc<str>>;

impl Trace {
    /// Begins the trace of a rank, if the user wants one.
    pub(crate) fn open(config: &Config, rank: u32) -> Option<Box<Self>> {
        let path = config.text(&TRACE);
        if path.is_empty() {
            return None;
        }
        let book = TraceBuffer {
            part: RankFile::open(path, rank),
            events: Vec::with_capacity(BUFFER),
            events_left: config.number(&TRACE_EVENTS),
            left_out: 0,
            is_over: false,
            threads: Vec::new(),
            sampled: 0,
            sent: HashMap::new(),
            came: HashMap::new(),
            announced: HashMap::new(),
            names: Names::new(),
        };
        let book = Arc::new(Mutex::new(book));
        let kept = Arc::downgrade(&book);
        // If there can be no such thread a rank that is killed has lost more.
        let _ =
            std::thread::Builder::new().name("trace".into()).spawn(move || flush_periodically(&kept, rank));
        Some(Box::new(Trace { rank, book }))
    }

    /// Sets what a communicator is called in events that name its context.
    pub(crate) fn name_context(&self, context: u64, name: &Arc<str>) {
        self.book().names.insert(context, Arc::clone(name));
    }

    fn book(&self) -> MutexGuard<'_, TraceBuffer> {
        lock(&self.book)
    }

    /// Returns this moment, which is later than the last one of this thread.
    pub fn now(&self) -> Moment {
        let now = sys::now();
        let later = |(_, last): &(u32, Cell<u64>)| {
            last.set(now.max(last.get() + TICK));
            last.get()
        };
        // A thread that is ending has no last moment.
        Moment(THREAD.try_with(later).unwrap_or(now))
    }

    /// Records a call of a collective that ends now: its name, the items that this rank gave or got, and whether it has
    /// failed.
    pub fn collective(
        &self,
        begun: Moment,
        call: &'static str,
        channel: &Channel,
        items: usize,
        failed: bool,
    ) {
        let args = [
            ("count", Value::Number(items as u64)),
            ("ranks", Value::Number(channel.group().size().into())),
            ("context", Value::Number(channel.context())),
            if failed { ("failed", Value::Number(1)) } else { event::NONE },
        ];
        self.slice(begun, ["", call], "collective", &args);
    }

    /// Records a blocking send that ends now: its name, the receiver as a rank of the channel, and whether it has failed.
    #[cold]
    pub fn send(
        &self,
        begun: Moment,
        call: &'static str,
        channel: &Channel,
        to: i32,
        tag: i32,
        failed: bool,
    ) {
        let peer = u32::try_from(to).ok().and_then(|to| channel.group().peer(to));
        let args = [
            peer.map_or(event::NONE, |peer| ("to", Value::Number(peer.0.into()))),
            ("tag", Value::Signed(tag)),
            (event::CONTEXT, Value::Number(channel.context())),
            if failed { ("failed", Value::Number(1)) } else { event::NONE },
        ];
        self.slice(begun, ["", call], "send", &args);
    }

    /// Records what ends now.
    pub(crate) fn slice(
        &self,
        begun: Moment,
        name: [&'static str; 2],
        category: &'static str,
        args: &[(&'static str, Value)],
    ) {
        self.record(begun, EventKind::Slice { end: self.now() }, name, category, args);
    }

    /// Records what ends now, and that a message has begun or ended in it.
    pub(crate) fn slice_with_flow(
        &self,
        begun: Moment,
        name: &'static str,
        flow: Flow,
        args: &[(&'static str, Value)],
    ) {
        self.slice(begun, ["", name], "message", args);
        let shape = if flow.from == self.rank { EventKind::Start(flow) } else { EventKind::Finish(flow) };
        // The least that is inside of the slice: a slice has two moments.
        self.record(Moment(begun.0 + TICK / 2), shape, ["", ""], "message", &[]);
    }

    /// Records what takes no time.
    pub(crate) fn instant(
        &self,
        name: &'static str,
        category: &'static str,
        args: &[(&'static str, Value)],
        why: Option<&str>,
    ) {
        let event = self.event(self.now(), EventKind::Instant, ["", name], category, args);
        self.keep(Event { why: why.map(Into::into), ..event });
    }

    /// Whether the counters should be recorded again.
    pub(crate) fn wants_counters(&self) -> bool {
        let now = sys::now();
        let mut book = self.book();
        // Another thread may have been at it since this one has read the clock.
        let is_due = now.saturating_sub(book.sampled) >= COUNTER_INTERVAL_NS;
        if is_due {
            book.sampled = now;
        }
        is_due
    }

    /// Records what was moved by a device until now.
    pub(crate) fn counters(&self, device: &'static str, traffic: &Traffic) {
        let Traffic { eager, announced, lent, registered, copied } = traffic;
        let args = [
            ("eager", Value::Number(eager.bytes)),
            ("announced", Value::Number(announced.bytes)),
            ("lent", Value::Number(lent.bytes)),
            ("registered", Value::Number(registered.bytes)),
            ("copied", Value::Number(copied.bytes)),
        ];
        self.record(self.now(), EventKind::Count, [device, ", bytes:"], "", &args);
    }

    /// Records all copies that this rank has made until now.
    pub(crate) fn copies(&self, bytes: u64) {
        self.record(
            self.now(),
            EventKind::Count,
            ["", "copies, bytes:"],
            "",
            &[("all", Value::Number(bytes))],
        );
    }

    /// Counts a message to `to`, in the order in which their first frames are given to the device.
    pub(crate) fn count_sent(&self, to: u32) -> Flow {
        Flow { from: self.rank, to, order: next(&mut self.book().sent, to) }
    }

    /// Counts a message from `from`, in the order in which their first frames arrive.
    pub(crate) fn count_arrived(&self, from: u32) -> Flow {
        Flow { from, to: self.rank, order: next(&mut self.book().came, from) }
    }

    /// Keeps a message in mind of which only the announcement has arrived.
    pub(crate) fn expect_body(&self, flow: Flow, context: u64, op: u64) {
        self.book().announced.insert((flow.from, context, op), flow.order);
    }

    /// Returns such a message when its body has arrived, or will not.
    pub(crate) fn take_expected_body(&self, from: u32, context: u64, op: u64) -> Option<Flow> {
        let order = self.book().announced.remove(&(from, context, op))?;
        Some(Flow { from, to: self.rank, order })
    }

    fn record(
        &self,
        at: Moment,
        shape: EventKind,
        name: [&'static str; 2],
        category: &'static str,
        args: &[(&'static str, Value)],
    ) {
        self.keep(self.event(at, shape, name, category, args));
    }

    fn event(
        &self,
        at: Moment,
        shape: EventKind,
        name: [&'static str; 2],
        category: &'static str,
        args: &[(&'static str, Value)],
    ) -> Event {
        let mut all: Args = [event::NONE; event::ARGS];
        all.iter_mut().zip(args).for_each(|(place, arg)| *place = *arg);
        let thread = THREAD.try_with(|(number, _)| *number).unwrap_or(0);
        Event { at, shape, thread, name, category, args: all, why: None }
    }

    fn keep(&self, event: Event) {
        self.book().keep(event, self.rank);
    }

    /// Ends the trace: what is recorded later is lost.
    ///
    /// # Errors
    /// Why what was recorded is not all in the file.
    pub(crate) fn close(&self) -> Result<(), String> {
        let now = self.now();
        let mut book = self.book();
        if book.left_out > 0 {
            let args = [("events", Value::Number(book.left_out))];
            let event = self.event(
                now,
                EventKind::Instant,
                ["", "left out, as MPJ_TRACE_EVENTS says"],
                "trace",
                &args,
            );
            book.events.push(event);
        }
        book.events_left = 0;
        book.is_over = true;
        book.write(self.rank);
        book.part.close(self.rank)
    }
}

impl Drop for Trace {
    /// Of a rank that has not left the job in good order, all is written that can be.
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl TraceBuffer {
    fn keep(&mut self, event: Event, rank: u32) {
        if self.events_left == 0 {
            self.left_out += 1;
            return;
        }
        self.events_left -= 1;
        if !self.threads.contains(&event.thread) {
            self.threads.push(event.thread);
            let name = std::thread::current().name().map(Into::into);
            self.events.push(Event { shape: EventKind::Thread, why: name, ..event.clone() });
        }
        self.events.push(event);
        if self.events.len() >= BUFFER {
            self.write(rank);
        }
    }

    fn write(&mut self, rank: u32) {
        self.part.write(rank, &self.events, &self.names);
        self.events.clear();
    }
}

fn lock(book: &Mutex<TraceBuffer>) -> MutexGuard<'_, TraceBuffer> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes what is kept, until the trace has ended.
fn flush_periodically(book: &Weak<Mutex<TraceBuffer>>, rank: u32) {
    loop {
        std::thread::sleep(FLUSH_INTERVAL);
        let Some(book) = book.upgrade() else { return };
        let mut book = lock(&book);
        if book.is_over {
            return;
        }
        book.write(rank);
    }
}

fn next(counts: &mut HashMap<u32, u64>, peer: u32) -> u64 {
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

    /// Threads read the clock before they have the lock: one may find what a later one has recorded.
    #[test]
    #[cfg_attr(miri, ignore = "Miri lets no test make a file")]
    fn who_is_late_with_its_clock_records_no_counters() {
        let mut config = Config::default();
        let path = std::env::temp_dir().join(format!("mpj-trace-{}", std::process::id()));
        config.read(&TRACE, path.to_str().unwrap()).unwrap();
        let trace = Trace::open(&config, 0).unwrap();
        assert!(trace.wants_counters() && !trace.wants_counters());
        trace.book().sampled = sys::now() + COUNTER_INTERVAL_NS;
        assert!(!trace.wants_counters());
        drop(trace);
        std::fs::remove_file(path.with_extension("rank0")).unwrap();
    }
}

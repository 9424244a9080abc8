//! The event loop of a job, from the start of the first process to the exit of the last.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj::boot::control_plane::{ControlConnection, ControlPlane, Unsent};
use mpj::boot::wire::ToLauncher;
use mpj::config::Number;
use mpj::report::{RankStats, ranks as format_ranks, stats_table};
use mpj_devices::trace::TraceFiles;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::process::Signal;
use rustix::rand::GetRandomFlags;

use crate::failures::FailureReports;
use crate::hang_report::{HangReport, Reason};
use crate::output::{Output, OutputThread};
use crate::print_line;
use crate::signals::Signals;
use crate::spawn::{ExitStatus, Process, Spawner};
use crate::spec::JobSpec;
use crate::stdin;
use crate::trace_files;
use crate::verdict::{Failure, LaunchError, Verdict, signal_name, verdict};

pub(crate) const KILL_AFTER: Number = Number {
    name: "KILL_AFTER",
    default: 2,
    range: (0, 86_400),
    help: "seconds between SIGTERM and SIGKILL when mpjrun terminates processes; read by mpjrun",
};

/// The time from a SIGINT to the notice that `mpjrun` still waits for ranks to exit.
const INTERRUPT_NOTICE_DELAY: Duration = Duration::from_secs(1);

/// If the same signal, SIGINT or SIGTERM, comes again within this time, it is a duplicate.
const SIGNAL_DEDUP: Duration = Duration::from_millis(100);

/// The pause before `mpjrun` sends a descriptor again that exceeded the system's limit.
const DESCRIPTOR_RETRY: Duration = Duration::from_millis(10);

/// The time limit for forwarding the remaining output after a second SIGINT or SIGTERM.
const OUTPUT_DRAIN_LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobPhase {
    Running,
    /// The other ranks can report their errors until this time.
    Grace(Instant),
    /// The processes got SIGTERM. They get SIGKILL at this time.
    Terminating(Instant),
    /// The processes got SIGKILL.
    Killed,
}

pub(crate) struct JobProcess {
    pub(crate) process: Process,
    pub(crate) control: ControlConnection<ToLauncher>,
    pub(crate) status: Option<ExitStatus>,
    pub(crate) failure_index: Option<usize>,
    /// Set if the process closed its control socket before its ranks left: when it will be killed, and why.
    pub(crate) closed: Option<(Instant, String)>,
    waits_for_writable: bool,
}

pub(crate) struct Job<'a> {
    pub(crate) spec: &'a JobSpec,
    signals: &'a Signals,
    pub(crate) epoll: OwnedFd,
    pub(crate) processes: Vec<JobProcess>,
    pub(crate) plane: ControlPlane,
    /// The id and the secret of the job.
    pub(crate) key: (u64, [u8; 32]),
    /// The shared memory of each host, if any. The vector is empty until the first process joins.
    pub(crate) segments: Vec<Option<Arc<OwnedFd>>>,
    pub(crate) reports: FailureReports,
    pub(crate) failures: Vec<Failure>,
    pub(crate) phase: JobPhase,
    /// Why the job ends, if the reason is not the failure of a rank.
    pub(crate) stop_reason: Option<LaunchError>,
    /// Each SIGINT and SIGTERM that was not a duplicate.
    interrupts: Vec<Signal>,
    /// Each SIGINT, SIGTERM and SIGHUP.
    received_signals: Vec<Signal>,
    /// The last SIGINT or SIGTERM that was not a duplicate, and when it came.
    last_interrupt: Option<(Signal, Instant)>,
    interrupt_notice_at: Option<Instant>,
    timeout: Option<Instant>,
    /// When to send descriptors again that exceeded the system's limit.
    descriptor_retry: Option<Instant>,
    /// The ranks that have failed, except those that `mpjrun` terminated.
    pub(crate) failed: BTreeSet<u32>,
    /// The statistics of the ranks that have left.
    pub(crate) stats: BTreeMap<u32, RankStats>,
    pub(crate) hang_report: Option<HangReport>,
    /// Whether the table after an interrupt was printed.
    pub(crate) is_interrupt_reported: bool,
}

// The kind of an epoll event is in the low byte of the token, the index of the process in the upper half.
const CONTROL: u64 = 0;
const EXIT: u64 = 1;
const SIGNAL: u64 = 2;

pub(crate) fn run(spec: &JobSpec, signals: &Signals) -> Result<Verdict, LaunchError> {
    let system = |e: rustix::io::Errno| LaunchError::new(format!("cannot start the job: {e}"));
    let mut random = [0; 40];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty()).map_err(system)?;
    let (job, secret) = random
        .split_first_chunk::<8>()
        .ok_or_else(|| LaunchError::new("cannot create the job key".into()))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
    epoll::add(&epoll, signals, epoll::EventData::new_u64(SIGNAL), epoll::EventFlags::IN).map_err(system)?;
    let mut job = Job {
        spec,
        signals,
        epoll,
        processes: Vec::new(),
        plane: ControlPlane::new(spec.process_ranks.iter().cloned()),
        key: (u64::from_le_bytes(*job), secret.try_into().unwrap_or_default()),
        segments: Vec::new(),
        reports: FailureReports::default(),
        failures: Vec::new(),
        phase: JobPhase::Running,
        stop_reason: None,
        interrupts: Vec::new(),
        received_signals: Vec::new(),
        last_interrupt: None,
        interrupt_notice_at: None,
        timeout: spec.timeout.and_then(|limit| Instant::now().checked_add(limit)),
        descriptor_retry: None,
        failed: BTreeSet::new(),
        stats: BTreeMap::new(),
        hang_report: None,
        is_interrupt_reported: false,
    };
    let traces = spec.trace.as_deref().and_then(|path| trace_files::begin(path, spec.size));
    let started = job.start(traces.as_ref());
    if started.is_ok() {
        job.event_loop();
    }
    job.kill_and_reap();
    let trace = traces.and_then(trace_files::end);
    let output = started?;
    signals.unblock().map_err(|e| LaunchError::new(format!("signals: {e}")))?;
    let is_interrupted_twice = job.interrupts.len() > 1;
    let output = output.drain(is_interrupted_twice.then_some(OUTPUT_DRAIN_LIMIT));
    let stats = (!job.stats.is_empty()).then(|| stats_table(0..spec.size, &job.stats));
    stats.iter().chain(&trace).for_each(|table| print_line(table));
    match job.stop_reason {
        // With `continue`, failures did not end the job; independent ones have already been printed.
        Some(why) if job.failures.is_empty() || spec.continue_on_failure => Err(why),
        _ => {
            let status = |process: usize| job.processes[process].status;
            let verdict = verdict(&job.failures, &job.failed, status, &job.received_signals, output);
            Ok(Verdict {
                line: verdict.line.filter(|_| !job.is_interrupt_reported || !verdict.is_interrupt),
                ..verdict
            })
        }
    }
}

impl Job<'_> {
    fn start(&mut self, traces: Option<&TraceFiles>) -> Result<OutputThread, LaunchError> {
        let spec = self.spec;
        let terminal = stdin::is_terminal();
        let spawner = Spawner::new(spec, traces, self.signals.original_mask(), terminal)?;
        // A single process inherits the output of `mpjrun`, because no other lines can mix with its lines.
        let piped = spec.label || spec.process_ranks.len() > 1;
        let mut output = Output::default();
        for (index, ranks) in spec.process_ranks.iter().cloned().enumerate() {
            let system =
                |e: std::io::Error| LaunchError::new(format!("cannot start rank {}: {e}", ranks.start));
            let (mut process, socket) = spawner.start(ranks.clone(), piped)?;
            output.add(&mut process.child, &ranks, spec.label);
            let input = process.child.stdin.take();
            let control = ControlConnection::new(socket);
            self.processes.push(JobProcess {
                process,
                control,
                status: None,
                failure_index: None,
                closed: None,
                waits_for_writable: false,
            });
            self.add_to_epoll(index).map_err(|e| system(e.into()))?;
            input.map_or(Ok(()), stdin::forward).map_err(system)?;
        }
        output.start().map_err(|e| LaunchError::new(format!("cannot start the output thread: {e}")))
    }

    fn add_to_epoll(&self, index: usize) -> Result<(), rustix::io::Errno> {
        let member = &self.processes[index];
        let data = |kind| epoll::EventData::new_u64(kind | (index as u64) << 32);
        epoll::add(&self.epoll, &member.control, data(CONTROL), epoll::EventFlags::IN)?;
        epoll::add(&self.epoll, member.process.pidfd(), data(EXIT), epoll::EventFlags::IN)
    }

    fn event_loop(&mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        while self.processes.iter().any(|member| member.status.is_none()) {
            let now = Instant::now();
            let timeout = self.deadline().map(|deadline| deadline.saturating_duration_since(now));
            let timeout = timeout.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            events.clear();
            // If the wait fails, `events` is empty.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
            let mut ready: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
            // Read the messages of a process before handling its exit.
            ready.sort_by_key(|token| (token & 0xff, *token));
            for token in ready {
                let index = (token >> 32) as usize;
                match token & 0xff {
                    CONTROL => self.read_messages(index),
                    EXIT => self.on_exit(index),
                    _ => self.forward_signals(),
                }
            }
            self.check_closed();
            self.process_reports();
            self.check_deadlines();
            self.send_due();
            self.flush();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            JobPhase::Grace(until) | JobPhase::Terminating(until) => Some(until),
            JobPhase::Running | JobPhase::Killed => None,
        };
        let hang_report = self.hang_report.as_ref().map(|report| report.until);
        let closed =
            self.processes.iter().filter_map(|member| member.closed.as_ref()).map(|(until, _)| *until).min();
        let retry = self.descriptor_retry;
        [phase, self.timeout, retry, hang_report, closed, self.interrupt_notice_at, self.plane.due()]
            .into_iter()
            .flatten()
            .min()
    }

    fn send_due(&mut self) {
        let due = self.plane.take_due(Instant::now());
        self.send(due);
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        if self.timeout.take_if(|timeout| *timeout <= now).is_some() && self.stop_reason.is_none() {
            self.query_blocked(Reason::Timeout);
        }
        self.report_blocked(now);
        if self.interrupt_notice_at.is_some_and(|notice| notice <= now) {
            self.interrupt_notice_at = None;
            // In other phases, the processes are terminated anyway.
            if self.phase == JobPhase::Running {
                let alive = self.processes.iter().filter(|member| member.status.is_none());
                print_line(&format!(
                    "interrupted: waiting for {} to exit; press Ctrl-C again to kill them",
                    format_ranks(alive.map(|member| member.process.ranks.clone())),
                ));
            }
        }
        match self.phase {
            JobPhase::Grace(until) if until <= now => {
                self.signal(Signal::TERM);
                // A stopped process cannot exit.
                self.signal(Signal::CONT);
                self.phase = JobPhase::Terminating(now + self.spec.kill_after);
            }
            JobPhase::Terminating(until) if until <= now => self.kill(),
            _ => {}
        }
    }

    /// Ends the job for a reason other than a failure of a rank.
    pub(crate) fn stop_job(&mut self, why: LaunchError) {
        self.stop_reason.get_or_insert(why);
        if matches!(self.phase, JobPhase::Running | JobPhase::Grace(_)) {
            self.phase = JobPhase::Grace(Instant::now());
        }
    }

    pub(crate) fn start_grace(&mut self) {
        if self.phase == JobPhase::Running {
            self.phase = JobPhase::Grace(Instant::now() + self.spec.grace);
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.phase = JobPhase::Killed;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.processes.iter().filter(|m| m.status.is_none()).for_each(|m| m.process.signal(signal));
    }

    fn forward_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP) {
                self.received_signals.push(signal);
            }
            if matches!(signal, Signal::INT | Signal::TERM) {
                // Programs such as timeout(1) signal `mpjrun` both directly and through its process group.
                if self
                    .last_interrupt
                    .is_some_and(|(earlier, at)| earlier == signal && at.elapsed() < SIGNAL_DEDUP)
                {
                    continue;
                }
                self.last_interrupt = Some((signal, Instant::now()));
                self.interrupts.push(signal);
                if self.interrupts.iter().filter(|earlier| **earlier == signal).count() > 1 {
                    let why =
                        format!("the job was killed at the second signal {}", signal_name(signal.as_raw()));
                    self.stop_reason.get_or_insert(LaunchError { why, code: 128 + signal.as_raw() as u8 });
                    self.hang_report = None;
                    self.kill();
                    continue;
                }
                if signal == Signal::INT {
                    self.interrupt_notice_at = Some(Instant::now() + INTERRUPT_NOTICE_DELAY);
                    self.query_blocked(Reason::Interrupt);
                    continue;
                }
            }
            if signal == Signal::PIPE {
                // End as if SIGPIPE had killed this process, like other programs in a pipeline.
                let why = String::new();
                self.stop_job(LaunchError { why, code: 128 + Signal::PIPE.as_raw() as u8 });
                continue;
            }
            if signal == Signal::QUIT {
                self.query_blocked(Reason::Quit);
                continue;
            }
            self.signal(signal);
            if signal == Signal::TSTP {
                // SIGCONT later continues this process, which forwards that signal to the ranks.
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
            }
        }
    }

    fn flush(&mut self) {
        self.descriptor_retry = None;
        for (index, member) in self.processes.iter_mut().enumerate().filter(|(_, m)| m.status.is_none()) {
            let unsent = member.control.flush();
            if unsent == Unsent::Descriptor {
                self.descriptor_retry = Some(Instant::now() + DESCRIPTOR_RETRY);
            }
            let blocked = unsent == Unsent::Frames;
            if blocked != member.waits_for_writable {
                member.waits_for_writable = blocked;
                let flags = if blocked {
                    epoll::EventFlags::IN | epoll::EventFlags::OUT
                } else {
                    epoll::EventFlags::IN
                };
                let data = epoll::EventData::new_u64(CONTROL | (index as u64) << 32);
                let _ = epoll::modify(&self.epoll, &member.control, data, flags);
            }
        }
    }

    /// Kills the remaining processes of each process group. Then reaps the processes of the job, which frees their ids.
    fn kill_and_reap(&mut self) {
        for member in &mut self.processes {
            member.process.signal(Signal::KILL);
            // Returns soon, because the process has exited or got SIGKILL.
            let _ = member.process.child.wait();
        }
    }
}

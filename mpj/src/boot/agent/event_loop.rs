//! The event loop of an agent.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::{HostId, HostRanks, Hosts, JobKey};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use serde::de::DeserializeOwned;

use super::host_watch::{ACCEPT_INTERVAL, HostWatch, WatchPort};
use super::local::LocalListener;
use super::messages::ToRoot;
use super::peers::{RootListener, Upstream};
use super::router::Router;
use super::watching::PeerWatches;
use super::{AgentSetup, PeerSetup};
use crate::boot::control_plane::{ControlConnection, JobEnd};
use crate::boot::managed::{KILL_WAIT, OUTPUT_TIME, ProcessManager};
use crate::boot::wire::ToLauncher;
use crate::run::{Caller, print_last_error};

/// Without a process manager, the time that an agent gives the processes of its host to exit in a failed job, and the
/// longer time that the root gives the other hosts.
const END_TIME: Duration = Duration::from_secs(1);
const ROOT_END_TIME: Duration = Duration::from_secs(2);

/// The interval at which an agent checks for processes that have exited before they connected.
pub(super) const ARRIVAL_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum of [`Agent::connect_limit`]. An agent that exits before that is reported
/// by its process manager, if that reports the exits of processes.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(120);

/// Runs an agent until its processes have left (the root: all processes of the job), or until the job has failed.
pub(super) fn run(setup: AgentSetup, manager: Box<dyn ProcessManager>) {
    let mut agent = Agent::new(setup, manager);
    agent.manager.joined();
    agent.announce_watch_port();
    agent.flush();
    while agent.stage != Stage::Over {
        agent.wait();
        agent.accept();
        agent.check_arrivals();
        agent.read_processes();
        agent.read_agents();
        agent.poll_process_manager();
        agent.check_relays(Instant::now());
        agent.check_hosts();
        agent.flush();
        agent.tick(Instant::now());
        agent.flush();
    }
    if agent.is_orderly {
        // If this fails, the process manager reports that this process exits too early.
        let _ = agent.manager.finalize();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Running,
    /// All processes of this host have left, and the root closes the connection when it has read everything.
    Leaving,
    /// The job ends with this code; [`Agent::begin_end`] is called at this time.
    Failed(u8, Instant),
    /// The job ends with this code: the process manager is killing it, and should have killed this process by this
    /// time. Without a process manager, the processes of this host and, at the root, the other agents have got the
    /// code, and have until this time to exit.
    Ending(u8, Instant),
    Over,
}

/// A process of this host.
pub(super) struct LocalProcess {
    pub(super) rank: u32,
    /// The process id, or 0 if the process is in another process id namespace.
    pub(super) pid: i32,
    /// Becomes readable when the process exits, even if a child of it still has its end of the connection. `None`
    /// before the process has connected, and if [`process_descriptor`](super::process_descriptor) returns none.
    pub(super) process: Option<OwnedFd>,
    /// `None` before the process has connected.
    pub(super) connection: Option<ControlConnection<ToLauncher>>,
    /// Whether the process has got its welcome.
    pub(super) joined: bool,
    /// Whether the end of the connection was handled.
    pub(super) ended: bool,
}

/// The connection from the agent of another host.
pub(super) struct Relay {
    pub(super) connection: ControlConnection<ToRoot>,
    /// Whether the end of the connection was handled.
    pub(super) ended: bool,
}

/// The connections of an agent to the other agents.
pub(super) enum Role {
    Root {
        relays: BTreeMap<HostId, Relay>,
        listener: Option<RootListener>,
        /// When the agents of the other hosts must have connected; `None` afterwards.
        relays_due: Option<Instant>,
    },
    Relay(Upstream),
}

pub(super) struct Agent {
    /// The time that the agents of the other hosts have to connect to the root.
    pub(super) connect_limit: Duration,
    pub(super) hosts: Hosts,
    pub(super) ranks: HostRanks,
    pub(super) key: JobKey,
    pub(super) devices: Option<Vec<String>>,
    pub(super) segment: Option<Arc<OwnedFd>>,
    pub(super) listener: LocalListener,
    /// Until this time, no connections are accepted: this process lacks descriptors.
    pub(super) accepts_at: Option<Instant>,
    /// Since when a connection waits to be accepted because this process lacks descriptors.
    pub(super) lacks_descriptors_since: Option<Instant>,
    /// When to check for processes that have exited before they connected; `None` after all have connected.
    pub(super) arrivals_due: Option<Instant>,
    /// The processes of this host, by the index of their rank.
    pub(super) processes: Vec<LocalProcess>,
    pub(super) router: Router,
    pub(super) role: Role,
    pub(super) manager: Box<dyn ProcessManager>,
    /// The sockets to which the watches of other agents connect.
    pub(super) watch_port: Option<WatchPort>,
    /// The hosts that this agent watches: the root watches all others, another agent that of the root and some of those
    /// with which its ranks communicate.
    pub(super) watches: Vec<(HostId, HostWatch)>,
    /// At the root, the pairs of other hosts of which one watches the other.
    pub(super) peer_watches: PeerWatches,
    pub(super) stage: Stage,
    /// After an abort by a rank of this host: when this agent ends the job if the root has not, the exit code, and the
    /// reason.
    pub(super) abort_due: Option<(Instant, u8, String)>,
    pub(super) is_orderly: bool,
}

impl Agent {
    pub(super) fn new(setup: AgentSetup, manager: Box<dyn ProcessManager>) -> Agent {
        let AgentSetup { hosts, host, key, devices, segment, listener, peers, watch_port, start_limit } =
            setup;
        let connect_limit = start_limit.min(CONNECT_LIMIT);
        let ranks = hosts.ranks_of(host);
        let process = |rank| LocalProcess {
            rank,
            pid: 0,
            process: None,
            connection: None,
            joined: false,
            ended: false,
        };
        let (router, role) = match peers {
            PeerSetup::Root(listener) => {
                let relays_due = listener.is_some().then(|| Instant::now() + connect_limit);
                let role = Role::Root { relays: BTreeMap::new(), listener, relays_due };
                (Router::root(hosts.clone()), role)
            }
            PeerSetup::Relay(upstream) => (Router::relay(hosts.clone(), host), Role::Relay(upstream)),
        };
        Agent {
            connect_limit,
            processes: ranks.iter().map(process).collect(),
            ranks,
            hosts,
            key,
            devices,
            segment: segment.map(Arc::new),
            listener,
            accepts_at: None,
            lacks_descriptors_since: None,
            arrivals_due: Some(Instant::now() + ARRIVAL_INTERVAL),
            router,
            role,
            manager,
            watch_port,
            watches: Vec::new(),
            peer_watches: PeerWatches::default(),
            stage: Stage::Running,
            abort_due: None,
            is_orderly: false,
        }
    }

    /// Returns the time until which the agent may wait for input.
    fn due(&self, now: Instant) -> Option<Instant> {
        let of_stage = match self.stage {
            Stage::Failed(_, until) | Stage::Ending(_, until) => Some(until),
            Stage::Running | Stage::Leaving | Stage::Over => match &self.role {
                Role::Root { listener, relays_due, .. } => {
                    let strangers = listener.as_ref().and_then(RootListener::due);
                    [strangers, *relays_due].into_iter().flatten().min()
                }
                Role::Relay(_) => self.abort_due.as_ref().map(|(due, ..)| *due),
            },
        };
        // After a failure, the monitor remains due.
        let of_router = self.router.due().filter(|due| self.stage == Stage::Running || now < *due);
        let of_watches = self.watches.iter().filter_map(|(_, watch)| watch.due()).min();
        let of_port = self.watch_port.as_ref().map(|_| now + ACCEPT_INTERVAL);
        let due = [of_stage, of_router, of_watches, of_port, self.accepts_at, self.arrivals_due];
        due.into_iter().flatten().min()
    }

    /// Waits for input, for space to write, or until something is due.
    fn wait(&self) {
        let now = Instant::now();
        let timeout = self.due(now).map(|due| due.saturating_duration_since(now)).map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let accepts = self.accepts_at.is_none();
        let mut fds = Vec::from_iter(accepts.then(|| PollFd::new(&self.listener, PollFlags::IN)));
        let sockets = self.manager.sockets();
        fds.extend(sockets.into_iter().map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
        for process in &self.processes {
            fds.extend(process.connection.iter().filter(|_| !process.ended).map(interest));
            let exit = process.process.iter().filter(|_| !process.ended);
            fds.extend(exit.map(|exit| PollFd::new(exit, PollFlags::IN)));
        }
        match &self.role {
            Role::Root { relays, listener, .. } => {
                fds.extend(
                    relays.values().filter(|relay| !relay.ended).map(|relay| interest(&relay.connection)),
                );
                let sockets = listener.iter().flat_map(RootListener::to_poll);
                fds.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
            }
            Role::Relay(upstream) => fds.extend((!upstream.is_closed()).then(|| interest(upstream))),
        }
        let watched = self.watches.iter().flat_map(|(_, watch)| watch.to_poll());
        fds.extend(watched.map(|(socket, flags)| PollFd::from_borrowed_fd(socket, flags)));
        // After an error, such as an interruption, everything is read once more.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn poll_process_manager(&mut self) {
        match self.manager.poll() {
            Ok(dead) => dead.into_iter().for_each(|(rank, cause)| self.on_closed(rank, cause)),
            // The processes of this host read the end of their connections, and are killed.
            Err(_) => self.stage = Stage::Over,
        }
    }

    /// Performs what is due, and ends the job or this agent if nothing remains to be done.
    fn tick(&mut self, now: Instant) {
        let outbound = self.router.tick(now);
        self.send(outbound);
        let has_not_failed = matches!(self.stage, Stage::Running | Stage::Leaving);
        if let Some((_, code, why)) = self.abort_due.take_if(|(due, ..)| has_not_failed && *due <= now) {
            return self.fail(code, &why);
        }
        match self.stage {
            Stage::Running => {}
            Stage::Failed(code, until) if until <= now => return self.begin_end(code, now),
            Stage::Ending(code, until) if until <= now || self.have_others_ended() => {
                if !self.manager.kills_processes() {
                    self.kill_processes();
                    // This exits, unless the caller is a library.
                    let _ = self.manager.abort(code);
                }
                self.stage = Stage::Over;
                return;
            }
            Stage::Leaving | Stage::Failed(..) | Stage::Ending(..) | Stage::Over => return,
        }
        let end = self.router.end(now);
        let all_ended = self.processes.iter().all(|process| process.ended);
        match &mut self.role {
            Role::Root { relays, .. } => match end {
                Some(JobEnd::Failed { code, line }) => self.fail(code, &line),
                Some(JobEnd::Orderly) if all_ended && relays.values().all(|relay| relay.ended) => {
                    self.finish();
                }
                _ => {}
            },
            Role::Relay(upstream) if all_ended && self.router.due().is_none() => {
                // After this, only a writable socket wakes the agent.
                upstream.flush();
                if !upstream.has_backlog() {
                    upstream.finish_sending();
                    self.stage = Stage::Leaving;
                }
            }
            Role::Relay(_) => {}
        }
    }

    /// Ends the processes of the job, or requests that the process manager kills them.
    pub(super) fn begin_end(&mut self, code: u8, now: Instant) {
        if self.manager.kills_processes() {
            // If the process manager of this host has exited, those of other hosts kill the job.
            let _ = self.manager.abort(code);
            self.stage = Stage::Ending(code, now + KILL_WAIT);
            return;
        }
        let end_time = if matches!(self.role, Role::Root { .. }) { ROOT_END_TIME } else { END_TIME };
        self.stage = Stage::Ending(code, now + end_time);
        self.send_end(code);
    }

    /// Returns whether, without a process manager, the other processes of this host and the other hosts have ended.
    fn have_others_ended(&self) -> bool {
        let is_over = |process: &LocalProcess| {
            process.ended || !process.joined || Some(process.rank) == self.ranks.iter().next()
        };
        let have_relays_ended = match &self.role {
            Role::Root { relays, .. } => relays.values().all(|relay| relay.ended),
            Role::Relay(_) => true,
        };
        !self.manager.kills_processes() && have_relays_ended && self.processes.iter().all(is_over)
    }

    /// Kills the other processes of this host that have not exited in a failed job, for example stopped ones. In a job
    /// of a library, no process is killed.
    fn kill_processes(&self) {
        let is_program = self.manager.caller() == Caller::Program;
        let others = self.processes.iter().filter(|process| is_program && !process.ended && process.joined);
        for process in others.filter_map(|process| process.process.as_ref()) {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }

    pub(super) fn finish(&mut self) {
        (self.stage, self.is_orderly) = (Stage::Over, true);
    }

    /// Prints why the job fails, except for a library, and begins to end it with an exit code.
    pub(super) fn fail(&mut self, code: u8, line: &str) {
        if self.manager.caller() == Caller::Program {
            print_last_error(line.to_owned());
        }
        self.stage = Stage::Failed(code, Instant::now() + OUTPUT_TIME);
    }

    fn flush(&mut self) {
        // If bytes remain, the next wait includes the socket. Other hosts come first: they are farther away, and pass
        // messages on.
        match &mut self.role {
            Role::Root { relays, .. } => {
                for relay in relays.values_mut() {
                    relay.connection.flush();
                }
            }
            Role::Relay(upstream) => {
                upstream.flush();
            }
        }
        for connection in self.processes.iter_mut().filter_map(|process| process.connection.as_mut()) {
            connection.flush();
        }
    }
}

/// Returns what to wait for at a connection.
fn interest<M: DeserializeOwned>(connection: &ControlConnection<M>) -> PollFd<'_> {
    let flags = if connection.has_backlog() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    PollFd::new(connection, flags)
}

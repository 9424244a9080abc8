//! Start-up of processes that are not a job of their own: one socket to the launcher, which is `mpjrun` or the agent of
//! this host, and one thread that reads it.

mod broadcaster;
mod devices;
mod messages;
mod requests;

use std::collections::HashMap;
use std::io::Write;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};

use mpj_devices::{
    Callback, Doorbell, Engine, Exit, HostId, HostRanks, Hosts, Hub, Registry, Roster, Segment, Site,
};

use broadcaster::ExitBroadcaster;
use requests::{PendingRequest, PendingRequests};

use super::agent::{check_user, process_descriptor};
use super::control_reader::{ControlReader, DESCRIPTOR_LIMIT_REACHED};
use super::control_writer::ControlWriter;
use super::managed::ManagedSession;
use super::wire::{ProtocolVersion, ToLauncher, ToProcess, Welcome, encode_frame, exit_code};
use super::{Boot, CARDS, control_fd};
use crate::config::Config;
use crate::report::RankStats;

#[derive(Clone, Debug)]
pub(super) struct LaunchedBoot {
    rank: u32,
    process: Arc<ProcessState>,
}

#[derive(Debug)]
struct ProcessState {
    welcome: Welcome,
    hosts: Hosts,
    host_ranks: HostRanks,
    broadcaster: Arc<ExitBroadcaster>,
    pending: Mutex<PendingRequests>,
    /// The cards of this process's ranks, by rank: these ranks read each other's cards without `mpjrun`.
    cards: Mutex<HashMap<u32, Vec<u8>>>,
    engines: Mutex<Vec<(u32, Weak<Engine>)>>,
    roster: Arc<Roster>,
    hub: Option<Arc<Hub>>,
    segment: Option<Arc<Segment>>,
    /// The part of this process in the job of a process manager; `None` under `mpjrun`.
    session: Option<Arc<ManagedSession>>,
    /// Whether the process has left the job of its process manager, so that it needs the agent no more.
    has_left: AtomicBool,
    /// The code with which a rank of this process has aborted the job.
    abort_code: OnceLock<i32>,
    /// The exit code of a failed job, once its agent has sent it.
    job_code: OnceLock<u8>,
}

/// Called on the control thread when the job has failed, with its exit code, or when the launcher has exited (`None`).
pub(super) type JobEndFn = fn(Option<u8>);

fn request_and_wait<T: Send + 'static>(send: impl FnOnce(Callback<T>)) -> Result<T, String> {
    let (sender, reply) = mpsc::channel();
    // The send fails only if the wait below was abandoned, which never happens.
    send(Box::new(move |reply| drop(sender.send(reply))));
    reply.recv().unwrap_or_else(|_| Err(PROTOCOL_ERROR.into()))
}

const PROTOCOL_ERROR: &str = "protocol error: unexpected message from the launcher";

/// Returns the hosts of the job and the ranks of this process; the ranks must all be on one host.
fn parse_placement(welcome: &Welcome) -> Result<(Hosts, Range<u32>), String> {
    let runs = welcome.hosts.iter().map(|(host, ranks)| (HostId(*host), *ranks));
    let hosts = Hosts::from_runs(runs).map_err(|e| format!("the launcher sent an invalid host map: {e}"))?;
    let own = welcome.first_rank..welcome.first_rank.checked_add(welcome.ranks_here).ok_or(PROTOCOL_ERROR)?;
    let on_one_host = hosts.runs().any(|(_, ranks)| ranks.contains(&own.start) && own.end <= ranks.end);
    if own.is_empty() || !on_one_host {
        return Err(PROTOCOL_ERROR.into());
    }
    Ok((hosts, own))
}

/// Attaches the memory that the ranks of this host share.
fn attach(memory: Option<OwnedFd>, ranks: u32) -> Result<Arc<Segment>, String> {
    let memory =
        memory.ok_or_else(|| format!("the launcher passed no shared memory: {DESCRIPTOR_LIMIT_REACHED}"))?;
    // SAFETY: the launcher passes the descriptor of its segment only to the processes of the job, and these attach it.
    #[expect(unsafe_code, reason = "see above")]
    let segment = unsafe { Segment::attach(memory, ranks) };
    segment.map_err(|e| e.to_string())
}

impl LaunchedBoot {
    /// Joins the job that this process was started for. Returns the [`Boot`] of each of its ranks, or `None` if
    /// `mpjrun` did not start the process.
    ///
    /// After the connection to `mpjrun` breaks, or an invalid message arrives, the control thread reports the remaining
    /// ranks elsewhere dead and calls `on_job_end`.
    ///
    /// # Errors
    /// The process has joined before, the variable that names the socket is invalid, `mpjrun` cannot be reached or sent
    /// an invalid message, the segment cannot be attached, or the control thread cannot be started.
    pub(super) fn join(on_job_end: JobEndFn) -> Result<Option<Vec<LaunchedBoot>>, String> {
        control_fd::socket()?.map(|socket| Self::connect(socket, None, on_job_end)).transpose()
    }

    /// Joins the job over a socket to `mpjrun`, or to the agent of this host. Under a process manager, `session` is the
    /// part of this process in its job.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub(super) fn connect(
        socket: UnixStream,
        session: Option<Arc<ManagedSession>>,
        on_job_end: JobEndFn,
    ) -> Result<Vec<LaunchedBoot>, String> {
        let hello = encode_frame(&ToLauncher::Hello(ProtocolVersion::own())).map_err(|e| e.to_string())?;
        (&socket).write_all(&hello).map_err(|e| format!("cannot write to the launcher: {e}"))?;
        let agent = session.as_ref().and_then(|_| check_user(&socket).ok()).and_then(process_descriptor);
        let mut reader = ControlReader::new(agent);
        let (welcome, memory) = match reader.next(&socket)? {
            (ToProcess::Welcome(welcome), memory) => (welcome, memory),
            _ => return Err(PROTOCOL_ERROR.into()),
        };
        let (hosts, own) = parse_placement(&welcome)?;
        let host_ranks = hosts.host_of(own.start).map(|host| hosts.ranks_of(host)).ok_or(PROTOCOL_ERROR)?;
        if let Some(rank) = host_ranks.iter().next().filter(|_| session.is_some()) {
            reader.set_gone(format!(
                "the process of rank {rank}, which connects this host to the job, has exited"
            ));
        }
        let segment = if welcome.has_segment { Some(attach(memory, host_ranks.len())?) } else { None };
        // `smdev` connects the ranks of one process. A job of one rank gets it too.
        let hub = (welcome.ranks_here > 1 || hosts.size() == 1).then(|| Hub::new(own.clone()));
        let broadcaster = Arc::new(ExitBroadcaster {
            writer: ControlWriter::new(socket),
            local_ranks: own.clone(),
            exit_query_pending: AtomicBool::new(false),
        });
        let roster = Arc::new(Roster::default());
        roster.set_broadcaster(Arc::clone(&broadcaster) as _);
        let process = Arc::new(ProcessState {
            welcome,
            hosts,
            host_ranks,
            broadcaster,
            pending: Mutex::default(),
            cards: Mutex::default(),
            engines: Mutex::default(),
            roster,
            hub,
            segment,
            session,
            has_left: AtomicBool::new(false),
            abort_code: OnceLock::new(),
            job_code: OnceLock::new(),
        });
        let control = Arc::clone(&process);
        let read = move || {
            control.read_loop(reader);
            if !control.has_left.load(Ordering::Relaxed) {
                on_job_end(control.job_code.get().copied());
            }
        };
        std::thread::Builder::new()
            .name("control".into())
            .spawn(read)
            .map_err(|e| format!("cannot start the control thread: {e}"))?;
        Ok(own.map(|rank| LaunchedBoot { rank, process: Arc::clone(&process) }).collect())
    }
}

impl ProcessState {
    fn pending(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cards(&self) -> MutexGuard<'_, HashMap<u32, Vec<u8>>> {
        self.cards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to `mpjrun`; the control thread passes the reply to `pending`.
    fn request(&self, pending: PendingRequest, request: impl FnOnce(u64) -> ToLauncher) {
        let mut requests = self.pending();
        if let Some(why) = requests.disconnect_reason.clone() {
            drop(requests);
            return pending.fail(why);
        }
        requests.next += 1;
        let id = requests.next;
        requests.waiting.insert(id, pending);
        drop(requests);
        if let Err(why) = self.broadcaster.writer.post(&request(id)) {
            let pending = self.pending().waiting.remove(&id);
            pending.into_iter().for_each(|pending| pending.fail(why.clone()));
        }
    }

    /// Returns the segment of this host and the index of a rank in it, if there is one and the rank is on this host.
    fn shared(&self, rank: u32) -> Option<(&Arc<Segment>, u32)> {
        self.segment.as_ref().zip(self.host_ranks.index_of(rank))
    }

    fn request_value(&self, rank: u32, key: &str, then: Callback<Vec<u8>>) {
        self.request(PendingRequest::Value(then), |id| ToLauncher::Get { id, rank, key: key.to_owned() });
    }
}

impl Boot for LaunchedBoot {
    fn has_launcher(&self) -> bool {
        self.process.session.is_none()
    }

    fn reports_failures(&self) -> bool {
        let ProcessState { session, broadcaster, job_code, .. } = &*self.process;
        let has_lost_agent = || {
            let is_disconnected = self.process.pending().disconnect_reason.is_some();
            job_code.get().is_none() && (is_disconnected || broadcaster.writer.has_failed())
        };
        let has_process_manager = session.as_ref().is_none_or(|session| !session.has_own_exit_code());
        // If the agent's process has exited, a process manager reports that.
        has_process_manager || !has_lost_agent()
    }

    fn leave(&self) {
        let Some(session) = &self.process.session else { return };
        let has_failed = self.process.roster.has_death();
        self.process.has_left.store(true, Ordering::Relaxed);
        // The agent waits for the end of this connection. If it has ended already, the agent has exited.
        let _ = self.process.broadcaster.writer.socket().shutdown(Shutdown::Both);
        let code = self.process.abort_code.get().copied();
        if has_failed { session.wait_for_kill(code.map(exit_code)) } else { session.leave() }
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn hosts(&self) -> Hosts {
        self.process.hosts.clone()
    }

    fn site(&self) -> Result<Site, String> {
        let ProcessState { hosts, host_ranks, session, .. } = &*self.process;
        let bell = Doorbell::new().map_err(|e| format!("cannot create the doorbell: {e}"))?;
        let mut site = Site::new(self.rank, hosts.size(), Arc::new(bell));
        site.ranks_on_host = host_ranks.len();
        // The hosts of `mpjrun` are simulated.
        site.spans_machines = session.is_some() && hosts.count() > 1;
        Ok(site)
    }

    fn registry(&self) -> Registry {
        self.process.registry()
    }

    fn devices(&self, _config: &Config) -> Option<Vec<String>> {
        self.process.welcome.devices.clone()
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), String> {
        if key == CARDS {
            self.process.cards().insert(self.rank, value.to_vec());
            if let Some((segment, index)) = self.process.shared(self.rank) {
                segment.put_card(index, value);
            }
        }
        let (rank, key, value) = (self.rank, key.to_owned(), value.to_vec());
        self.process.broadcaster.writer.post(&ToLauncher::Put { rank, key, value })
    }

    fn get(&self, rank: u32, key: &str, then: Callback<Vec<u8>>) {
        let own = if key == CARDS { self.process.cards().get(&rank).cloned() } else { None };
        if let Some(card) = own {
            return then(Ok(card));
        }
        // Ranks of one host read each other's cards in the segment. Cards that cannot be read there, and those of ranks
        // on other hosts, come from `mpjrun`.
        let shared = self.process.shared(rank).zip(self.process.shared(self.rank)).filter(|_| key == CARDS);
        let Some(((segment, owner), (_, requester))) = shared else {
            return self.process.request_value(rank, key, then);
        };
        let process = Arc::clone(&self.process);
        let read = Box::new(move |card: Option<Vec<u8>>| match card {
            Some(card) => then(Ok(card)),
            None => process.request_value(rank, CARDS, then),
        });
        if let Err(read) = segment.request_card(requester, owner, read) {
            read(None);
        }
    }

    fn fence(&self) -> Result<(), String> {
        request_and_wait(|then| {
            self.process.request(PendingRequest::Fence(then), |id| ToLauncher::Fence { id })
        })
    }

    fn report_stats(&self, stats: RankStats) {
        // If the connection is broken, the report has no reader.
        let _ = self.process.broadcaster.writer.post(&ToLauncher::Stats { rank: self.rank, stats });
    }

    fn attach_engine(&self, engine: &Arc<Engine>) {
        let mut engines = self.process.engines.lock().unwrap_or_else(PoisonError::into_inner);
        engines.push((self.rank, Arc::downgrade(engine)));
    }

    fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.process.roster)
    }

    fn abort_code(&self) -> Option<i32> {
        let has_own = self.process.session.as_ref().is_some_and(|session| session.has_own_exit_code());
        self.process.abort_code.get().copied().filter(|_| has_own)
    }

    fn abort(&self, code: i32, why: &str) {
        if self.process.roster.has_left(self.rank) {
            return;
        }
        let _ = self.process.abort_code.set(code);
        let reason = why[..why.floor_char_boundary(4096)].to_owned();
        // If the connection is broken, the job is ending already.
        let _ = self.process.broadcaster.writer.send_and_wait(&ToLauncher::Abort {
            rank: self.rank,
            code,
            reason,
        });
        let cause = format!("it aborted the job with code {code}: {why}");
        self.process.roster.report(self.rank, Exit::Died(cause.into()));
    }
}

#[cfg(test)]
mod tests;

//! Start-up of processes that `mpjrun` has started: one socket to the launcher, and one thread that reads it.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};

use mpj_devices::{
    Broadcaster, Callback, Doorbell, Engine, Exit, ExitEvent, HostId, HostRanks, Hosts, Hub, IbvDriver,
    JobKey, NioDriver, Registry, Roster, Segment, ShmDriver, Site, SmDriver,
};

use super::control_reader::{ControlReader, NO_DESCRIPTOR};
use super::control_writer::ControlWriter;
use super::wire::{ProtocolVersion, ToLauncher, ToProcess, Welcome, WireExit, encode_frame};
use super::{Boot, CARDS, control_fd};
use crate::config::Config;
use crate::report::{RankStats, RankWaits};

/// One rank's [`Boot`] in a job that `mpjrun` has started.
#[derive(Clone, Debug)]
pub(super) struct MpjrunBoot {
    rank: u32,
    process: Arc<ProcessState>,
}

/// The state that the ranks of this process share.
#[derive(Debug)]
struct ProcessState {
    welcome: Welcome,
    hosts: Hosts,
    /// The ranks on this host.
    host_ranks: HostRanks,
    broadcaster: Arc<ExitBroadcaster>,
    pending: Mutex<PendingRequests>,
    /// The cards of this process's ranks, by rank: these ranks read each other's cards without the launcher.
    cards: Mutex<HashMap<u32, Vec<u8>>>,
    /// The engines of the ranks that have attached one.
    engines: Mutex<Vec<(u32, Weak<Engine>)>>,
    roster: Arc<Roster>,
    hub: Option<Arc<Hub>>,
    segment: Option<Arc<Segment>>,
}

/// Reports exits to the launcher, on behalf of the ranks of this process.
struct ExitBroadcaster {
    writer: Arc<ControlWriter>,
    local_ranks: Range<u32>,
    /// Whether a request for orderly exits is pending at the launcher.
    exit_query_pending: AtomicBool,
}

impl fmt::Debug for ExitBroadcaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line(ranks {:?})", self.local_ranks)
    }
}

/// The requests that the launcher has not answered.
#[derive(Debug, Default)]
struct PendingRequests {
    next: u64,
    waiting: HashMap<u64, PendingRequest>,
    lost: Option<String>,
}

/// The callback of a pending request.
enum PendingRequest {
    Value(Callback<Vec<u8>>),
    Fence(Callback<()>),
}

impl fmt::Debug for PendingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PendingRequest::Value(..) => "Value",
            PendingRequest::Fence(_) => "Fence",
        })
    }
}

impl PendingRequest {
    fn fail(self, why: String) {
        match self {
            // The rank that was to put the value has exited, or is lost with the launcher: the roster reports it.
            PendingRequest::Value(..) => (),
            PendingRequest::Fence(then) => then(Err(why)),
        }
    }
}

/// Sends a request with `ask`, and waits for the answer.
fn request_and_wait<T: Send + 'static>(ask: impl FnOnce(Callback<T>)) -> Result<T, String> {
    let (tell, told) = mpsc::channel();
    // The send fails only if the wait below was abandoned, which never happens.
    ask(Box::new(move |answer| drop(tell.send(answer))));
    told.recv().unwrap_or_else(|_| Err(PROTOCOL_ERROR.into()))
}

const PROTOCOL_ERROR: &str = "the launcher gave another answer than was asked for";

/// Returns the hosts of the job and the ranks of this process; the ranks must all be on one host.
fn parse_placement(welcome: &Welcome) -> Result<(Hosts, Range<u32>), String> {
    let runs = welcome.hosts.iter().map(|(host, ranks)| (HostId(*host), *ranks));
    let hosts =
        Hosts::from_runs(runs).map_err(|e| format!("the launcher sent a map of hosts that is none: {e}"))?;
    let own = welcome.first..welcome.first.checked_add(welcome.ranks_here).ok_or(PROTOCOL_ERROR)?;
    let on_one_host = hosts.runs().any(|(_, ranks)| ranks.contains(&own.start) && own.end <= ranks.end);
    if own.is_empty() || !on_one_host {
        return Err(PROTOCOL_ERROR.into());
    }
    Ok((hosts, own))
}

impl MpjrunBoot {
    /// Joins the job that this process was started for. Returns the [`Boot`] of each of its ranks, or `None` if no
    /// launcher started the process.
    ///
    /// If the launcher dies first, every rank outside this process is reported dead, and then `orphaned` is called.
    ///
    /// # Errors
    /// The message of the launcher or the system.
    pub(super) fn join(orphaned: fn()) -> Result<Option<Vec<MpjrunBoot>>, String> {
        control_fd::socket()?.map(|socket| Self::connect(socket, orphaned)).transpose()
    }

    fn connect(socket: UnixStream, orphaned: fn()) -> Result<Vec<MpjrunBoot>, String> {
        let hello = encode_frame(&ToLauncher::Hello(ProtocolVersion::own())).map_err(|e| e.to_string())?;
        (&socket).write_all(&hello).map_err(|e| format!("the launcher does not listen: {e}"))?;
        let mut ear = ControlReader::default();
        let (welcome, memory) = match ear.next(&socket)? {
            (ToProcess::Welcome(welcome), memory) => (welcome, memory),
            _ => return Err(PROTOCOL_ERROR.into()),
        };
        let (hosts, own) = parse_placement(&welcome)?;
        let neighbours = hosts.host_of(own.start).map(|host| hosts.ranks_of(host)).ok_or(PROTOCOL_ERROR)?;
        let segment = match (welcome.segment, memory) {
            (false, _) => None,
            (true, Some(memory)) => {
                // SAFETY: the launcher passes the descriptor of its segment only to the processes of the job, and these
                // attach it.
                #[expect(unsafe_code, reason = "see above")]
                let segment = unsafe { Segment::attach(memory, neighbours.len()) };
                Some(segment.map_err(|e| e.to_string())?)
            }
            (true, None) => return Err(format!("no memory from the launcher: {NO_DESCRIPTOR}")),
        };
        // Ranks of one process communicate through its memory. A rank that is alone in the world sends to itself this
        // way.
        let hub = (welcome.ranks_here > 1 || hosts.size() == 1).then(|| Hub::new(own.clone()));
        let line = Arc::new(ExitBroadcaster {
            writer: ControlWriter::new(socket),
            local_ranks: own.clone(),
            exit_query_pending: AtomicBool::new(false),
        });
        let roster = Arc::new(Roster::default());
        roster.set_broadcaster(Arc::clone(&line) as _);
        let link = Arc::new(ProcessState {
            welcome,
            hosts,
            host_ranks: neighbours,
            broadcaster: line,
            pending: Mutex::default(),
            cards: Mutex::default(),
            engines: Mutex::default(),
            roster,
            hub,
            segment,
        });
        let listener = Arc::clone(&link);
        let listen = move || {
            listener.read_loop(ear);
            orphaned();
        };
        std::thread::Builder::new()
            .name("control".into())
            .spawn(listen)
            .map_err(|e| format!("the control thread could not be started: {e}"))?;
        Ok(own.map(|rank| MpjrunBoot { rank, process: Arc::clone(&link) }).collect())
    }
}

impl Broadcaster for ExitBroadcaster {
    fn broadcast(&self, event: &ExitEvent) -> bool {
        match (self.local_ranks.contains(&event.rank), WireExit::from(&event.exit)) {
            (true, end) => {
                // `send` waits until the report is written, because the process may end next. If the launcher is gone,
                // the report has no reader.
                let _ = self.writer.send(&ToLauncher::Ended { rank: event.rank, end });
                true
            }
            // The launcher gives the deaths one order for all processes.
            (false, WireExit::Died(cause)) => {
                self.writer.post(&ToLauncher::PeerLost { rank: event.rank, cause }).is_err()
            }
            (false, _) => true,
        }
    }

    fn request_exits(&self) {
        if !self.exit_query_pending.swap(true, Ordering::Relaxed) {
            // If the launcher is gone, the control thread reports every rank outside this process dead.
            let _ = self.writer.post(&ToLauncher::Ends);
        }
    }

    fn report_cause(&self, rank: u32, first: u32) {
        // An error is ignored for the same reason as in `ask`.
        let _ = self.writer.post(&ToLauncher::FailedDueTo { rank, first });
    }
}

impl ProcessState {
    fn pending(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cards(&self) -> MutexGuard<'_, HashMap<u32, Vec<u8>>> {
        self.cards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to the launcher; the control thread passes the answer to `question`.
    fn ask(&self, question: PendingRequest, request: impl FnOnce(u64) -> ToLauncher) {
        let mut asked = self.pending();
        if let Some(why) = asked.lost.clone() {
            drop(asked);
            return question.fail(why);
        }
        asked.next += 1;
        let id = asked.next;
        asked.waiting.insert(id, question);
        drop(asked);
        if let Err(why) = self.broadcaster.writer.post(&request(id)) {
            let question = self.pending().waiting.remove(&id);
            question.into_iter().for_each(|question| question.fail(why.clone()));
        }
    }

    /// Returns the shared memory of this host and the index of a rank in it, if the rank shares the memory.
    fn shared(&self, rank: u32) -> Option<(&Arc<Segment>, u32)> {
        self.segment.as_ref().zip(self.host_ranks.index_of(rank))
    }

    /// Requests the value of a rank's key from the launcher.
    fn ask_for(&self, rank: u32, key: &str, then: Callback<Vec<u8>>) {
        self.ask(PendingRequest::Value(then), |id| ToLauncher::Get { id, rank, key: key.to_owned() });
    }

    /// Reads and handles messages of the launcher until the connection breaks.
    fn read_loop(&self, mut ear: ControlReader) {
        let why = loop {
            let heard =
                ear.next(self.broadcaster.writer.socket()).and_then(|(message, _)| self.on_message(message));
            if let Err(why) = heard {
                break why;
            }
        };
        let elsewhere = (0..self.hosts.size()).filter(|rank| !self.broadcaster.local_ranks.contains(rank));
        self.roster.report_died(elsewhere, &why);
        let waiting = {
            let mut asked = self.pending();
            asked.lost = Some(why.clone());
            std::mem::take(&mut asked.waiting)
        };
        waiting.into_values().for_each(|question| question.fail(why.clone()));
    }

    /// Reports the current waits of each rank of this process.
    fn report_blocked(&self) -> Result<(), String> {
        let engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for rank in self.broadcaster.local_ranks.clone() {
            let engine = engines.iter().find(|(of, _)| *of == rank).and_then(|(_, engine)| engine.upgrade());
            let waits = engine.map(|engine| RankWaits::of(&engine));
            self.broadcaster.writer.post(&ToLauncher::Waits { rank, waits })?;
        }
        Ok(())
    }

    fn on_message(&self, message: ToProcess) -> Result<(), String> {
        let (ToProcess::Value { id, .. } | ToProcess::FenceDone { id, .. }) = message else {
            match message {
                ToProcess::Ended { rank, end }
                    if rank < self.hosts.size() && !self.broadcaster.local_ranks.contains(&rank) =>
                {
                    self.roster.learn(ExitEvent { rank, exit: end.into() });
                }
                ToProcess::Ends(runs) => {
                    for run in runs {
                        let elsewhere =
                            run.ranks().filter(|rank| !self.broadcaster.local_ranks.contains(rank));
                        let end = Exit::from(run.end);
                        for rank in elsewhere.take_while(|rank| *rank < self.hosts.size()) {
                            self.roster.learn(ExitEvent { rank, exit: end.clone() });
                        }
                    }
                    self.broadcaster.exit_query_pending.store(false, Ordering::Relaxed);
                }
                ToProcess::Waits => self.report_blocked()?,
                _ => {}
            }
            return Ok(());
        };
        let question = self.pending().waiting.remove(&id);
        match (question, message) {
            (Some(PendingRequest::Value(then)), ToProcess::Value { value: Ok(value), .. }) => then(Ok(value)),
            (Some(question @ PendingRequest::Value(..)), ToProcess::Value { value: Err(why), .. }) => {
                question.fail(why)
            }
            (Some(PendingRequest::Fence(then)), ToProcess::FenceDone { met, .. }) => then(met),
            _ => return Err(PROTOCOL_ERROR.into()),
        }
        Ok(())
    }
}

impl Boot for MpjrunBoot {
    fn has_launcher(&self) -> bool {
        true
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn hosts(&self) -> Hosts {
        self.process.hosts.clone()
    }

    fn site(&self) -> Result<Site, String> {
        let ProcessState { hosts, host_ranks: neighbours, .. } = &*self.process;
        let bell = Doorbell::new().map_err(|e| format!("no doorbell to sleep on: {e}"))?;
        let mut site = Site::new(self.rank, hosts.size(), Arc::new(bell));
        site.ranks_on_host = neighbours.len();
        Ok(site)
    }

    fn registry(&self) -> Registry {
        let ProcessState { welcome, host_ranks: neighbours, hub, segment, .. } = &*self.process;
        let key = Arc::new(JobKey { job: welcome.job, secret: welcome.secret });
        let mut registry = Registry::empty();
        registry = match hub {
            Some(hub) => registry.with(SmDriver::new(Arc::clone(hub))),
            None => registry.without(SmDriver::NAME, "this process has no other thread ranks"),
        };
        registry = match segment {
            Some(segment) => registry.with(ShmDriver::new(Arc::clone(segment), neighbours.clone())),
            None => registry.without(ShmDriver::NAME, "mpjrun has made no shared memory for this job"),
        };
        // Opening `ibvdev` locks memory, and ranks on one host do not need the device.
        let named = welcome.devices.iter().flatten().any(|name| name == IbvDriver::NAME);
        registry = match named || self.process.hosts.count() > 1 {
            true => registry.with(IbvDriver::new(Arc::clone(&key))),
            false => {
                registry.without(IbvDriver::NAME, "the ranks of this job are on one host: name it to have it")
            }
        };
        registry.with(NioDriver::new(key))
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
        // Ranks that share memory read each other's cards in it. A card that does not fit there comes from the
        // launcher, like those of all other ranks.
        let shared = self.process.shared(rank).zip(self.process.shared(self.rank)).filter(|_| key == CARDS);
        let Some(((segment, of), (_, asker))) = shared else { return self.process.ask_for(rank, key, then) };
        let link = Arc::clone(&self.process);
        let read = Box::new(move |card: Option<Vec<u8>>| match card {
            Some(card) => then(Ok(card)),
            None => link.ask_for(rank, CARDS, then),
        });
        if let Err(read) = segment.request_card(asker, of, read) {
            read(None);
        }
    }

    fn fence(&self) -> Result<(), String> {
        request_and_wait(|then| self.process.ask(PendingRequest::Fence(then), |id| ToLauncher::Fence { id }))
    }

    fn tell_stats(&self, stats: RankStats) {
        // If the launcher is gone, the report has no reader.
        let _ = self.process.broadcaster.writer.post(&ToLauncher::Stats { rank: self.rank, stats });
    }

    fn attach_engine(&self, engine: &Arc<Engine>) {
        let mut engines = self.process.engines.lock().unwrap_or_else(PoisonError::into_inner);
        engines.push((self.rank, Arc::downgrade(engine)));
    }

    fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.process.roster)
    }

    fn abort(&self, code: i32, why: &str) {
        let short = why[..why.floor_char_boundary(4096)].to_owned();
        // If the launcher is gone, the job has ended.
        let _ =
            self.process.broadcaster.writer.send(&ToLauncher::Abort { rank: self.rank, code, why: short });
        let cause = format!("it aborted the job with code {code}: {why}");
        self.process.roster.report(self.rank, Exit::Died(cause.into()));
    }
}

#[cfg(test)]
mod tests;

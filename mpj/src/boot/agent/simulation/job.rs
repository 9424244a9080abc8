//! The event queue of a simulated job.
//!
//! An agent or a process handles all input that has arrived in one turn, and then sends what it has queued, with one
//! write for each receiver. A turn of an agent costs [`SCAN`] for each of its connections. A read or a write costs
//! [`CALL`], and a frame costs [`FRAME`] and [`BYTE`] for each byte at either end. It arrives [`LATENCY`] later.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mpj_devices::{HostId, Hosts};
use serde::Serialize;

use super::process::{Process, Reaction};
use crate::boot::agent::messages::{FromRoot, ToRoot};
use crate::boot::agent::router::{Outbound, Router};
use crate::boot::control_plane::{JobEnd, To};
use crate::boot::wire::{ProtocolVersion, ToLauncher, ToProcess, Welcome, encode_frame};

/// Costs in nanoseconds.
const CALL: u64 = 5_000;
const FRAME: u64 = 500;
const BYTE: u64 = 1;
const SCAN: u64 = 300;
const LATENCY: u64 = 20_000;

/// The processes start and leave within this time.
const SKEW: u64 = 1_000_000;

/// The work of one agent.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Load {
    pub(super) frames_in: u64,
    pub(super) frames_out: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) busy: Duration,
}

/// The work since the last call of [`Job::take_counts`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) root: Load,
    /// The agent of another host that has sent most.
    pub(super) other: Load,
    /// The time until the last process had handled its last message or, if all have ended, until the root knew it.
    pub(super) elapsed: Duration,
}

#[derive(Clone)]
enum Frame {
    FromProcess(u32, Rc<ToLauncher>),
    Closed(u32),
    ToRoot(HostId, Rc<ToRoot>),
    FromRoot(Rc<FromRoot>),
    ToProcess(Rc<ToProcess>),
    HostLost(HostId),
}

/// Frames that one write has sent, and their length.
#[derive(Clone, Default)]
struct Packet {
    frames: Vec<Frame>,
    bytes: u64,
}

enum Input {
    Packet(Packet),
    /// A process begins or leaves.
    Start,
    Leave,
    /// A process, or an agent with its host, is lost.
    Kill,
    /// A turn of an agent.
    Turn,
}

struct Agent {
    host: HostId,
    router: Router,
    inbox: Vec<Packet>,
    busy_until: u64,
    /// The time of the next turn.
    turn_at: Option<u64>,
    /// The agent was lost with its host, or has ended.
    is_gone: bool,
    load: Load,
}

pub(super) struct Job {
    hosts: Hosts,
    welcome_len: u64,
    epoch: Instant,
    now: u64,
    /// The start of the counts.
    since: u64,
    last_action: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    /// By the second number in `queue`: the receiver and its input.
    inputs: BTreeMap<u64, (Node, Input)>,
    sent: u64,
    agents: Vec<Agent>,
    processes: Vec<Process>,
    /// The deaths in the order of the first process that has learned each.
    order: Vec<u32>,
    end: Option<JobEnd>,
    random: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Node {
    Agent(u32),
    Process(u32),
}

fn frame_len(message: &impl Serialize) -> u64 {
    encode_frame(message).unwrap().len() as u64
}

impl Job {
    /// Creates a job whose ranks are placed in blocks of nearly equal length.
    pub(super) fn new(ranks: u32, hosts: u32) -> Job {
        let begin = |host: u32| (u64::from(host) * u64::from(ranks) / u64::from(hosts)) as u32;
        Job::on((0..hosts).map(|host| (HostId(host), begin(host + 1) - begin(host))), u64::from(ranks))
    }

    /// Creates a job of 2 to 300 ranks on up to 16 hosts, placed in blocks or in turns.
    pub(super) fn random(seed: u64) -> Job {
        let mut state = seed.wrapping_add(1).wrapping_mul(0x2545_f491_4f6c_dd1d);
        let hosts = 1 + random(&mut state, 16);
        let ranks_per_run = 1 + random(&mut state, 6);
        let runs = hosts + random(&mut state, 50 - hosts);
        Job::on((0..runs).map(|run| (HostId((run % hosts) as u32), ranks_per_run as u32)), state)
    }

    fn on(runs: impl Iterator<Item = (HostId, u32)>, random: u64) -> Job {
        let hosts = Hosts::from_runs(runs).unwrap();
        let router = |host| match host {
            0 => Router::root(hosts.clone()),
            _ => Router::relay(hosts.clone(), HostId(host)),
        };
        let agent = |host| Agent {
            host: HostId(host),
            router: router(host),
            inbox: Vec::new(),
            busy_until: 0,
            turn_at: None,
            is_gone: false,
            load: Load::default(),
        };
        let welcome = Welcome {
            job: u64::MAX,
            secret: [0xff; 32],
            hosts: hosts.runs().map(|(host, ranks)| (host.0, ranks.len() as u32)).collect(),
            first_rank: hosts.size() - 1,
            ranks_here: 1,
            devices: None,
            has_segment: true,
        };
        Job {
            welcome_len: frame_len(&ToProcess::Welcome(welcome)),
            epoch: Instant::now(),
            now: 0,
            since: 0,
            last_action: 0,
            queue: BinaryHeap::new(),
            inputs: BTreeMap::new(),
            sent: 0,
            agents: (0..hosts.count()).map(agent).collect(),
            processes: (0..hosts.size()).map(|rank| Process { rank, ..Process::default() }).collect(),
            order: Vec::new(),
            end: None,
            random,
            hosts,
        }
    }

    pub(super) fn ranks(&self) -> u32 {
        self.hosts.size()
    }

    pub(super) fn joined(&self) -> u32 {
        self.processes.iter().filter(|process| process.has_joined).count() as u32
    }

    fn pick(&mut self, below: u64) -> u64 {
        random(&mut self.random, below)
    }

    /// Starts all processes, at random times.
    pub(super) fn start(&mut self) {
        self.schedule_for_each(|| Input::Start);
    }

    /// All processes leave in order, at random times.
    pub(super) fn leave(&mut self) {
        self.schedule_for_each(|| Input::Leave);
    }

    fn schedule_for_each(&mut self, input: impl Fn() -> Input) {
        for rank in 0..self.ranks() {
            let at = self.now + self.pick(SKEW);
            self.schedule(at, Node::Process(rank), input());
        }
    }

    /// Kills the process of a rank. Returns the number of deaths.
    pub(super) fn kill(&mut self, rank: u32, all_fail: bool) -> u32 {
        self.processes.iter_mut().for_each(|process| process.fails_with_others = all_fail);
        self.schedule(self.now, Node::Process(rank), Input::Kill);
        1
    }

    /// Loses a host other than the first. Returns the number of deaths.
    pub(super) fn lose_host(&mut self, host: u32) -> u32 {
        let at = self.now + self.pick(SKEW);
        self.schedule(at, Node::Agent(host), Input::Kill);
        self.hosts.ranks_of(HostId(host)).len()
    }

    fn on_host_loss(&mut self, host: u32) {
        self.agents[host as usize].is_gone = true;
        let ranks = self.hosts.ranks_of(HostId(host));
        ranks.iter().for_each(|rank| self.processes[rank as usize].has_ended = true);
        let lost = Packet { frames: vec![Frame::HostLost(HostId(host))], bytes: 0 };
        // After all that the agent has sent.
        self.schedule(self.now + 10 * LATENCY, Node::Agent(0), Input::Packet(lost));
    }

    /// Schedules the deaths of a few ranks and the loss of up to one host, some of them during the start. Returns the
    /// number of deaths.
    pub(super) fn random_faults(&mut self) -> u32 {
        let mut dead = std::collections::BTreeSet::new();
        if self.hosts.count() > 1 && self.pick(2) == 0 {
            let host = 1 + self.pick(u64::from(self.hosts.count()) - 1) as u32;
            self.lose_host(host);
            dead.extend(self.hosts.ranks_of(HostId(host)).iter());
        }
        for _ in 0..1 + self.pick(8) {
            let rank = self.pick(u64::from(self.ranks())) as u32;
            let at = self.now + self.pick(3 * SKEW);
            self.schedule(at, Node::Process(rank), Input::Kill);
            dead.insert(rank);
        }
        dead.len() as u32
    }

    fn schedule(&mut self, at: u64, node: Node, input: Input) {
        self.sent += 1;
        self.queue.push(Reverse((at, self.sent)));
        self.inputs.insert(self.sent, (node, input));
    }

    /// Runs until nothing remains to be done.
    pub(super) fn run(&mut self) {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            self.now = at;
            let (node, input) = self.inputs.remove(&number).unwrap();
            match (node, input) {
                (Node::Agent(host), Input::Packet(packet)) => {
                    let agent = &mut self.agents[host as usize];
                    agent.inbox.push(packet);
                    let turn = at.max(agent.busy_until);
                    self.schedule_turn(host, turn);
                }
                (Node::Agent(host), Input::Kill) => self.on_host_loss(host),
                (Node::Agent(host), _) => self.turn(host),
                (Node::Process(rank), input) => self.step(rank, input),
            }
        }
    }

    fn schedule_turn(&mut self, host: u32, at: u64) {
        let agent = &mut self.agents[host as usize];
        if !agent.is_gone && agent.turn_at.is_none_or(|turn| at < turn) {
            agent.turn_at = Some(at);
            self.schedule(at, Node::Agent(host), Input::Turn);
        }
    }

    fn step(&mut self, rank: u32, input: Input) {
        let process = &mut self.processes[rank as usize];
        if process.has_ended {
            return;
        }
        match input {
            Input::Start => {
                let hello = Rc::new(ToLauncher::Hello(ProtocolVersion::own()));
                self.react(rank, self.now, Reaction { messages: vec![hello], closes: false });
            }
            Input::Kill => {
                process.has_ended = true;
                self.react(rank, self.now, Reaction { messages: vec![], closes: true });
            }
            Input::Leave => {
                let reaction = process.leave();
                self.react(rank, self.now, reaction);
            }
            Input::Packet(packet) => {
                let mut at = self.now + CALL + packet.bytes * BYTE;
                for frame in packet.frames {
                    at += FRAME;
                    let Frame::ToProcess(message) = frame else { unreachable!() };
                    self.last_action = self.last_action.max(at);
                    let mut deaths = Vec::new();
                    let reaction = self.processes[rank as usize].take(&message, &mut deaths);
                    deaths.into_iter().for_each(|dead| self.learn(rank, dead));
                    self.react(rank, at, reaction);
                }
            }
            Input::Turn => unreachable!(),
        }
    }

    /// Records that a process has learned a death. All processes learn the deaths in one order.
    fn learn(&mut self, rank: u32, dead: u32) {
        let process = &mut self.processes[rank as usize];
        if dead == rank {
            return;
        }
        match self.order.get(process.learned) {
            Some(other) => assert_eq!(*other, dead, "death {} at rank {rank}", process.learned),
            None => self.order.push(dead),
        }
        process.learned += 1;
    }

    /// Sends the messages of a process to its agent.
    fn react(&mut self, rank: u32, at: u64, Reaction { messages, closes }: Reaction) {
        if messages.is_empty() && !closes {
            return;
        }
        let bytes = messages.iter().map(|message| frame_len(&**message)).sum::<u64>();
        let mut frames: Vec<Frame> =
            messages.into_iter().map(|message| Frame::FromProcess(rank, message)).collect();
        frames.extend(closes.then_some(Frame::Closed(rank)));
        let cost = CALL + FRAME * frames.len() as u64 + bytes * BYTE;
        let host = self.hosts.host_of(rank).unwrap().0;
        self.schedule(at + cost + LATENCY, Node::Agent(host), Input::Packet(Packet { frames, bytes }));
    }

    fn instant(&self, at: u64) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }

    /// One pass of the event loop of an agent.
    fn turn(&mut self, host: u32) {
        let begun = self.now;
        let agent = &mut self.agents[host as usize];
        if agent.is_gone || agent.turn_at != Some(begun) {
            return;
        }
        agent.turn_at = None;
        let inbox = std::mem::take(&mut agent.inbox);
        let connections = u64::from(self.hosts.ranks_of(HostId(host)).len())
            + if host == 0 { u64::from(self.hosts.count()) } else { 1 };
        let mut at = begun + SCAN * connections;
        let mut outbox: BTreeMap<Node, Packet> = BTreeMap::new();
        for packet in inbox {
            let load = &mut self.agents[host as usize].load;
            load.frames_in += packet.frames.len() as u64;
            load.bytes_in += packet.bytes;
            at += CALL + packet.bytes * BYTE;
            for frame in packet.frames {
                at += FRAME;
                let outbound = self.route(host, frame, at, &mut outbox);
                self.queue_outbound(host, outbound, &mut outbox);
            }
        }
        let now = self.instant(at);
        let outbound = self.agents[host as usize].router.tick(now);
        self.queue_outbound(host, outbound, &mut outbox);
        if let Some(end) = self.agents[host as usize].router.end(now) {
            self.agents[host as usize].is_gone = true;
            if self.processes.iter().all(|process| process.has_ended) {
                self.last_action = at;
            }
            self.end = Some(end);
        }
        self.flush(host, at, outbox);
        let agent = &mut self.agents[host as usize];
        agent.load.busy += Duration::from_nanos(agent.busy_until - begun);
        let (free, due) = (agent.busy_until, agent.router.due());
        if let Some(due) = due {
            let due = due.saturating_duration_since(self.epoch).as_nanos() as u64;
            self.schedule_turn(host, due.max(free));
        }
    }

    /// Passes a frame to the router of an agent. The agent itself welcomes a process that joins.
    fn route(
        &mut self,
        host: u32,
        frame: Frame,
        at: u64,
        outbox: &mut BTreeMap<Node, Packet>,
    ) -> Vec<Outbound> {
        let now = self.instant(at);
        let router = &mut self.agents[host as usize].router;
        match frame {
            Frame::FromProcess(rank, message) => {
                if let ToLauncher::Hello(_) = *message {
                    let welcome = Frame::ToProcess(Rc::new(ToProcess::Welcome(empty_welcome())));
                    outbox.entry(Node::Process(rank)).or_default().push(welcome, self.welcome_len);
                    self.processes[rank as usize].is_welcome = true;
                }
                router.on_message(rank, (*message).clone(), now).unwrap()
            }
            Frame::Closed(rank) => router.on_closed(rank, "was killed".into(), now),
            Frame::ToRoot(from, message) => router.on_report(from, (*message).clone(), now),
            Frame::FromRoot(message) => router.on_root_message((*message).clone()),
            Frame::HostLost(host) => router.on_host_lost(host, "its host does not answer", now),
            Frame::ToProcess(_) => unreachable!(),
        }
    }

    fn queue_outbound(&mut self, host: u32, outbound: Vec<Outbound>, outbox: &mut BTreeMap<Node, Packet>) {
        for message in outbound {
            match message {
                Outbound::Local(to, message) => {
                    let (bytes, message) = (frame_len(&message), Rc::new(message));
                    let receives = |rank: &u32| match to {
                        To::Process(one) => *rank as usize == one,
                        To::JoinedExcept(one) => *rank as usize != one,
                    };
                    let ranks = self.hosts.ranks_of(HostId(host));
                    for rank in ranks.iter().filter(|rank| self.processes[*rank as usize].is_welcome) {
                        if receives(&rank) {
                            let packet = outbox.entry(Node::Process(rank)).or_default();
                            packet.push(Frame::ToProcess(Rc::clone(&message)), bytes);
                        }
                    }
                }
                Outbound::Root(message) => {
                    let (bytes, from) = (frame_len(&message), HostId(host));
                    let packet = outbox.entry(Node::Agent(0)).or_default();
                    packet.push(Frame::ToRoot(from, Rc::new(message)), bytes);
                }
                Outbound::Host(to, message) => self.queue_for_relays(to.0..to.0 + 1, message, outbox),
                Outbound::Hosts(message) => self.queue_for_relays(1..self.hosts.count(), message, outbox),
            }
        }
    }

    fn queue_for_relays(
        &self,
        hosts: std::ops::Range<u32>,
        message: FromRoot,
        outbox: &mut BTreeMap<Node, Packet>,
    ) {
        let (bytes, message) = (frame_len(&message), Rc::new(message));
        for host in hosts.filter(|host| !self.agents[*host as usize].is_gone) {
            outbox.entry(Node::Agent(host)).or_default().push(Frame::FromRoot(Rc::clone(&message)), bytes);
        }
    }

    /// Sends what an agent has queued.
    fn flush(&mut self, host: u32, mut at: u64, outbox: BTreeMap<Node, Packet>) {
        for (to, packet) in outbox {
            let load = &mut self.agents[host as usize].load;
            load.frames_out += packet.frames.len() as u64;
            load.bytes_out += packet.bytes;
            at += CALL + FRAME * packet.frames.len() as u64 + packet.bytes * BYTE;
            self.schedule(at + LATENCY, to, Input::Packet(packet));
        }
        self.agents[host as usize].busy_until = at;
    }

    /// Checks that every living process has learned all deaths, and that the job has failed with them.
    pub(super) fn check_deaths(&self, deaths: u32) {
        for process in self.processes.iter().filter(|process| !process.has_ended) {
            assert_eq!(process.learned, deaths as usize, "rank {}", process.rank);
        }
        let line = match &self.end {
            Some(JobEnd::Failed { line, .. }) => line,
            end => panic!("{end:?}"),
        };
        let followers = match deaths {
            1 => String::new(),
            2 => "; 1 other rank failed".into(),
            _ => format!("; {} other ranks failed", deaths - 1),
        };
        assert!(line.ends_with(&followers) && line.contains("failed") == (deaths > 1), "{deaths}: {line}");
    }

    pub(super) fn check_orderly_end(&self) {
        assert_eq!(self.end, Some(JobEnd::Orderly));
    }

    /// Returns the work since the last call, or since the start.
    pub(super) fn take_counts(&mut self) -> Counts {
        let loads: Vec<Load> = self.agents.iter_mut().map(|agent| std::mem::take(&mut agent.load)).collect();
        let other = loads[1..].iter().copied().max_by_key(|load| load.frames_out).unwrap_or_default();
        let elapsed = Duration::from_nanos(self.last_action.saturating_sub(self.since));
        self.since = self.now;
        Counts { root: loads[0], other, elapsed }
    }
}

impl Packet {
    fn push(&mut self, frame: Frame, bytes: u64) {
        self.frames.push(frame);
        self.bytes += bytes;
    }
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % below.max(1)
}

/// A welcome without the host map, whose length is known.
fn empty_welcome() -> Welcome {
    Welcome {
        job: 0,
        secret: [0; 32],
        hosts: Vec::new(),
        first_rank: 0,
        ranks_here: 1,
        devices: None,
        has_segment: false,
    }
}

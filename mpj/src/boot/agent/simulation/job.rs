//! A simulated job: its event queue, its processes, and the faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mpj_devices::{HostId, Hosts};

use super::agent::SimulatedAgent;
use super::packet::{BYTE, CALL, Counts, FRAME, Frame, LATENCY, Load, Node, Packet, cost, frame_len};
use super::process::{Failure, Process, Reaction};
use crate::boot::control_plane::JobEnd;
use crate::boot::wire::{ProtocolVersion, ToLauncher, ToProcess, Welcome};

/// The time in nanoseconds within which all processes start or leave.
const SKEW: u64 = 1_000_000;

pub(super) enum Input {
    Packet(Packet),
    /// A process begins or leaves.
    Start,
    Leave,
    /// A process, or an agent with its host, is lost.
    Kill,
    /// A turn of an agent.
    Turn,
}

pub(super) struct Job {
    pub(super) hosts: Hosts,
    pub(super) welcome_len: u64,
    pub(super) epoch: Instant,
    pub(super) now: u64,
    /// The time of the last [`take_counts`](Self::take_counts); 0 before the first.
    since: u64,
    pub(super) last_action: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    /// By the second number in `queue`: the receiver and its input.
    inputs: BTreeMap<u64, (Node, Input)>,
    sent: u64,
    pub(super) agents: Vec<SimulatedAgent>,
    pub(super) processes: Vec<Process>,
    /// The deaths in the order of the first process that has learned each.
    order: Vec<u32>,
    pub(super) end: Option<JobEnd>,
    random: u64,
}

impl Job {
    /// Creates a job whose ranks are placed in blocks of nearly equal length.
    pub(super) fn new(ranks: u32, hosts: u32, seed: u64) -> Job {
        let begin = |host: u32| (u64::from(host) * u64::from(ranks) / u64::from(hosts)) as u32;
        Job::on((0..hosts).map(|host| (HostId(host), begin(host + 1) - begin(host))), seed)
    }

    /// Creates a job of 1 to 294 ranks on up to 16 hosts, placed in blocks or in turns.
    pub(super) fn random(seed: u64) -> Job {
        let mut state = seed.wrapping_add(1).wrapping_mul(0x2545_f491_4f6c_dd1d);
        let hosts = 1 + random(&mut state, 16);
        let ranks_per_run = 1 + random(&mut state, 6);
        let runs = hosts + random(&mut state, 50 - hosts);
        Job::on((0..runs).map(|run| (HostId((run % hosts) as u32), ranks_per_run as u32)), state)
    }

    fn on(runs: impl Iterator<Item = (HostId, u32)>, random: u64) -> Job {
        let hosts = Hosts::from_runs(runs).unwrap();
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
            agents: (0..hosts.count()).map(|host| SimulatedAgent::new(&hosts, HostId(host))).collect(),
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
    pub(super) fn kill(&mut self, rank: u32, reaction: Failure) -> u32 {
        self.processes.iter_mut().for_each(|process| process.failure = reaction);
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
        let mut dead = BTreeSet::new();
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

    pub(super) fn schedule(&mut self, at: u64, node: Node, input: Input) {
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

    pub(super) fn schedule_turn(&mut self, host: u32, at: u64) {
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
                let mut at = self.now + CALL + BYTE * packet.bytes;
                for frame in packet.frames {
                    at += cost(&frame);
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
        let cost = CALL + FRAME * frames.len() as u64 + BYTE * bytes;
        let host = self.hosts.host_of(rank).unwrap().0;
        self.schedule(at + cost + LATENCY, Node::Agent(host), Input::Packet(Packet { frames, bytes }));
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
        let other = loads[1..].iter().copied().fold(Load::default(), Load::max);
        let elapsed = Duration::from_nanos(self.last_action.saturating_sub(self.since));
        self.since = self.now;
        Counts { root: loads[0], other, elapsed }
    }
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % below.max(1)
}

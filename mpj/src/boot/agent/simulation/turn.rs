//! One pass of the event loop of a simulated agent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mpj_devices::HostId;

use super::job::{Input, Job};
use super::packet::{BYTE, CALL, FRAME, Frame, LATENCY, Node, Packet, SCAN, cost, frame_len};
use crate::boot::agent::messages::FromRoot;
use crate::boot::agent::router::Outbound;
use crate::boot::control_plane::To;
use crate::boot::wire::{ToLauncher, ToProcess, Welcome};

impl Job {
    fn instant(&self, at: u64) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }

    /// One pass of the event loop of an agent.
    pub(super) fn turn(&mut self, host: u32) {
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
            at += CALL + BYTE * packet.bytes;
            for frame in packet.frames {
                at += cost(&frame);
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
                    self.processes[rank as usize].was_welcomed = true;
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
                        To::Joined => true,
                    };
                    let ranks = self.hosts.ranks_of(HostId(host));
                    for rank in ranks.iter().filter(|rank| self.processes[*rank as usize].was_welcomed) {
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

    fn queue_for_relays(&self, hosts: Range<u32>, message: FromRoot, outbox: &mut BTreeMap<Node, Packet>) {
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
            at += CALL + FRAME * packet.frames.len() as u64 + BYTE * packet.bytes;
            self.schedule(at + LATENCY, to, Input::Packet(packet));
        }
        self.agents[host as usize].busy_until = at;
    }
}

/// A welcome without the host map. Its simulated length is `Job::welcome_len`.
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

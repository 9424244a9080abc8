//! Handles the messages from the processes of a job.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj::boot::control_plane::{Outgoing, Taken, To, host_segment};
use mpj::boot::wire::{ProtocolVersion, ToLauncher, ToProcess, VERSION, Welcome, WireExit, encode_frame};
use mpj_devices::Exit;
use rustix::event::epoll;
use rustix::process::Signal;

use crate::job::Job;
use crate::verdict::{FailureKind, LaunchError};

/// The time that a process has to exit after it closed its control socket. An exiting process closes the socket first,
/// and can take long on a busy machine.
const EXIT_AFTER_CLOSE: Duration = Duration::from_secs(2);

/// The maximum length in bytes of the program's `mpj` version in an error message.
const MAX_VERSION_LEN: usize = 40;

impl Job<'_> {
    pub(crate) fn read_messages(&mut self, index: usize) {
        let ranks = self.processes[index].process.ranks.clone();
        let mut result = self.processes[index].control.receive();
        while let Some(message) = self.processes[index].control.next() {
            if let Err(why) = self.handle_message(index, &ranks, message) {
                result = Err(why);
                break;
            }
        }
        let result = result.and_then(|()| self.processes[index].control.check_backlog());
        let is_valid = result.is_ok();
        if let Err(mut why) = result {
            if !self.plane.has_joined(index) {
                why += "; does the program use another version of mpj than mpjrun?";
            }
            self.kill_for_violation(index, why);
        }
        let has_left = ranks.into_iter().all(|rank| self.plane.exit_of(rank) == Some(&Exit::Left));
        let joined = self.plane.has_joined(index);
        let member = &mut self.processes[index];
        if member.control.is_closed() {
            let _ = epoll::delete(&self.epoll, &member.control);
            if is_valid && joined && !has_left && member.status.is_none() {
                let at = member
                    .control
                    .incomplete_frame()
                    .unwrap_or_else(|| "before its ranks had left the job".into());
                member.closed =
                    Some((Instant::now() + EXIT_AFTER_CLOSE, format!("it closed the socket {at}")));
            }
        }
    }

    fn kill_for_violation(&mut self, index: usize, why: String) {
        let member = &mut self.processes[index];
        member.control.close();
        member.process.signal(Signal::KILL);
        self.reports.queue_own_report(index, member.process.ranks.clone(), FailureKind::ProtocolError(why));
    }

    /// Kills the processes that have closed their control sockets too early and have not exited in time.
    pub(crate) fn check_closed(&mut self) {
        let now = Instant::now();
        for index in 0..self.processes.len() {
            let member = &mut self.processes[index];
            let closed = member.closed.take_if(|(until, _)| *until <= now || member.status.is_some());
            if let Some((_, why)) = closed.filter(|_| member.status.is_none()) {
                self.kill_for_violation(index, why);
            }
        }
    }

    /// Handles a message; failures are queued. Returns an error if the message violates the protocol.
    fn handle_message(&mut self, index: usize, own: &Range<u32>, message: ToLauncher) -> Result<(), String> {
        match self.plane.take(index, message, Instant::now())? {
            Taken::Replies(replies) => self.send(replies),
            Taken::Report(report) => self.handle_report(index, own, report),
        }
        Ok(())
    }

    fn handle_report(&mut self, index: usize, own: &Range<u32>, report: ToLauncher) {
        match report {
            ToLauncher::Hello(theirs) if theirs.version != VERSION => {
                self.stop_job(version_mismatch(own.start, theirs))
            }
            ToLauncher::Hello(_) => self.welcome(index, own),
            ToLauncher::Exited { rank, exit: WireExit::Died(cause) } => {
                self.reports.queue_own_report(index, rank..rank + 1, FailureKind::Reported(cause));
            }
            ToLauncher::PeerLost { rank, cause } => self.reports.queue_peer_report(rank, cause),
            ToLauncher::FailedDueTo { rank, cause_rank } => self.reports.failed_due_to(rank, cause_rank),
            ToLauncher::Abort { rank, code, reason } => {
                self.reports.queue_own_report(index, rank..rank + 1, FailureKind::Abort(code, reason));
            }
            ToLauncher::BlockedReport { rank, waits } => {
                if let Some(report) = &mut self.hang_report {
                    report.record_blocked(rank, waits);
                }
            }
            ToLauncher::Stats { rank, stats } => drop(self.stats.insert(rank, stats)),
            // The control plane handles these.
            ToLauncher::Put { .. }
            | ToLauncher::Get { .. }
            | ToLauncher::Fence { .. }
            | ToLauncher::Exited { .. }
            | ToLauncher::QueryExits => {}
        }
    }

    fn welcome(&mut self, index: usize, own: &Range<u32>) {
        if let Err(why) = self.create_segments() {
            return self.stop_job(why);
        }
        let spec = self.spec;
        let host = spec.placement.host_of(own.start);
        let segment = self.segments.get(host.0 as usize).cloned().flatten();
        let welcome = Welcome {
            job: self.key.0,
            secret: self.key.1,
            hosts: spec.placement.hosts.runs().map(|(host, ranks)| (host.0, ranks.len() as u32)).collect(),
            first_rank: own.start,
            ranks_here: own.len() as u32,
            devices: spec.devices.clone(),
            has_segment: segment.is_some(),
        };
        let control = &mut self.processes[index].control;
        control.send(&ToProcess::Welcome(welcome), segment);
        let deaths = self.plane.join(index);
        self.send(deaths);
        self.on_join();
    }

    /// At the first join, creates the segment of each host that needs one. Programs that never join need none.
    fn create_segments(&mut self) -> Result<(), LaunchError> {
        if self.segments.is_empty() {
            let (spec, mut reserved) = (self.spec, 0);
            let config = &spec.environment.config;
            let segment = |host| {
                let ranks = spec.placement.hosts.ranks_of(host).len();
                let create = || host_segment(ranks, config, &spec.placement.host_suffix(host), &mut reserved);
                spec.needs_segment(host).then(create).transpose()
            };
            let segments = spec.placement.ids().map(segment).collect::<Result<Vec<_>, _>>();
            let segments = segments.map_err(LaunchError::new)?;
            self.segments = segments.into_iter().map(|fd| fd.map(Arc::new)).collect();
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, outgoing: Vec<Outgoing>) {
        for Outgoing { to, message } in outgoing {
            match to {
                To::Process(index) => self.processes[index].control.send(&message, None),
                To::Joined => {
                    // The control plane limits the length of these messages.
                    let Ok(frame) = encode_frame(&message) else { continue };
                    let plane = &self.plane;
                    let processes = self.processes.iter_mut().enumerate();
                    let joined = processes.filter(|(index, _)| plane.has_joined(*index));
                    joined.for_each(|(_, member)| member.control.send_frame(&frame, None));
                }
            }
        }
    }
}

fn version_mismatch(rank: u32, mut theirs: ProtocolVersion) -> LaunchError {
    theirs.mpj_version.truncate(theirs.mpj_version.floor_char_boundary(MAX_VERSION_LEN));
    let own = ProtocolVersion::own();
    LaunchError::new(format!(
        "the program of rank {rank} is built with {theirs}, but mpjrun with {own}: use the same version of mpj for both"
    ))
}

//! Handles the messages from the processes of a job.

use std::ops::Range;
use std::time::{Duration, Instant};

use mpj::boot::wire::{MAX_MESSAGE, ProtocolVersion, ToLauncher, ToProcess, VERSION, Welcome, WireExit};
use rustix::event::epoll;
use rustix::process::Signal;

use crate::job::Job;
use crate::kvs::Reply;
use crate::verdict::{FailureKind, LaunchError};

/// The maximum length in bytes of a cause that is forwarded.
const MAX_CAUSE_LEN: usize = 4096;
const _: () = assert!(2 * MAX_CAUSE_LEN < MAX_MESSAGE);

/// The time that a process has to exit after it closed its control socket: an exiting process closes the socket first.
const EXIT_AFTER_CLOSE: Duration = Duration::from_millis(200);

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
            if !self.processes[index].joined {
                why += "; does the program use another version of mpj than mpjrun?";
            }
            self.kill_for_violation(index, why);
        }
        let has_left = ranks.into_iter().all(|rank| self.kvs.exit_of(rank) == Some(&WireExit::Left));
        let member = &mut self.processes[index];
        if member.control.is_closed() {
            let _ = epoll::delete(&self.epoll, &member.control);
            if is_valid && member.joined && !has_left && member.status.is_none() {
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
        match message {
            ToLauncher::Put { rank, .. }
            | ToLauncher::Exited { rank, .. }
            | ToLauncher::FailedDueTo { rank, .. }
            | ToLauncher::Abort { rank, .. }
            | ToLauncher::BlockedReport { rank, .. }
            | ToLauncher::Stats { rank, .. }
                if !own.contains(&rank) =>
            {
                return Err(format!("it sent a message for rank {rank}, which it does not host"));
            }
            ToLauncher::Hello(_) if self.processes[index].joined => {
                return Err("it sent a second hello".into());
            }
            ToLauncher::Hello(theirs) if theirs.version != VERSION => {
                self.stop_job(version_mismatch(own.start, theirs))
            }
            ToLauncher::Hello(_) => self.welcome(index, own),
            _ if !self.processes[index].joined => return Err("it sent a message before hello".into()),
            ToLauncher::Exited { rank, exit: WireExit::Died(cause) } => {
                self.reports.queue_own_report(
                    index,
                    rank..rank + 1,
                    FailureKind::Reported(truncate_cause(cause)),
                );
            }
            ToLauncher::Exited { rank, exit } => self.record_exit(rank, exit),
            ToLauncher::QueryExits => self.orderly_exits.add_query(index, Instant::now()),
            ToLauncher::PeerLost { rank, .. } if own.contains(&rank) || rank >= self.spec.size => {
                return Err(format!(
                    "it reported the loss of rank {rank}, which it hosts itself or which does not exist"
                ));
            }
            ToLauncher::PeerLost { rank, cause } => {
                self.reports.queue_peer_report(rank, truncate_cause(cause))
            }
            ToLauncher::FailedDueTo { cause_rank, .. } if cause_rank >= self.spec.size => {
                return Err(format!("it named rank {cause_rank} as cause, which does not exist"));
            }
            ToLauncher::FailedDueTo { rank, cause_rank } => self.reports.failed_due_to(rank, cause_rank),
            ToLauncher::Abort { rank, code, reason } => {
                self.reports.queue_own_report(
                    index,
                    rank..rank + 1,
                    FailureKind::Abort(code, truncate_cause(reason)),
                );
            }
            // The reply to a `Get` contains the value, and must not exceed the limit of a frame.
            ToLauncher::Put { value, .. } if value.len() > MAX_MESSAGE - 64 => {
                return Err(format!("it put a value of {} bytes, which is too long", value.len()));
            }
            ToLauncher::BlockedReport { rank, waits } => {
                if let Some(report) = &mut self.hang_report {
                    report.record_blocked(rank, waits);
                }
            }
            ToLauncher::Stats { rank, stats } => drop(self.stats.insert(rank, stats)),
            request => {
                let replies = self.kvs.request(index, request);
                self.send_replies(replies);
            }
        }
        Ok(())
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
        for rank in self.kvs.dead().iter().copied().filter(|rank| !own.contains(rank)) {
            if let Some(end) = self.kvs.exit_of(rank) {
                control.send(&ToProcess::Exited { rank, exit: end.clone() }, None);
            }
        }
        self.on_join(index);
    }

    pub(crate) fn send_replies(&mut self, replies: Vec<Reply>) {
        for Reply { to, message } in replies {
            self.processes[to].control.send(&message, None);
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

fn truncate_cause(mut cause: String) -> String {
    cause.truncate(cause.floor_char_boundary(MAX_CAUSE_LEN));
    cause
}

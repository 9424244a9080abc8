//! Handles the messages from the processes of a job.

use std::ops::Range;
use std::time::{Duration, Instant};

use mpj::boot::wire::{MAX_MESSAGE, ProtocolVersion, ToLauncher, ToProcess, VERSION, Welcome, WireExit};
use rustix::event::epoll;
use rustix::process::Signal;

use crate::job::Job;
use crate::kvs::Reply;
use crate::verdict::{FailureKind, LaunchError};

/// Maximum length in bytes of a cause that is passed on.
const CAUSE: usize = 4096;
const _: () = assert!(2 * CAUSE < MAX_MESSAGE);

/// How long a process may take to exit after its control socket was closed. When a process exits, the system closes the
/// socket first.
const CUT: Duration = Duration::from_millis(200);

/// Maximum length in bytes of a version name in a message.
const VERSION_NAME: usize = 40;

impl Job<'_> {
    /// Reads and handles the messages of a process.
    pub(crate) fn read_messages(&mut self, index: usize) {
        let ranks = self.processes[index].process.ranks.clone();
        let mut obeyed = self.processes[index].control.receive();
        while let Some(message) = self.processes[index].control.next() {
            if let Err(why) = self.handle_message(index, &ranks, message) {
                obeyed = Err(why);
                break;
            }
        }
        let obeyed = obeyed.and_then(|()| self.processes[index].control.check_backlog());
        let is_whole = obeyed.is_ok();
        if let Err(mut why) = obeyed {
            if !self.processes[index].joined {
                why += "; is the program built with another version of mpj than mpjrun?";
            }
            self.break_off(index, why);
        }
        let has_left = ranks.into_iter().all(|rank| self.board.end(rank) == Some(&WireExit::Left));
        let member = &mut self.processes[index];
        if member.control.is_closed() {
            // An error means that the socket was already removed.
            let _ = epoll::delete(&self.epoll, &member.control);
            if is_whole && member.joined && !has_left && member.status.is_none() {
                let at = member.control.torn().unwrap_or_else(|| "before its ranks had left the job".into());
                member.cut = Some((Instant::now() + CUT, format!("it closed it {at}")));
            }
        }
    }

    /// Kills a process that violates the protocol.
    fn break_off(&mut self, index: usize, why: String) {
        let member = &mut self.processes[index];
        member.control.close();
        member.process.signal(Signal::KILL);
        self.claims.own(index, member.process.ranks.clone(), FailureKind::ProtocolError(why));
    }

    /// Kills the processes that have closed their control sockets and did not exit in time.
    pub(crate) fn check_cut(&mut self) {
        let now = Instant::now();
        for index in 0..self.processes.len() {
            let member = &mut self.processes[index];
            let cut = member.cut.take_if(|(until, _)| *until <= now || member.status.is_some());
            if let Some((_, why)) = cut.filter(|_| member.status.is_none()) {
                self.break_off(index, why);
            }
        }
    }

    /// Handles a message. Deaths are only queued, and processed later.
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
                return Err(format!("it spoke for rank {rank}"));
            }
            ToLauncher::Hello(_) if self.processes[index].joined => return Err("it joined twice".into()),
            ToLauncher::Hello(speaker) if speaker.version != VERSION => {
                self.stop_job(version_mismatch(own.start, speaker))
            }
            ToLauncher::Hello(_) => self.welcome(index, own),
            _ if !self.processes[index].joined => return Err("it spoke before it joined".into()),
            ToLauncher::Exited { rank, exit: WireExit::Died(cause) } => {
                self.claims.own(index, rank..rank + 1, FailureKind::Reported(truncate_cause(cause)));
            }
            ToLauncher::Exited { rank, exit } => self.record_exit(rank, exit),
            ToLauncher::QueryExits => self.ends.ask(index, Instant::now()),
            ToLauncher::PeerLost { rank, .. } if own.contains(&rank) || rank >= self.spec.size => {
                return Err(format!("it lost rank {rank}"));
            }
            ToLauncher::PeerLost { rank, cause } => self.claims.reported_by_peer(rank, truncate_cause(cause)),
            ToLauncher::FailedDueTo { cause_rank, .. } if cause_rank >= self.spec.size => {
                return Err(format!("it was told of rank {cause_rank}"));
            }
            ToLauncher::FailedDueTo { rank, cause_rank } => self.claims.failed_due_to(rank, cause_rank),
            ToLauncher::Abort { rank, code, reason } => {
                self.claims.own(index, rank..rank + 1, FailureKind::Abort(code, truncate_cause(reason)));
            }
            // The reply to a `Get`, a frame with the value, must also stay below the limit.
            ToLauncher::Put { value, .. } if value.len() > MAX_MESSAGE - 64 => {
                return Err(format!("it made {} bytes known under one key", value.len()));
            }
            ToLauncher::BlockedReport { rank, waits } => {
                if let Some(hang) = &mut self.hang {
                    hang.record_blocked(rank, waits);
                }
            }
            ToLauncher::Stats { rank, stats } => drop(self.stats.insert(rank, stats)),
            request => {
                let answers = self.board.request(index, request);
                self.send_replies(answers);
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
        for rank in self.board.dead().iter().copied().filter(|rank| !own.contains(rank)) {
            if let Some(end) = self.board.end(rank) {
                control.send(&ToProcess::Exited { rank, exit: end.clone() }, None);
            }
        }
        self.on_join(index);
    }

    pub(crate) fn send_replies(&mut self, answers: Vec<Reply>) {
        for Reply { to, message } in answers {
            self.processes[to].control.send(&message, None);
        }
    }
}

/// Returns the error for a program that is built with another version.
fn version_mismatch(rank: u32, mut speaker: ProtocolVersion) -> LaunchError {
    speaker.mpj_version.truncate(speaker.mpj_version.floor_char_boundary(VERSION_NAME));
    let own = ProtocolVersion::own();
    LaunchError::new(format!(
        "the program of rank {rank} is built with {speaker}, and mpjrun with {own}: use a program and an mpjrun of one \
         version"
    ))
}

/// Cuts a cause to the length that can be sent to all processes.
fn truncate_cause(mut cause: String) -> String {
    cause.truncate(cause.floor_char_boundary(CAUSE));
    cause
}

//! What the processes of a job say, how they end, and what that means for the others.

use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use mpj::boot::wire::{Ending, ToLauncher, ToProcess, Welcome};
use mpj_devices::{Segment, config};
use rustix::event::epoll;
use rustix::process::Signal;

use crate::board::Answer;
use crate::job::{Job, Member, Phase};
use crate::report::{Failure, How, Refused};
use crate::spawn::Status;

impl Job<'_> {
    /// Takes what a process said.
    pub(crate) fn hear(&mut self, index: usize) {
        let ranks = self.members[index].process.ranks.clone();
        let mut obeyed = self.members[index].control.receive();
        while let Some(message) = self.members[index].control.next() {
            if let Err(why) = self.obey(index, &ranks, message) {
                obeyed = Err(why);
                break;
            }
        }
        if let Err(why) = obeyed {
            self.members[index].control.close();
            self.members[index].process.signal(Signal::KILL);
            self.fail(index, ranks, How::Broken(why));
        }
        let member = &self.members[index];
        if member.control.is_closed() {
            // It may have been taken out already.
            let _ = epoll::delete(&self.epoll, &member.control);
        }
    }

    fn obey(&mut self, index: usize, own: &Range<u32>, message: ToLauncher) -> Result<(), String> {
        match message {
            ToLauncher::Put { rank, .. }
            | ToLauncher::Ended { rank, .. }
            | ToLauncher::Abort { rank, .. }
                if !own.contains(&rank) =>
            {
                return Err(format!("it spoke for rank {rank}"));
            }
            ToLauncher::Hello if self.members[index].joined => return Err("it joined twice".into()),
            ToLauncher::Hello => self.welcome(index, own),
            ToLauncher::Ended { rank, end: Ending::Died(cause) } => {
                if self.failures.is_empty() {
                    // Whoever died silently before this one spoke is the cause.
                    (0..self.members.len())
                        .filter(|other| *other != index)
                        .for_each(|other| self.bury(other));
                }
                self.fail(index, rank..rank + 1, How::Said(cause));
            }
            ToLauncher::Ended { rank, end } => self.end(rank, end),
            ToLauncher::Lost { rank, cause } => {
                let lost = self.members.iter().position(|member| member.process.ranks.contains(&rank));
                self.lose(lost.ok_or_else(|| format!("it lost rank {rank}"))?, rank, cause);
            }
            ToLauncher::Abort { rank, code, why } => {
                self.fail(index, rank..rank + 1, How::Abort(code, why));
                self.hurry();
            }
            request => {
                let answers = self.board.request(index, request);
                self.answer(answers);
            }
        }
        Ok(())
    }

    /// Takes note that a rank is dead to another one; its process ends, or has ended just now.
    fn lose(&mut self, index: usize, rank: u32, cause: String) {
        // What it said itself comes first: it may have left in good order.
        self.hear(index);
        self.bury(index);
        if self.members[index].status.is_none()
            && !matches!(self.board.end(rank), Some(Ending::Left | Ending::Died(_)))
        {
            self.end(rank, Ending::Died(cause.clone()));
            self.fail(index, rank..rank + 1, How::Lost(cause));
        }
    }

    fn welcome(&mut self, index: usize, own: &Range<u32>) {
        if let Err(why) = self.share_memory() {
            return self.stop(why);
        }
        let plan = self.plan;
        let welcome = Welcome {
            job: self.identity.0,
            secret: self.identity.1,
            size: plan.size,
            first: own.start,
            here: own.len() as u32,
            local: plan.size,
            devices: plan.devices.clone(),
            segment: self.segment.is_some(),
        };
        let control = &mut self.members[index].control;
        control.send(&ToProcess::Welcome(welcome), self.segment.clone());
        for rank in (0..plan.size).filter(|rank| !own.contains(rank)) {
            if let Some(end) = self.board.end(rank) {
                control.send(&ToProcess::Ended { rank, end: end.clone() }, None);
            }
        }
        self.members[index].joined = true;
    }

    /// Makes the memory of the job when its first process joins: programs that never do cost nothing.
    fn share_memory(&mut self) -> Result<(), Refused> {
        if self.segment.is_some() || !self.plan.segment() {
            return Ok(());
        }
        let fragments = self.plan.config.get(&config::SHM_FRAGMENTS) as u32;
        let needed = Segment::needed(self.plan.size, fragments);
        let refused = |e: &dyn std::fmt::Display| {
            Refused::new(format!(
                "no {} MiB of memory for {} ranks to share: {e}; free some, set MPJ_SHM_FRAGMENTS lower, or use \
                 another device with --dev",
                needed >> 20,
                self.plan.size
            ))
        };
        // Memory that is not there would be found out by whoever the kernel kills for it.
        if let Some(available) = available().filter(|available| *available < needed as u64) {
            return Err(refused(&format_args!("{} MiB are available", available >> 20)));
        }
        let segment = Segment::create(self.plan.size, fragments).map_err(|e| refused(&e))?;
        let fd = segment.as_fd().try_clone_to_owned().map_err(|e| refused(&e))?;
        self.segment = Some(Rc::new(fd));
        Ok(())
    }

    /// Takes note of a process's end, if it has ended.
    pub(crate) fn bury(&mut self, index: usize) {
        if self.members[index].status.is_some() {
            return;
        }
        let Some(status) = self.members[index].process.status() else { return };
        self.members[index].status = Some(status);
        // All it ever said is there.
        self.hear(index);
        let Member { process, control, joined, .. } = &mut self.members[index];
        let (ranks, joined) = (process.ranks.clone(), *joined);
        // Either may be out already.
        let _ = epoll::delete(&self.epoll, process.pidfd());
        let _ = epoll::delete(&self.epoll, &*control);
        control.close();
        let left = ranks.clone().all(|rank| self.board.end(rank) == Some(&Ending::Left));
        if status == Status::Code(0) && !joined {
            ranks.for_each(|rank| self.end(rank, Ending::Left));
        } else if status != Status::Code(0) || !left {
            let when = match (joined, left) {
                (false, _) => "before it joined the job",
                (true, false) => "before it had left the job",
                (true, true) => "after it had left the job",
            };
            self.fail(index, ranks, How::Ended(status, when));
        }
    }

    /// Takes note of a failure, unless we have brought it about or the process has failed before.
    fn fail(&mut self, process: usize, ranks: Range<u32>, how: How) {
        let text = how.text();
        let ours = matches!(self.phase, Phase::Asked(_) | Phase::Killed) || self.stopped.is_some();
        match self.failures.iter_mut().find(|failure| failure.process == process) {
            _ if ours => {}
            // Now it is known what the others had noticed.
            Some(earlier) if matches!(earlier.how, How::Lost(_)) => {
                (earlier.how, earlier.ranks) = (how, ranks.clone());
            }
            Some(_) => {}
            None => {
                let pid = self.members[process].process.pid();
                self.failures.push(Failure { process, pid, ranks: ranks.clone(), how, at: Instant::now() });
                if !self.plan.go_on {
                    self.hurry();
                }
            }
        }
        ranks.for_each(|rank| self.end(rank, Ending::Died(text.clone())));
    }

    /// Tells everybody of a rank's end.
    fn end(&mut self, rank: u32, end: Ending) {
        let Some(answers) = self.board.ended(rank, &end) else { return };
        self.answer(answers);
        let news = ToProcess::Ended { rank, end };
        let others = self.members.iter_mut().filter(|m| m.joined && !m.process.ranks.contains(&rank));
        others.for_each(|member| member.control.send(&news, None));
    }

    fn answer(&mut self, answers: Vec<Answer>) {
        for Answer { to, message, fd } in answers {
            self.members[to].control.send(&message, fd);
        }
    }
}

/// Returns the bytes of memory that can be had without pushing others out.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

//! What the processes of a job say.

use std::ops::Range;
use std::time::{Duration, Instant};

use mpj::boot::wire::{Ending, LIMIT, Speaker, ToLauncher, ToProcess, VERSION, Welcome};
use rustix::event::epoll;
use rustix::process::Signal;

use crate::board::Answer;
use crate::job::Job;
use crate::report::{How, Refused};

/// The longest cause that is passed on, in bytes.
const CAUSE: usize = 4096;
const _: () = assert!(2 * CAUSE < LIMIT);

/// How long a process may take to end that has closed its control socket: the system closes it first.
const CUT: Duration = Duration::from_millis(200);

/// The longest name of a version that is repeated, in bytes.
const VERSION_NAME: usize = 40;

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
        let obeyed = obeyed.and_then(|()| self.members[index].control.is_read());
        let is_whole = obeyed.is_ok();
        if let Err(mut why) = obeyed {
            if !self.members[index].joined {
                why += "; is the program built with another version of mpj than mpjrun?";
            }
            self.break_off(index, why);
        }
        let has_left = ranks.into_iter().all(|rank| self.board.end(rank) == Some(&Ending::Left));
        let member = &mut self.members[index];
        if member.control.is_closed() {
            // An error says that the socket was not watched any more.
            let _ = epoll::delete(&self.epoll, &member.control);
            if is_whole && member.joined && !has_left && member.status.is_none() {
                let at = member.control.torn().unwrap_or_else(|| "before its ranks had left the job".into());
                member.cut = Some((Instant::now() + CUT, format!("it closed it {at}")));
            }
        }
    }

    /// Ends a process that does not keep to the protocol.
    fn break_off(&mut self, index: usize, why: String) {
        let member = &mut self.members[index];
        member.control.close();
        member.process.signal(Signal::KILL);
        self.claims.own(index, member.process.ranks.clone(), How::Broken(why));
    }

    /// Ends the processes that have closed their control sockets and go on.
    pub(crate) fn check_cut(&mut self) {
        let now = Instant::now();
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            let cut = member.cut.take_if(|(until, _)| *until <= now || member.status.is_some());
            if let Some((_, why)) = cut.filter(|_| member.status.is_none()) {
                self.break_off(index, why);
            }
        }
    }

    /// Does what a message asks for; deaths are noted only, and weighed later.
    fn obey(&mut self, index: usize, own: &Range<u32>, message: ToLauncher) -> Result<(), String> {
        match message {
            ToLauncher::Put { rank, .. }
            | ToLauncher::Ended { rank, .. }
            | ToLauncher::Told { rank, .. }
            | ToLauncher::Abort { rank, .. }
            | ToLauncher::Waits { rank, .. }
            | ToLauncher::Stats { rank, .. }
                if !own.contains(&rank) =>
            {
                return Err(format!("it spoke for rank {rank}"));
            }
            ToLauncher::Hello(_) if self.members[index].joined => return Err("it joined twice".into()),
            ToLauncher::Hello(speaker) if speaker.version != VERSION => {
                self.stop(strange(own.start, speaker))
            }
            ToLauncher::Hello(_) => self.welcome(index, own),
            _ if !self.members[index].joined => return Err("it spoke before it joined".into()),
            ToLauncher::Ended { rank, end: Ending::Died(cause) } => {
                self.claims.own(index, rank..rank + 1, How::Said(short(cause)));
            }
            ToLauncher::Ended { rank, end } => self.end(rank, end),
            ToLauncher::Ends => self.ends.ask(index, Instant::now()),
            ToLauncher::Lost { rank, .. } if own.contains(&rank) || rank >= self.spec.size => {
                return Err(format!("it lost rank {rank}"));
            }
            ToLauncher::Lost { rank, cause } => self.claims.noticed(rank, short(cause)),
            ToLauncher::Told { first, .. } if first >= self.spec.size => {
                return Err(format!("it was told of rank {first}"));
            }
            ToLauncher::Told { rank, first } => self.claims.told(rank, first),
            ToLauncher::Abort { rank, code, why } => {
                self.claims.own(index, rank..rank + 1, How::Abort(code, short(why)));
            }
            // The frame that answers a `Get` with the value must not pass the limit, either.
            ToLauncher::Put { value, .. } if value.len() > LIMIT - 64 => {
                return Err(format!("it made {} bytes known under one key", value.len()));
            }
            ToLauncher::Waits { rank, waits } => {
                if let Some(hang) = &mut self.hang {
                    hang.hear(rank, waits);
                }
            }
            ToLauncher::Stats { rank, stats } => drop(self.stats.insert(rank, stats)),
            request => {
                let answers = self.board.request(index, request);
                self.answer(answers);
            }
        }
        Ok(())
    }

    fn welcome(&mut self, index: usize, own: &Range<u32>) {
        if let Err(why) = self.share_memory() {
            return self.stop(why);
        }
        let spec = self.spec;
        let host = spec.placement.host_of(own.start);
        let segment = self.segments.get(host.0 as usize).cloned().flatten();
        let welcome = Welcome {
            job: self.identity.0,
            secret: self.identity.1,
            hosts: spec.placement.hosts.runs().map(|(host, ranks)| (host.0, ranks.len() as u32)).collect(),
            first: own.start,
            here: own.len() as u32,
            devices: spec.devices.clone(),
            segment: segment.is_some(),
        };
        let control = &mut self.members[index].control;
        control.send(&ToProcess::Welcome(welcome), segment);
        for rank in self.board.dead().iter().copied().filter(|rank| !own.contains(rank)) {
            if let Some(end) = self.board.end(rank) {
                control.send(&ToProcess::Ended { rank, end: end.clone() }, None);
            }
        }
        self.joins(index);
    }

    pub(crate) fn answer(&mut self, answers: Vec<Answer>) {
        for Answer { to, message } in answers {
            self.members[to].control.send(&message, None);
        }
    }
}

/// Refuses a program of another version.
fn strange(rank: u32, mut speaker: Speaker) -> Refused {
    speaker.of.truncate(speaker.of.floor_char_boundary(VERSION_NAME));
    let own = Speaker::own();
    Refused::new(format!(
        "the program of rank {rank} is built with {speaker}, and mpjrun with {own}: use a program and an mpjrun of one \
         version"
    ))
}

/// Cuts a cause to what everybody can be told.
fn short(mut cause: String) -> String {
    cause.truncate(cause.floor_char_boundary(CAUSE));
    cause
}

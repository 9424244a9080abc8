//! A simulated process of one rank.

use std::rc::Rc;

use crate::boot::wire::{ToLauncher, ToProcess, WireExit};

/// The number of bytes of the cards of a rank: the names and addresses of its devices.
const CARDS_LEN: usize = 300;

/// The effect of the first death on the other processes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Failure {
    /// The other processes continue.
    #[default]
    Continue,
    /// The other processes fail, all with the same error.
    SameError,
    /// The other processes fail, each with an error of its own.
    OwnError,
}

#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) rank: u32,
    /// The agent has sent the welcome.
    pub(super) was_welcomed: bool,
    /// The process has been killed, has failed or has left.
    pub(super) has_ended: bool,
    pub(super) has_joined: bool,
    pub(super) failure: Failure,
    /// The number of deaths that the process has learned.
    pub(super) learned: usize,
}

/// The reaction of a process to a message.
pub(super) struct Reaction {
    pub(super) messages: Vec<Rc<ToLauncher>>,
    /// The connection ends after the messages.
    pub(super) closes: bool,
}

impl Process {
    /// Handles a message of the agent. Appends the deaths that are new to the process to `deaths`.
    pub(super) fn take(&mut self, message: &ToProcess, deaths: &mut Vec<u32>) -> Reaction {
        let mut messages = Vec::new();
        match message {
            ToProcess::Welcome(_) => {
                self.has_joined = true;
                let (rank, key, value) = (self.rank, "cards".into(), vec![7; CARDS_LEN]);
                messages.push(Rc::new(ToLauncher::Put { rank, key, value }));
            }
            ToProcess::Died(groups) => {
                deaths.extend(groups.iter().flat_map(|group| group.ranks(u32::MAX)));
                if self.learned == 0 && self.failure != Failure::Continue {
                    return self.fail(groups[0].runs[0].0, &groups[0].cause);
                }
            }
            _ => {}
        }
        Reaction { messages, closes: false }
    }

    fn fail(&mut self, dead: u32, cause: &str) -> Reaction {
        self.has_ended = true;
        let rank = self.rank;
        let of_rank =
            if self.failure == Failure::OwnError { format!("rank {rank}: ") } else { String::new() };
        let error = format!("returned an error: {of_rank}allreduce: rank {dead} has failed: {cause}");
        let exit = WireExit::Died(error);
        let messages = vec![
            Rc::new(ToLauncher::FailedDueTo { rank, cause_rank: dead }),
            Rc::new(ToLauncher::Exited { rank, exit }),
        ];
        Reaction { messages, closes: true }
    }

    /// Leaves the job in order.
    pub(super) fn leave(&mut self) -> Reaction {
        self.has_ended = true;
        let exit = |exit| Rc::new(ToLauncher::Exited { rank: self.rank, exit });
        Reaction { messages: vec![exit(WireExit::Closing), exit(WireExit::Left)], closes: true }
    }
}

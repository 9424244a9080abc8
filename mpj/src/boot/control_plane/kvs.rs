//! The key-value store through which ranks exchange their business cards.

use std::collections::{BTreeMap, HashMap};

use mpj_devices::Exit;

use super::{Outgoing, To};
use crate::boot::wire::{ToLauncher, ToProcess};

/// The index of a process, and the `id` of its request.
type Requester = (usize, u64);

/// The published keys, the pending gets and fences, and the exits of the ranks.
#[derive(Debug)]
pub(super) struct KvsServer {
    /// By rank: its latest exit report; `None` before the first.
    exits: Vec<Option<Exit>>,
    values: HashMap<(u32, String), Vec<u8>>,
    pending_gets: BTreeMap<(u32, String), Vec<Requester>>,
    fence: Vec<Requester>,
    /// The error of every later fence, set when a rank has left or died.
    fence_error: Option<String>,
}

impl KvsServer {
    pub(super) fn new(size: u32) -> KvsServer {
        let exits = (0..size).map(|_| None).collect();
        KvsServer {
            exits,
            values: HashMap::new(),
            pending_gets: BTreeMap::new(),
            fence: Vec::new(),
            fence_error: None,
        }
    }

    fn size(&self) -> u32 {
        self.exits.len() as u32
    }

    /// Handles a request of process `from`. Returns the replies that can be sent now, to any process.
    pub(super) fn request(&mut self, from: usize, request: ToLauncher) -> Vec<Outgoing> {
        let reply_to_sender = |message| vec![Outgoing { to: To::Process(from), message }];
        match request {
            ToLauncher::Put { rank, key, value } => {
                let key = (rank, key);
                let waiting = self.pending_gets.remove(&key).unwrap_or_default();
                self.values.insert(key, value.clone());
                waiting.into_iter().map(|get| reply(get, Ok(value.clone()))).collect()
            }
            ToLauncher::Get { id, rank, key } => {
                let key = (rank, key);
                let found = match (self.values.get(&key), self.exits.get(rank as usize)) {
                    (Some(value), _) => Ok(value.clone()),
                    (None, None) => {
                        Err(format!("rank {rank} does not exist: the job has {} ranks", self.size()))
                    }
                    (None, Some(Some(end))) => Err(exit_reason(rank, end)),
                    (None, Some(None)) => {
                        self.pending_gets.entry(key).or_default().push((from, id));
                        return Vec::new();
                    }
                };
                vec![reply((from, id), found)]
            }
            ToLauncher::Fence { id } => {
                if let Some(why) = &self.fence_error {
                    return reply_to_sender(ToProcess::FenceDone { id, result: Err(why.clone()) });
                }
                self.fence.push((from, id));
                if self.fence.len() < self.exits.len() {
                    return Vec::new();
                }
                self.release_fence(Ok(()))
            }
            ToLauncher::Hello(_)
            | ToLauncher::Exited { .. }
            | ToLauncher::QueryExits
            | ToLauncher::PeerLost { .. }
            | ToLauncher::FailedDueTo { .. }
            | ToLauncher::Abort { .. }
            | ToLauncher::Stats { .. }
            | ToLauncher::BlockedReport { .. } => Vec::new(),
        }
    }

    fn release_fence(&mut self, result: Result<(), String>) -> Vec<Outgoing> {
        let reply = |(to, id)| {
            let message = ToProcess::FenceDone { id, result: result.clone() };
            Outgoing { to: To::Process(to), message }
        };
        self.fence.drain(..).map(reply).collect()
    }

    pub(super) fn exit_of(&self, rank: u32) -> Option<&Exit> {
        self.exits.get(rank as usize)?.as_ref()
    }

    /// Records the exit of a rank. Returns the error replies to the requests that this exit fails, or `None` if the
    /// exit adds nothing to an earlier one.
    pub(super) fn record_exit(&mut self, rank: u32, end: &Exit) -> Option<Vec<Outgoing>> {
        let known = self.exits.get_mut(rank as usize)?;
        match (&*known, end) {
            (None, _)
            | (Some(Exit::ClosingExcept(_)), Exit::Closing | Exit::Left | Exit::Died(_))
            | (Some(Exit::Closing), Exit::Left | Exit::Died(_)) => *known = Some(end.clone()),
            _ => return None,
        }
        if matches!(end, Exit::ClosingExcept(_) | Exit::Closing) {
            return Some(Vec::new());
        }
        let mut replies = Vec::new();
        let of_rank = self.pending_gets.range((rank, String::new())..).map(|(key, _)| key);
        let failing: Vec<_> = of_rank.take_while(|(of, _)| *of == rank).cloned().collect();
        for key in failing {
            let waiting = self.pending_gets.remove(&key).unwrap_or_default();
            replies.extend(waiting.into_iter().map(|waiting| reply(waiting, Err(exit_reason(rank, end)))));
        }
        let why = exit_reason(rank, end);
        replies.extend(self.release_fence(Err(why.clone())));
        self.fence_error.get_or_insert(why);
        Some(replies)
    }
}

fn reply((to, id): Requester, value: Result<Vec<u8>, String>) -> Outgoing {
    Outgoing { to: To::Process(to), message: ToProcess::Value { id, value } }
}

fn exit_reason(rank: u32, end: &Exit) -> String {
    match end {
        Exit::Died(cause) => format!("rank {rank} {cause}"),
        Exit::ClosingExcept(_) | Exit::Closing | Exit::Left => {
            format!("rank {rank} has left the job")
        }
    }
}

//! What ranks make known to each other before they can send messages.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use mpj::boot::wire::{Ending, ToLauncher, ToProcess};
use rustix::event::EventfdFlags;

/// A message to a process, by its index, and a descriptor to go with it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) to: usize,
    pub(crate) message: ToProcess,
    pub(crate) fd: Option<Rc<OwnedFd>>,
}

/// A request that waits: the process and the request's number.
type Waiting = (usize, u64);

/// A request for a value, and whether the rank's doorbell shall come along.
type Get = (Waiting, bool);

/// Keys, doorbells, fences, ends.
#[derive(Debug)]
pub(crate) struct Board {
    /// How each rank's part ended, once it has.
    ended: Vec<Option<Ending>>,
    /// The ranks that have died.
    dead: Vec<u32>,
    values: HashMap<(u32, String), Vec<u8>>,
    gets: HashMap<(u32, String), Vec<Get>>,
    bells: HashMap<u32, Rc<OwnedFd>>,
    fence: Vec<Waiting>,
    /// Why no fence can be passed any more.
    blocked: Option<String>,
}

impl Board {
    pub(crate) fn new(size: u32) -> Board {
        let ended = (0..size).map(|_| None).collect();
        Board {
            ended,
            dead: Vec::new(),
            values: HashMap::new(),
            gets: HashMap::new(),
            bells: HashMap::new(),
            fence: Vec::new(),
            blocked: None,
        }
    }

    fn size(&self) -> u32 {
        self.ended.len() as u32
    }

    /// Answers a request of process `from`, now or later.
    pub(crate) fn request(&mut self, from: usize, request: ToLauncher) -> Vec<Answer> {
        let answer = |message, fd| vec![Answer { to: from, message, fd }];
        match request {
            ToLauncher::Put { rank, key, value } => {
                let key = (rank, key);
                let waiting = self.gets.remove(&key).unwrap_or_default();
                self.values.insert(key, value.clone());
                waiting.into_iter().map(|get| self.value(rank, value.clone(), get)).collect()
            }
            ToLauncher::Get { id, rank, key, bell } => {
                let key = (rank, key);
                let why = match (self.values.get(&key), self.ended.get(rank as usize)) {
                    (Some(value), _) => {
                        let value = value.clone();
                        return vec![self.value(rank, value, ((from, id), bell))];
                    }
                    (None, None) => format!("there is no rank {rank} among {}", self.size()),
                    (None, Some(Some(end))) => never(rank, end),
                    (None, Some(None)) => {
                        self.gets.entry(key).or_default().push(((from, id), bell));
                        return Vec::new();
                    }
                };
                vec![no_value((from, id), why)]
            }
            ToLauncher::Bell { id, rank } => {
                let bell = self.bell(rank);
                let given = bell.as_ref().map(|_| ()).map_err(Clone::clone);
                answer(ToProcess::Bell { id, given }, bell.ok())
            }
            ToLauncher::Fence { id } => {
                if let Some(why) = &self.blocked {
                    return answer(ToProcess::Fenced { id, met: Err(why.clone()) }, None);
                }
                self.fence.push((from, id));
                if self.fence.len() < self.ended.len() {
                    return Vec::new();
                }
                self.open_fence(Ok(()))
            }
            ToLauncher::Hello(_)
            | ToLauncher::Ended { .. }
            | ToLauncher::Ends
            | ToLauncher::Lost { .. }
            | ToLauncher::Abort { .. }
            | ToLauncher::Waits { .. } => Vec::new(),
        }
    }

    fn value(&mut self, rank: u32, value: Vec<u8>, ((to, id), bell): Get) -> Answer {
        let bell = bell.then(|| self.bell(rank));
        let given = bell.as_ref().map(|bell| bell.as_ref().map(|_| ()).map_err(Clone::clone));
        let message = ToProcess::Value { id, value: Ok(value), bell: given };
        Answer { to, message, fd: bell.and_then(Result::ok) }
    }

    fn open_fence(&mut self, met: Result<(), String>) -> Vec<Answer> {
        let reply = |(to, id)| Answer { to, message: ToProcess::Fenced { id, met: met.clone() }, fd: None };
        self.fence.drain(..).map(reply).collect()
    }

    fn bell(&mut self, rank: u32) -> Result<Rc<OwnedFd>, String> {
        if rank >= self.size() {
            return Err(format!("there is no rank {rank} among {}", self.size()));
        }
        if let Some(bell) = self.bells.get(&rank) {
            return Ok(Rc::clone(bell));
        }
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Rc::new(bell.map_err(|e| format!("no doorbell for rank {rank}: {e}"))?);
        self.bells.insert(rank, Rc::clone(&bell));
        Ok(bell)
    }

    /// Returns how a rank's part ended.
    pub(crate) fn end(&self, rank: u32) -> Option<&Ending> {
        self.ended.get(rank as usize)?.as_ref()
    }

    /// Returns the ranks that have died.
    pub(crate) fn dead(&self) -> &[u32] {
        &self.dead
    }

    /// Takes note of a rank's end; `None` if it was over already, else the answers that wait for that rank no more.
    pub(crate) fn ended(&mut self, rank: u32, end: &Ending) -> Option<Vec<Answer>> {
        let known = self.ended.get_mut(rank as usize)?;
        match (&*known, end) {
            (None, _)
            | (Some(Ending::Finishing(_)), Ending::Closing | Ending::Left | Ending::Died(_))
            | (Some(Ending::Closing), Ending::Left | Ending::Died(_)) => *known = Some(end.clone()),
            _ => return None,
        }
        if matches!(end, Ending::Finishing(_) | Ending::Closing) {
            return Some(Vec::new());
        }
        if let Ending::Died(_) = end {
            self.dead.push(rank);
        }
        let mut answers = Vec::new();
        let hopeless: Vec<_> = self.gets.keys().filter(|(of, _)| *of == rank).cloned().collect();
        for key in hopeless {
            let waiting = self.gets.remove(&key).unwrap_or_default();
            answers.extend(waiting.into_iter().map(|(waiting, _)| no_value(waiting, never(rank, end))));
        }
        let why = never(rank, end);
        answers.extend(self.open_fence(Err(why.clone())));
        self.blocked.get_or_insert(why);
        Some(answers)
    }
}

fn no_value((to, id): Waiting, why: String) -> Answer {
    Answer { to, message: ToProcess::Value { id, value: Err(why), bell: None }, fd: None }
}

fn never(rank: u32, end: &Ending) -> String {
    match end {
        Ending::Died(cause) => format!("rank {rank} {cause}"),
        Ending::Finishing(_) | Ending::Closing | Ending::Left => format!("rank {rank} has left the job"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(answers: &[Answer]) -> Vec<(usize, Result<Vec<u8>, String>)> {
        let value = |answer: &Answer| match &answer.message {
            ToProcess::Value { value, .. } => (answer.to, value.clone()),
            other => panic!("{other:?}"),
        };
        answers.iter().map(value).collect()
    }

    fn get(id: u64, rank: u32) -> ToLauncher {
        ToLauncher::Get { id, rank, key: "k".into(), bell: false }
    }

    #[test]
    fn a_get_waits_for_its_put_or_the_end_of_the_rank() {
        let mut board = Board::new(3);
        assert!(board.request(0, get(1, 2)).is_empty());
        assert!(board.request(1, get(1, 2)).is_empty());
        let put = ToLauncher::Put { rank: 2, key: "k".into(), value: vec![7] };
        assert_eq!(value(&board.request(2, put)), [(0, Ok(vec![7])), (1, Ok(vec![7]))]);
        assert!(board.request(0, get(2, 1)).is_empty());
        assert!(board.ended(1, &Ending::Closing).unwrap().is_empty());
        let died = Ending::Died("was killed".into());
        assert_eq!(value(&board.ended(1, &died).unwrap()), [(0, Err("rank 1 was killed".into()))]);
        assert!(board.ended(1, &Ending::Left).is_none());
        assert_eq!(value(&board.request(2, get(9, 1))), [(2, Err("rank 1 was killed".into()))]);
        assert!(value(&board.request(2, get(9, 3)))[0].1.is_err());
    }

    #[test]
    fn a_fence_opens_for_all_or_for_none() {
        let mut board = Board::new(2);
        for round in 0..2 {
            assert!(board.request(0, ToLauncher::Fence { id: round }).is_empty());
            assert_eq!(board.request(1, ToLauncher::Fence { id: round }).len(), 2);
        }
        assert!(board.request(0, ToLauncher::Fence { id: 5 }).is_empty());
        assert_eq!(board.ended(1, &Ending::Left).unwrap().len(), 1);
        assert_eq!(board.request(0, ToLauncher::Fence { id: 6 }).len(), 1);
    }

    #[test]
    fn one_doorbell_a_rank() {
        let mut board = Board::new(2);
        let fd = |answers: Vec<Answer>| answers.into_iter().next().unwrap().fd;
        let first = fd(board.request(0, ToLauncher::Bell { id: 1, rank: 1 })).unwrap();
        let second = fd(board.request(1, ToLauncher::Bell { id: 1, rank: 1 })).unwrap();
        assert!(Rc::ptr_eq(&first, &second));
        assert!(fd(board.request(1, ToLauncher::Bell { id: 2, rank: 2 })).is_none());
        // It comes with a value, too, at once or later.
        let get = |id| ToLauncher::Get { id, rank: 1, key: "k".into(), bell: true };
        assert!(board.request(0, get(3)).is_empty());
        let put = ToLauncher::Put { rank: 1, key: "k".into(), value: vec![7] };
        for answers in [board.request(1, put), board.request(0, get(4))] {
            assert_eq!(value(&answers), [(0, Ok(vec![7]))]);
            assert!(Rc::ptr_eq(&first, &fd(answers).unwrap()));
        }
    }
}

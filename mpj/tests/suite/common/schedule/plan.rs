//! The plan of a phase: its messages, and what every thread of every rank calls, in one global order.
//!
//! # No plan deadlocks
//! All calls have a place in one global order, in which every thread makes its calls. A blocking call completes if the
//! calls before it have been made, or it completes together with the calls that follow it directly. Those are calls of
//! other threads: the other half of a message, or the other calls of an exchange around a ring. So the first incomplete
//! call of the order always completes. `phase::Pairing` chooses the sends and receives that can block, by these facts:
//!
//! * A [`Pattern`] names the receives of one thread that accept the same messages, and each message belongs to one
//!   pattern. The numbers of receives and messages of a pattern are equal.
//! * If n messages of a pattern were started, its first n receives are matched, whichever messages they get.
//! * If a pattern names a source, its messages match in order: message n gets receive n when both have started.
//! * If a pattern has any source, a message gets a receive when all receives of the pattern are posted. Before that, a
//!   later message of another rank might take the receive.

use std::collections::HashMap;

use super::calls::{Call, Path, Pattern, RecvBy, SendBy, WaitBy};
use super::random::Random;

/// A communicator: its number in the schedule, and the world ranks of its members in order.
#[derive(Clone, Debug)]
pub(super) struct CommPlan {
    pub(super) id: usize,
    pub(super) members: Vec<usize>,
}

/// A message from a thread to the thread of the same number on the same or another rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) comm: usize,
    /// The ranks in the communicator.
    pub(super) from: usize,
    pub(super) to: usize,
    /// The ranks in the world.
    pub(super) sender: usize,
    pub(super) receiver: usize,
    /// The number of the sending and of the receiving thread on their ranks.
    pub(super) lane: usize,
    pub(super) tag: i32,
    pub(super) len: usize,
    /// Whether the payload is sent as a serde value, whose message has another length.
    pub(super) is_object: bool,
}

/// Which receives a thread posts on a communicator.
#[derive(Clone, Copy, Debug)]
enum Discipline {
    Exact,
    AnySource,
    AnyTag,
    /// First receives with source and tag, then receives of any message.
    ExactThenAny,
}

/// The start of a message or of its receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
    pub(super) message: usize,
    pub(super) is_send: bool,
}

/// The number of tags of a thread's messages. The next tags are those of exchanges, and of receives without a message.
const TAGS: usize = 3;

pub(super) struct Draft<'a> {
    pub(super) random: &'a mut Random,
    /// Lengths at which a device changes its protocol, and powers of two (`protocol_limits`).
    lens: &'a [usize],
    lanes: usize,
    /// Whether there are hundreds of short messages, which often wait in long queues.
    is_crowded: bool,
    /// The communicators in use, with the only thread that uses it on each rank; `None` if all threads do.
    comms: Vec<(CommPlan, Option<usize>)>,
    pub(super) messages: Vec<Message>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(random: &'a mut Random, live: &[CommPlan], lanes: usize, lens: &'a [usize]) -> Self {
        let mut comms: Vec<CommPlan> = live.to_vec();
        random.shuffle(&mut comms);
        let is_crowded = random.percent(12);
        comms.truncate(1 + if is_crowded { 0 } else { random.below(4) });
        let owner = |random: &mut Random| (!random.percent(40)).then(|| random.below(lanes));
        let comms = comms.into_iter().map(|comm| (comm, owner(random))).collect();
        let mut draft = Draft { random, lens, lanes, is_crowded, comms, messages: Vec::new() };
        let count = 10 + draft.random.below(if is_crowded { 900 } else { 60 });
        for _ in 0..count {
            let message = draft.message();
            draft.messages.push(message);
        }
        draft
    }

    fn tag(&self, lane: usize, number: usize) -> i32 {
        (lane + self.lanes * number) as i32
    }

    fn len(&mut self) -> usize {
        match self.random.below(100) {
            _ if self.is_crowded => self.random.below(80),
            0..50 => self.random.below(200),
            50..85 => (self.random.pick(self.lens) + self.random.below(3)).saturating_sub(1),
            85..97 => self.random.below(20_000),
            _ => self.random.below(300_000),
        }
    }

    fn message(&mut self) -> Message {
        let at = self.random.below(self.comms.len());
        let (comm, owner) = self.comms[at].clone();
        let lane = owner.unwrap_or_else(|| self.random.below(self.lanes));
        let (from, to) = (self.random.below(comm.members.len()), self.random.below(comm.members.len()));
        let number = self.random.below(TAGS);
        let (tag, len) = (self.tag(lane, number), self.len());
        let (sender, receiver) = (comm.members[from], comm.members[to]);
        Message { comm: comm.id, from, to, sender, receiver, lane, tag, len, is_object: false }
    }

    /// Returns the starts of all messages and receives, in an order in which some are far from their counterpart.
    pub(super) fn order(&mut self) -> Vec<Half> {
        let spread = if self.is_crowded { 1000 } else { self.random.pick(&[1, 6, 40, 1000]) };
        let mut halves: Vec<(usize, Half)> = Vec::new();
        for message in 0..self.messages.len() {
            let mut both = [true, false];
            self.random.shuffle(&mut both);
            for is_send in both {
                let delay = if self.random.percent(50) { 0 } else { self.random.below(spread) };
                halves.push((message + delay, Half { message, is_send }));
            }
        }
        halves.sort_by_key(|(time, _)| *time);
        halves.into_iter().map(|(_, half)| half).collect()
    }

    /// Returns the pattern of every start in `order`.
    pub(super) fn patterns(&mut self, order: &[Half]) -> Vec<Pattern> {
        let mut routes: HashMap<(usize, usize, usize), Vec<usize>> = HashMap::new();
        for (at, half) in order.iter().enumerate() {
            let Message { comm, to, lane, .. } = self.messages[half.message];
            routes.entry((comm, to, lane)).or_default().push(at);
        }
        let mut routes: Vec<_> = routes.into_iter().collect();
        routes.sort_unstable_by_key(|(route, _)| *route);
        let mut patterns = vec![None; order.len()];
        for ((comm, ..), places) in routes {
            let is_shared = self.comms.iter().any(|(plan, owner)| plan.id == comm && owner.is_none());
            // A receive of any tag would also get the messages of other threads.
            let disciplines: &[Discipline] = match is_shared {
                true => &[Discipline::Exact, Discipline::AnySource],
                false => &[
                    Discipline::Exact,
                    Discipline::AnySource,
                    Discipline::AnyTag,
                    Discipline::ExactThenAny,
                    Discipline::ExactThenAny,
                ],
            };
            let discipline = self.random.pick(disciplines);
            for (at, pattern) in self.route_patterns(order, &places, discipline) {
                patterns[at] = Some(pattern);
            }
        }
        patterns.into_iter().map(|pattern| pattern.expect("every start is on a route")).collect()
    }

    fn route_patterns(&mut self, order: &[Half], places: &[usize], by: Discipline) -> Vec<(usize, Pattern)> {
        let exact = |message: &Message| Pattern {
            comm: message.comm,
            to: message.to,
            lane: message.lane,
            source: Some(message.from),
            tag: Some(message.tag),
        };
        let of = |at: usize| exact(&self.messages[order[at].message]);
        let ends = |is_send: bool| places.iter().copied().filter(move |at| order[*at].is_send == is_send);
        if !matches!(by, Discipline::ExactThenAny) {
            let widen = |pattern: Pattern| match by {
                Discipline::AnySource => Pattern { source: None, ..pattern },
                Discipline::AnyTag => Pattern { tag: None, ..pattern },
                _ => pattern,
            };
            return places.iter().map(|at| (*at, widen(of(*at)))).collect();
        }
        let mut exacts: Vec<Pattern> = ends(true).map(of).collect();
        self.random.shuffle(&mut exacts);
        exacts.truncate(self.random.below(exacts.len() + 1));
        let of = |at: usize| exact(&self.messages[order[at].message]);
        let any = |at: usize| Pattern { source: None, tag: None, ..of(at) };
        // The first messages of a source and a tag get the receives with that source and tag.
        let mut left = exacts.clone();
        let sends = ends(true).map(|at| match left.iter().position(|pattern| *pattern == of(at)) {
            Some(found) => (at, left.swap_remove(found)),
            None => (at, any(at)),
        });
        let mut patterns: Vec<(usize, Pattern)> = sends.collect();
        let mut exacts = exacts.into_iter();
        patterns.extend(ends(false).map(|at| (at, exacts.next().unwrap_or_else(|| any(at)))));
        patterns
    }

    fn path(&mut self) -> Path {
        self.random.pick(&[Path::Default, Path::Default, Path::Auto, Path::Buffered, Path::ZeroCopy])
    }

    pub(super) fn send(&mut self, op: usize, message: usize, may_block: bool) -> Call {
        let is_object = self.messages[message].is_object;
        let by = match may_block && self.random.percent(60) {
            true if is_object => SendBy::SendObject,
            false if is_object => SendBy::IsendObject,
            true => self.random.pick(SendBy::BLOCKING),
            false => self.random.pick(SendBy::STARTED),
        };
        Call::Send { op, message, by, path: self.path() }
    }

    /// `room` is the length of the buffer; `None` receives a serde value.
    pub(super) fn recv(&mut self, op: usize, pattern: Pattern, room: Option<usize>, may_block: bool) -> Call {
        let by = match may_block && self.random.percent(60) {
            true if room.is_none() => RecvBy::RecvObject,
            false if room.is_none() => RecvBy::IrecvObject,
            true => self.random.pick(RecvBy::BLOCKING),
            false => self.random.pick(RecvBy::STARTED),
        };
        Call::Recv { op, pattern, room: room.unwrap_or(0), by, path: self.path() }
    }

    pub(super) fn wait(&mut self, op: usize) -> Call {
        Call::Wait { op, by: self.random.pick(&[WaitBy::Wait, WaitBy::Test, WaitBy::Timed]) }
    }

    /// Returns an exchange around a ring of some members of a communicator that all threads use: the world rank, the
    /// thread and the call of each member.
    pub(super) fn exchange(&mut self) -> Vec<(usize, usize, Call)> {
        let shared: Vec<CommPlan> =
            self.comms.iter().filter(|(_, owner)| owner.is_none()).map(|(comm, _)| comm.clone()).collect();
        let Some(comm) = (!shared.is_empty()).then(|| shared[self.random.below(shared.len())].clone()) else {
            return Vec::new();
        };
        let mut ring: Vec<usize> = (0..comm.members.len()).collect();
        self.random.shuffle(&mut ring);
        ring.truncate(1 + self.random.below(ring.len()));
        let (lane, replaces, len) = (self.random.below(self.lanes), self.random.percent(50), self.len());
        let tag = self.tag(lane, TAGS);
        let first = self.messages.len();
        for (at, from) in ring.iter().enumerate() {
            let (from, to) = (*from, ring[(at + 1) % ring.len()]);
            let len = if replaces { len } else { self.len() };
            let (sender, receiver) = (comm.members[from], comm.members[to]);
            self.messages.push(Message {
                comm: comm.id,
                from,
                to,
                sender,
                receiver,
                lane,
                tag,
                len,
                is_object: false,
            });
        }
        let call = |at: usize| {
            let received = first + (at + ring.len() - 1) % ring.len();
            (comm.members[ring[at]], lane, Call::Exchange { send: first + at, received, replaces })
        };
        (0..ring.len()).map(call).collect()
    }

    /// Returns a call that receives nothing, of a random thread: a probe that does not wait, or a receive without a
    /// message, which is cancelled.
    pub(super) fn idle(&mut self, patterns: &[Pattern]) -> (usize, usize, Call) {
        let at = self.random.below(self.comms.len());
        let (comm, owner) = self.comms[at].clone();
        let lane = owner.unwrap_or_else(|| self.random.below(self.lanes));
        let rank = self.random.below(comm.members.len());
        let probed: Vec<Pattern> = patterns
            .iter()
            .filter(|pattern| (pattern.comm, pattern.to, pattern.lane) == (comm.id, rank, lane))
            .copied()
            .collect();
        let call = match probed.is_empty() || self.random.percent(50) {
            true => Call::CancelUnmatched { comm: comm.id, tag: self.tag(lane, TAGS + 1) },
            false => Call::Iprobe { pattern: self.random.pick(&probed) },
        };
        (comm.members[rank], lane, call)
    }

    /// For half of the calls, returns a communicator to free that only one thread of each rank uses, and that thread.
    pub(super) fn owned_comm(&mut self) -> Option<(CommPlan, usize)> {
        let owned = |(comm, owner): &(CommPlan, Option<usize>)| Some((comm.clone(), (*owner)?));
        let found = self.comms.iter().filter(|(comm, _)| comm.id != 0).find_map(owned);
        found.filter(|_| self.random.percent(50))
    }
}

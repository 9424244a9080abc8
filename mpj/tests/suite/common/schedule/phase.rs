//! A phase of a schedule: communicators that are created, and a program for every thread of every rank.

use std::collections::{HashMap, HashSet, VecDeque};

use super::calls::{Call, Pattern};
use super::comms::{Creation, grow};
use super::parts::{self, PartsPlan};
use super::plan::{CommPlan, Draft, Half, Message};
use super::random::Random;

#[derive(Debug)]
pub(super) struct Phase {
    pub(super) creations: Vec<Creation>,
    pub(super) messages: Vec<Message>,
    pub(super) partitioned: Vec<PartsPlan>,
    /// The calls by world rank and thread.
    pub(super) programs: Vec<Vec<Vec<Call>>>,
    /// How often the programs run. Persistent requests live for all rounds.
    pub(super) rounds: usize,
    /// Communicators that are dropped after the phase, or freed in its last round.
    pub(super) dropped: Vec<usize>,
}

/// Pairs each start in an order with its counterpart, and determines which calls may block.
struct Pairing {
    patterns: Vec<Pattern>,
    partner: Vec<usize>,
    last_recv: HashMap<Pattern, usize>,
    /// Whether the two ends of the message at this place are on different threads.
    is_remote: Vec<bool>,
}

impl Pairing {
    fn new(draft: &Draft<'_>, order: &[Half], patterns: Vec<Pattern>) -> Self {
        let mut waiting: HashMap<(Pattern, bool), VecDeque<usize>> = HashMap::new();
        let (mut partner, mut last_recv) = (vec![0; order.len()], HashMap::new());
        for (at, half) in order.iter().enumerate() {
            let pattern = patterns[at];
            if !half.is_send {
                last_recv.insert(pattern, at);
            }
            match waiting.get_mut(&(pattern, !half.is_send)).and_then(VecDeque::pop_front) {
                Some(other) => (partner[at], partner[other]) = (other, at),
                None => waiting.entry((pattern, half.is_send)).or_default().push_back(at),
            }
        }
        let remote = |at: usize| {
            let send = if order[at].is_send { at } else { partner[at] };
            let message = &draft.messages[order[send].message];
            message.sender != message.receiver
        };
        let is_remote = (0..order.len()).map(remote).collect();
        Pairing { patterns, partner, last_recv, is_remote }
    }

    /// Returns the place after which the start at `at` is matched, in every execution.
    fn matched_after(&self, at: usize, is_send: bool) -> usize {
        let pattern = self.patterns[at];
        match is_send && pattern.source.is_none() {
            true => self.last_recv[&pattern],
            false => self.partner[at],
        }
    }

    fn may_block(&self, at: usize, is_send: bool) -> bool {
        let after = self.matched_after(at, is_send);
        after < at || self.completes_next(at, is_send)
    }

    /// Returns whether a blocking call at `at` and the next call can complete each other.
    fn completes_next(&self, at: usize, is_send: bool) -> bool {
        self.matched_after(at, is_send) == at + 1 && self.partner[at] == at + 1 && self.is_remote[at]
    }
}

impl Phase {
    pub(super) fn new(random: &mut Random, ranks: usize, live: &mut Vec<CommPlan>, lens: &[usize]) -> Self {
        let creations = grow(random, live);
        let lanes = random.pick(&[1, 1, 2, 3]);
        let mut draft = Draft::new(random, live, lanes, lens);
        let order = draft.order();
        let patterns = draft.patterns(&order);
        let pairing = Pairing::new(&draft, &order, patterns);
        let calls = calls(&mut draft, &order, &pairing);
        let mut programs = vec![vec![Vec::new(); lanes]; ranks];
        for (rank, lane, call) in calls {
            programs[rank][lane].push(call);
        }
        let freed = draft.owned_comm();
        if let Some((comm, lane)) = &freed {
            comm.members.iter().for_each(|rank| free_after_use(&mut programs[*rank][*lane], comm.id));
        }
        let messages = draft.messages;
        let is_freed = |id: usize| freed.as_ref().is_some_and(|(comm, _)| comm.id == id);
        let usable: Vec<CommPlan> = live.iter().filter(|comm| !is_freed(comm.id)).cloned().collect();
        let partitioned = parts::plan(random, &usable);
        let leaves = |comm: &mut CommPlan| comm.id != 0 && (is_freed(comm.id) || random.percent(20));
        let dropped = live.extract_if(.., leaves).map(|comm| comm.id).collect();
        Phase { creations, messages, partitioned, programs, rounds: random.pick(&[1, 1, 2, 3]), dropped }
    }
}

/// Adds a call that frees the communicator after the last call that might use it. Waits for its requests may follow.
fn free_after_use(program: &mut Vec<Call>, comm: usize) {
    let uses = |call: &Call, messages: bool| match call {
        Call::Recv { pattern, .. } | Call::Iprobe { pattern } => pattern.comm == comm,
        Call::CancelUnmatched { comm: other, .. } => *other == comm,
        Call::Send { .. } => messages,
        _ => false,
    };
    let end = program.iter().rposition(|call| uses(call, true)).map_or(0, |last| last + 1);
    program.insert(end, Call::Free { comm });
}

/// Chooses the patterns whose messages are sent as objects. Their receives must not get other messages, so they name
/// source and tag.
fn choose_objects(draft: &mut Draft<'_>, order: &[Half], pairing: &Pairing) -> HashSet<Pattern> {
    let (mut seen, mut with_objects) = (HashSet::new(), HashSet::new());
    for pattern in &pairing.patterns {
        let is_exact = pattern.source.is_some() && pattern.tag.is_some();
        if is_exact && seen.insert(*pattern) && draft.random.percent(20) {
            with_objects.insert(*pattern);
        }
    }
    for (half, pattern) in order.iter().zip(&pairing.patterns).filter(|(half, _)| half.is_send) {
        draft.messages[half.message].is_object = with_objects.contains(pattern);
    }
    with_objects
}

/// Returns the calls of all threads, each with its rank and thread, in the global order.
fn calls(draft: &mut Draft<'_>, order: &[Half], pairing: &Pairing) -> Vec<(usize, usize, Call)> {
    let mut starts = Vec::new();
    let mut is_joined = vec![false; order.len()];
    let with_objects = choose_objects(draft, order, pairing);
    for (at, half) in order.iter().enumerate() {
        let may_block = pairing.may_block(at, half.is_send);
        let message = draft.messages[half.message];
        let (rank, call) = match half.is_send {
            true => (message.sender, draft.send(at, half.message, may_block)),
            false => {
                let room =
                    (!with_objects.contains(&pairing.patterns[at])).then(|| room(draft, order, pairing, at));
                (message.receiver, draft.recv(at, pairing.patterns[at], room, may_block))
            }
        };
        is_joined[at] = blocks(&call) && pairing.completes_next(at, half.is_send);
        starts.push((rank, message.lane, call));
    }
    let mut after: Vec<Vec<(usize, usize, Call)>> = vec![Vec::new(); order.len()];
    for (at, half) in order.iter().enumerate() {
        let (rank, lane, call) = starts[at];
        let mut place = at.max(pairing.matched_after(at, half.is_send)) + draft.random.below(12);
        while is_joined.get(place) == Some(&true) {
            place += 1;
        }
        if has_request(&call) && place < order.len() && draft.random.percent(40) {
            after[place].push((rank, lane, draft.wait(at)));
        }
    }
    let mut calls = Vec::new();
    for (at, start) in starts.into_iter().enumerate() {
        calls.push(start);
        calls.append(&mut after[at]);
        if !is_joined[at] && draft.random.percent(6) {
            calls.extend(draft.exchange());
        }
        if !is_joined[at] && draft.random.percent(15) {
            calls.push(draft.idle(&pairing.patterns));
        }
    }
    calls
}

fn blocks(call: &Call) -> bool {
    match call {
        Call::Send { by, .. } => by.may_block(),
        Call::Recv { by, .. } => by.may_block(),
        _ => false,
    }
}

fn has_request(call: &Call) -> bool {
    match call {
        Call::Send { by, .. } => by.has_request(),
        Call::Recv { by, .. } => !by.may_block(),
        _ => false,
    }
}

/// Returns the length of a receive's buffer: that of the longest message that it can get, and sometimes more.
fn room(draft: &mut Draft<'_>, order: &[Half], pairing: &Pairing, at: usize) -> usize {
    let pattern = pairing.patterns[at];
    let len = |send: usize| draft.messages[order[send].message].len;
    let longest = match pattern.source {
        Some(_) => len(pairing.partner[at]),
        None => {
            let sends = (0..order.len()).filter(|at| order[*at].is_send && pairing.patterns[*at] == pattern);
            sends.map(len).max().expect("a message for each receive")
        }
    };
    longest + if draft.random.percent(30) { draft.random.below(100) } else { 0 }
}

//! A simulator of collectives: it executes the steps of all ranks without threads, an engine or data.
//!
//! * A send completes when its receive has been posted, as if no message were eager. So steps that complete here do not
//!   depend on buffered sends.
//! * Items are [`Term`]s, which record whose items were combined, and in which order.
//! * An access that conflicts with a pending operation is an error, and so is a message of unexpected length.
//! * The k-th send after a fence is counted in the k-th round after it at the earliest; receives likewise. A rank whose
//!   peers are late can transfer several messages in one round, so the number of rounds is a lower bound.

use std::collections::{HashMap, VecDeque};

use mpj_collectives::{OperandOrder, Span, Step};

/// The contents of an item: item `item` of the `len` ranks `first`, `first + 1`, … (modulo the size), combined in this
/// order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    pub(crate) item: usize,
    pub(crate) first: u32,
    pub(crate) len: u32,
}

impl Term {
    pub(crate) fn own(item: usize, rank: u32) -> Self {
        Term { item, first: rank, len: 1 }
    }

    /// Combines two adjacent terms; `None` if they are not adjacent.
    fn then(self, right: Term, size: u32) -> Option<Term> {
        let fits = self.item == right.item
            && (self.first + self.len) % size == right.first
            && self.len + right.len <= size;
        fits.then_some(Term { len: self.len + right.len, ..self })
    }
}

/// One item of memory; its term is `None` until it is written.
#[derive(Clone, Copy, Default, Debug)]
struct Item {
    term: Option<Term>,
    /// The number of pending sends of the item.
    readers: u32,
    /// Whether a pending receive will write the item.
    is_receiving: bool,
}

/// The buffers of a rank by index: first the user's, then the temporary ones.
pub(crate) type Buffers = Vec<Vec<Option<Term>>>;

#[derive(Debug)]
struct Rank {
    steps: std::vec::IntoIter<Step>,
    bufs: Vec<Vec<Item>>,
    pending: u32,
    at_fence: bool,
    /// The round in which the rank passed its last fence.
    fence_round: u32,
    /// The last round in which one of its operations completed.
    last_completed: u32,
    /// The earliest round of the rank's last send.
    send_round: u32,
    /// The earliest round of the rank's last receive.
    recv_round: u32,
    items_sent: usize,
}

/// One side of a message.
#[derive(Debug)]
struct Side {
    span: Span,
    /// The first round in which the message can be transferred.
    round: u32,
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) bufs: Vec<Buffers>,
    pub(crate) rounds: u32,
    /// The maximum number of items that one rank has sent.
    pub(crate) max_sent: usize,
}

#[derive(Debug)]
struct Machine {
    ranks: Vec<Rank>,
    /// Unmatched sends by sender and receiver, in order; `receives` likewise.
    sends: HashMap<(u32, u32), VecDeque<Side>>,
    receives: HashMap<(u32, u32), VecDeque<Side>>,
    ready: VecDeque<u32>,
}

/// Runs the steps of all ranks on the given initial buffers. Fails at an invalid step or an unmatched message.
pub(crate) fn run<A: IntoIterator<Item = Vec<Option<Term>>>>(
    size: u32,
    steps: impl Fn(u32) -> Vec<Step>,
    bufs: impl Fn(u32) -> A,
) -> Result<Report, String> {
    let items =
        |buf: Vec<Option<Term>>| buf.into_iter().map(|term| Item { term, ..Item::default() }).collect();
    let rank = |rank| Rank {
        steps: steps(rank).into_iter(),
        bufs: bufs(rank).into_iter().map(items).collect(),
        pending: 0,
        at_fence: false,
        fence_round: 0,
        last_completed: 0,
        send_round: 0,
        recv_round: 0,
        items_sent: 0,
    };
    let (sends, receives) = (HashMap::new(), HashMap::new());
    let mut machine =
        Machine { ranks: (0..size).map(rank).collect(), sends, receives, ready: (0..size).collect() };
    while let Some(rank) = machine.ready.pop_front() {
        machine.advance(rank).map_err(|error| format!("rank {rank} of {size}: {error}"))?;
    }
    machine.report()
}

impl Machine {
    /// Runs a rank up to its next blocking fence, or to its end.
    fn advance(&mut self, rank: u32) -> Result<(), String> {
        loop {
            let this = &mut self.ranks[rank as usize];
            if this.at_fence {
                if this.pending > 0 {
                    return Ok(());
                }
                this.at_fence = false;
                this.fence_round = this.last_completed;
            }
            match this.steps.next() {
                None => return Ok(()),
                Some(Step::Fence) => this.at_fence = true,
                Some(Step::Copy { from, into }) => self.write_items(rank, from, into, |from, _| Ok(from))?,
                Some(Step::ReduceLocal { from, into, order }) => {
                    let size = self.ranks.len() as u32;
                    self.write_items(rank, from, into, |from, old| {
                        let old = old.ok_or("combines with unwritten items")?;
                        let combined = match order {
                            OperandOrder::IncomingFirst => from.then(old, size),
                            OperandOrder::IncomingLast => old.then(from, size),
                        };
                        combined.ok_or("combines items of non-adjacent ranks")
                    })?;
                }
                Some(Step::Send { to, from }) => {
                    this.pending += 1;
                    this.items_sent += from.count;
                    this.send_round = this.send_round.max(this.fence_round) + 1;
                    let side = Side { span: from, round: this.send_round };
                    self.items(rank, from, |item| {
                        item.readers += 1;
                        (!item.is_receiving).then_some(()).ok_or("sends items that it receives")
                    })?;
                    match pop_front(&mut self.receives, (rank, to)) {
                        Some(peer) => self.transfer((rank, side), (to, peer))?,
                        None => self.sends.entry((rank, to)).or_default().push_back(side),
                    }
                }
                Some(Step::Recv { from, into }) => {
                    this.pending += 1;
                    this.recv_round = this.recv_round.max(this.fence_round) + 1;
                    let side = Side { span: into, round: this.recv_round };
                    self.items(rank, into, |item| {
                        let is_used = item.is_receiving || item.readers > 0;
                        item.is_receiving = true;
                        (!is_used).then_some(()).ok_or("receives into items in use")
                    })?;
                    match pop_front(&mut self.sends, (from, rank)) {
                        Some(peer) => self.transfer((from, peer), (rank, side))?,
                        None => self.receives.entry((from, rank)).or_default().push_back(side),
                    }
                }
            }
        }
    }

    fn items(
        &mut self,
        rank: u32,
        span: Span,
        mut each: impl FnMut(&mut Item) -> Result<(), &'static str>,
    ) -> Result<(), String> {
        if span.count == 0 {
            return Ok(());
        }
        let buf = self.ranks[rank as usize].bufs.get_mut(span.buf.index());
        let buf = buf.ok_or_else(|| format!("{span:?} is in no buffer"))?;
        let len = buf.len();
        let items = buf.get_mut(span.at..span.at + span.count);
        let items = items.ok_or_else(|| format!("{span:?} exceeds the {len} items"))?;
        items.iter_mut().try_for_each(|item| each(item).map_err(|error| format!("{error}: {span:?}")))
    }

    /// Writes items of a rank. `value` computes each new item from one of `from` and from the old item.
    fn write_items(
        &mut self,
        rank: u32,
        from: Span,
        into: Span,
        value: impl Fn(Term, Option<Term>) -> Result<Term, &'static str>,
    ) -> Result<(), String> {
        if from.count != into.count {
            return Err(format!("{from:?} and {into:?} differ in length"));
        }
        let mut terms = Vec::with_capacity(from.count);
        self.items(rank, from, |item| {
            terms.push(item.term.filter(|_| !item.is_receiving).ok_or("reads unwritten items")?);
            Ok(())
        })?;
        let mut terms = terms.into_iter();
        self.items(rank, into, |item| {
            if item.is_receiving || item.readers > 0 {
                return Err("writes items in use");
            }
            item.term = terms.next().map(|term| value(term, item.term)).transpose()?;
            Ok(())
        })
    }

    fn transfer(&mut self, (from, send): (u32, Side), (to, receive): (u32, Side)) -> Result<(), String> {
        if send.span.count != receive.span.count {
            let (sent, expected) = (send.span.count, receive.span.count);
            return Err(format!("{sent} items from rank {from} to rank {to}, which expects {expected}"));
        }
        let mut terms = Vec::with_capacity(send.span.count);
        self.items(from, send.span, |item| {
            item.readers -= 1;
            terms.push(item.term.ok_or("sends unwritten items")?);
            Ok(())
        })?;
        let mut terms = terms.into_iter();
        self.items(to, receive.span, |item| {
            (item.term, item.is_receiving) = (terms.next(), false);
            Ok(())
        })?;
        let round = send.round.max(receive.round);
        for rank in [from, to] {
            let rank_state = &mut self.ranks[rank as usize];
            rank_state.pending -= 1;
            rank_state.last_completed = rank_state.last_completed.max(round);
            if rank_state.pending == 0 && rank_state.at_fence {
                self.ready.push_back(rank);
            }
        }
        Ok(())
    }

    fn report(self) -> Result<Report, String> {
        let unmatched = |(sides, what): (&HashMap<(u32, u32), VecDeque<Side>>, _)| {
            let waiting = sides.iter().find(|(_, sides)| !sides.is_empty());
            waiting.map(|((from, to), _)| format!("a {what} from rank {from} to rank {to} is unmatched"))
        };
        if let Some(error) =
            [(&self.sends, "send"), (&self.receives, "receive")].into_iter().find_map(unmatched)
        {
            return Err(error);
        }
        let rounds = self.ranks.iter().map(|rank| rank.last_completed).max().unwrap_or(0);
        let max_sent = self.ranks.iter().map(|rank| rank.items_sent).max().unwrap_or(0);
        let terms = |buf: Vec<Item>| buf.into_iter().map(|item| item.term).collect();
        let bufs = self.ranks.into_iter().map(|rank| rank.bufs.into_iter().map(terms).collect()).collect();
        Ok(Report { bufs, rounds, max_sent })
    }
}

fn pop_front(sides: &mut HashMap<(u32, u32), VecDeque<Side>>, pair: (u32, u32)) -> Option<Side> {
    sides.get_mut(&pair)?.pop_front()
}

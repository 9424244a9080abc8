//! A simulator of collectives: no threads, no engine and no bytes, only the steps of all ranks.
//!
//! * A send completes when its receive has been posted, as if no message were eager. Steps that complete here cannot
//!   deadlock.
//! * Items are [`Term`]s, which record whose items were combined, and in which order.
//! * Accessing memory that a pending operation reads or writes is an error, and so is a message of unexpected length.
//! * In one round a rank sends one message and receives one, in the order of its steps; this defines the number of
//!   rounds.

mod tests;

use std::collections::{HashMap, VecDeque};

use super::step::{Span, Step};
use crate::op::OperandOrder;

/// The contents of an item: item `item` of the `len` ranks `first`, `first + 1`, … (modulo the size), combined in this
/// order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Term {
    pub(super) item: usize,
    pub(super) first: u32,
    pub(super) len: u32,
}

impl Term {
    /// Returns an item as a rank contributes it.
    pub(super) fn own(item: usize, rank: u32) -> Self {
        Term { item, first: rank, len: 1 }
    }

    /// Combines two adjacent terms, as an associative operation may.
    fn then(self, right: Term, size: u32) -> Option<Term> {
        let fits = self.item == right.item
            && (self.first + self.len) % size == right.first
            && self.len + right.len <= size;
        fits.then_some(Term { len: self.len + right.len, ..self })
    }
}

/// One item of memory; `None` if it was never written.
#[derive(Clone, Copy, Default, Debug)]
struct Cell {
    term: Option<Term>,
    readers: u32,
    is_written: bool,
}

/// The areas of a rank, by number: first the user's buffers, then the temporary areas.
pub(super) type Areas = Vec<Vec<Option<Term>>>;

#[derive(Debug)]
struct Rank {
    steps: std::vec::IntoIter<Step>,
    areas: Vec<Vec<Cell>>,
    pending: u32,
    is_at_line: bool,
    /// The round in which the rank's last fence was passed, and the last round in which one of its operations
    /// completed.
    now: u32,
    ended: u32,
    /// The rounds up to which the rank has something to send, and to receive.
    sending: u32,
    receiving: u32,
    items_sent: usize,
}

/// One side of a message.
#[derive(Debug)]
struct Side {
    span: Span,
    /// The first round in which the message can be transferred.
    round: u32,
}

/// The result of a simulation.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) areas: Vec<Areas>,
    pub(super) rounds: u32,
    /// The maximum number of items that one rank has sent.
    pub(super) most_sent: usize,
}

#[derive(Debug)]
struct Machine {
    ranks: Vec<Rank>,
    /// Sends or receives that wait for the other side, by sender and receiver, in order.
    sends: HashMap<(u32, u32), VecDeque<Side>>,
    receives: HashMap<(u32, u32), VecDeque<Side>>,
    /// The ranks that can continue.
    ready: VecDeque<u32>,
}

/// Runs the steps of all ranks on the given initial areas.
///
/// # Errors
/// Describes the error of a rank and its peer, or names the ranks that wait for ever.
pub(super) fn run<A: IntoIterator<Item = Vec<Option<Term>>>>(
    size: u32,
    steps: impl Fn(u32) -> Vec<Step>,
    areas: impl Fn(u32) -> A,
) -> Result<Report, String> {
    let cells =
        |area: Vec<Option<Term>>| area.into_iter().map(|term| Cell { term, ..Cell::default() }).collect();
    let rank = |rank| Rank {
        steps: steps(rank).into_iter(),
        areas: areas(rank).into_iter().map(cells).collect(),
        pending: 0,
        is_at_line: false,
        now: 0,
        ended: 0,
        sending: 0,
        receiving: 0,
        items_sent: 0,
    };
    let (sends, receives) = (HashMap::new(), HashMap::new());
    let mut machine =
        Machine { ranks: (0..size).map(rank).collect(), sends, receives, ready: (0..size).collect() };
    while let Some(rank) = machine.ready.pop_front() {
        machine.advance(rank).map_err(|why| format!("rank {rank} of {size}: {why}"))?;
    }
    machine.report()
}

impl Machine {
    /// Runs a rank to its next fence, or to its end.
    fn advance(&mut self, rank: u32) -> Result<(), String> {
        loop {
            let this = &mut self.ranks[rank as usize];
            if this.is_at_line {
                if this.pending > 0 {
                    return Ok(());
                }
                this.is_at_line = false;
                this.now = this.ended;
            }
            match this.steps.next() {
                None => return Ok(()),
                Some(Step::Fence) => this.is_at_line = true,
                Some(Step::Copy { from, into }) => self.combine(rank, from, into, |from, _| Some(from))?,
                Some(Step::ReduceLocal { from, into, order }) => {
                    let size = self.ranks.len() as u32;
                    self.combine(rank, from, into, |from, old| match order {
                        OperandOrder::IncomingFirst => from.then(old?, size),
                        OperandOrder::IncomingLast => old?.then(from, size),
                    })?;
                }
                Some(Step::Send { to, from }) => {
                    this.pending += 1;
                    this.items_sent += from.count;
                    this.sending = this.sending.max(this.now) + 1;
                    let side = Side { span: from, round: this.sending };
                    self.cells(rank, from, |cell| {
                        cell.readers += 1;
                        (!cell.is_written).then_some(()).ok_or("sends what it receives")
                    })?;
                    match take(&mut self.receives, (rank, to)) {
                        Some(other) => self.meet((rank, side), (to, other))?,
                        None => self.sends.entry((rank, to)).or_default().push_back(side),
                    }
                }
                Some(Step::Recv { from, into }) => {
                    this.pending += 1;
                    this.receiving = this.receiving.max(this.now) + 1;
                    let side = Side { span: into, round: this.receiving };
                    self.cells(rank, into, |cell| {
                        let is_used = cell.is_written || cell.readers > 0;
                        cell.is_written = true;
                        (!is_used).then_some(()).ok_or("receives into what is in use")
                    })?;
                    match take(&mut self.sends, (from, rank)) {
                        Some(other) => self.meet((from, other), (rank, side))?,
                        None => self.receives.entry((from, rank)).or_default().push_back(side),
                    }
                }
            }
        }
    }

    fn cells(
        &mut self,
        rank: u32,
        span: Span,
        mut each: impl FnMut(&mut Cell) -> Result<(), &'static str>,
    ) -> Result<(), String> {
        if span.count == 0 {
            return Ok(());
        }
        let area = self.ranks[rank as usize].areas.get_mut(span.area.number());
        let area = area.ok_or_else(|| format!("{span:?} lies in no memory"))?;
        let len = area.len();
        let cells = area.get_mut(span.at..span.at + span.count);
        let cells = cells.ok_or_else(|| format!("{span:?} leaves its {len} items"))?;
        cells.iter_mut().try_for_each(|cell| each(cell).map_err(|why| format!("{why}: {span:?}")))
    }

    /// Applies a local step to the items of two spans.
    fn combine(
        &mut self,
        rank: u32,
        from: Span,
        into: Span,
        f: impl Fn(Term, Option<Term>) -> Option<Term>,
    ) -> Result<(), String> {
        if from.count != into.count {
            return Err(format!("{from:?} and {into:?} are not as long"));
        }
        let mut terms = Vec::with_capacity(from.count);
        self.cells(rank, from, |cell| {
            terms.push(cell.term.filter(|_| !cell.is_written).ok_or("reads what is not there")?);
            Ok(())
        })?;
        let mut terms = terms.into_iter();
        self.cells(rank, into, |cell| {
            if cell.is_written || cell.readers > 0 {
                return Err("writes what is in use");
            }
            let combined = terms.next().and_then(|term| f(term, cell.term));
            cell.term = Some(combined.ok_or("combines what are no neighbours")?);
            Ok(())
        })
    }

    /// Transfers a message that has both sides, and completes both operations.
    fn meet(&mut self, (from, send): (u32, Side), (to, receive): (u32, Side)) -> Result<(), String> {
        if send.span.count != receive.span.count {
            let (sent, room) = (send.span.count, receive.span.count);
            return Err(format!("{sent} items from rank {from} to rank {to}, which expects {room}"));
        }
        let mut terms = Vec::with_capacity(send.span.count);
        self.cells(from, send.span, |cell| {
            cell.readers -= 1;
            terms.push(cell.term.ok_or("sends what is not there")?);
            Ok(())
        })?;
        let mut terms = terms.into_iter();
        self.cells(to, receive.span, |cell| {
            (cell.term, cell.is_written) = (terms.next(), false);
            Ok(())
        })?;
        let round = send.round.max(receive.round);
        for rank in [from, to] {
            let ended = &mut self.ranks[rank as usize];
            ended.pending -= 1;
            ended.ended = ended.ended.max(round);
            if ended.pending == 0 && ended.is_at_line {
                self.ready.push_back(rank);
            }
        }
        Ok(())
    }

    fn report(self) -> Result<Report, String> {
        let unmet = |(sides, what): (&HashMap<(u32, u32), VecDeque<Side>>, _)| {
            let waiting = sides.iter().find(|(_, sides)| !sides.is_empty());
            waiting.map(|((from, to), _)| format!("a {what} from rank {from} to rank {to} has no other side"))
        };
        if let Some(why) = [(&self.sends, "send"), (&self.receives, "receive")].into_iter().find_map(unmet) {
            return Err(why);
        }
        let rounds = self.ranks.iter().map(|rank| rank.ended).max().unwrap_or(0);
        let most_sent = self.ranks.iter().map(|rank| rank.items_sent).max().unwrap_or(0);
        let terms = |area: Vec<Cell>| area.into_iter().map(|cell| cell.term).collect();
        let areas = self.ranks.into_iter().map(|rank| rank.areas.into_iter().map(terms).collect()).collect();
        Ok(Report { areas, rounds, most_sent })
    }
}

fn take(sides: &mut HashMap<(u32, u32), VecDeque<Side>>, who: (u32, u32)) -> Option<Side> {
    sides.get_mut(&who)?.pop_front()
}

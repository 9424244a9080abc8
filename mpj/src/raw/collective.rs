//! Collectives: every rank of the communicator calls them in the same order.
//!
//! Counts are in items and, as in MPI, the type signature of what is sent must be that of what is received.

use mpj_datatypes::{Datatype, Primitive};
use mpj_devices::Shape;

use super::comm::Comm;
use super::p2p::{disjoint, too_large};
use crate::collective::schedule::{Area, Memory, Schedule, Span, Step};
use crate::collective::{all, reduce as reduction, rooted, scan as prefix};
use crate::error::{Class, Error, Result};
use crate::op::Op;

/// Items of one buffer: pointer, count, shape.
#[derive(Clone, Debug)]
pub struct Items {
    /// The first item. Nothing is written through it where the call only sends.
    pub base: *mut u8,
    /// How many.
    pub count: usize,
    /// Of which type.
    pub shape: Shape,
}

impl Items {
    /// Describes `count` items of `datatype` at `base`.
    pub fn new(base: *mut u8, count: usize, datatype: &Datatype) -> Self {
        Items { base, count, shape: Shape::of(datatype) }
    }

    fn memory(&self) -> Memory {
        Memory { base: self.base, shape: self.shape.clone() }
    }

    fn whole(&self) -> Span {
        Span::new(Area::Send, 0, self.count)
    }

    fn bytes(&self, call: &'static str) -> Result<usize> {
        self.shape.bytes(self.count).ok_or_else(|| too_large(call, self.count))
    }

    /// Checks what must be checked before they are received into.
    fn receivable(&self, call: &'static str) -> Result<()> {
        disjoint(call, self.count, &self.shape)
    }
}

/// Where each rank's items lie in a buffer, in items from its start.
#[derive(Clone, Copy, Debug)]
pub enum Layout<'a> {
    /// The same number for each, one after the other.
    Even(usize),
    /// So many for each, at these displacements.
    Varying {
        /// The number of items by rank.
        counts: &'a [usize],
        /// The first item by rank.
        displacements: &'a [usize],
    },
}

impl Layout<'_> {
    fn block(&self, rank: u32) -> (usize, usize) {
        match self {
            Layout::Even(count) => (rank as usize * count, *count),
            Layout::Varying { counts, displacements } => {
                (displacements[rank as usize], counts[rank as usize])
            }
        }
    }

    /// Checks that the blocks of all ranks lie within `items`.
    fn check(&self, call: &'static str, size: u32, items: usize) -> Result<()> {
        if let Layout::Varying { counts, displacements } = self
            && (counts.len() != size as usize || displacements.len() != size as usize)
        {
            let (c, d) = (counts.len(), displacements.len());
            let why = format!("{c} counts and {d} displacements for {size} ranks");
            return Err(Error::new(Class::Arg, call, why));
        }
        let end = match self {
            Layout::Even(count) => count.checked_mul(size as usize),
            Layout::Varying { .. } => (0..size)
                .map(|rank| self.block(rank))
                .filter(|(_, count)| *count > 0)
                .try_fold(0, |end, (at, count)| at.checked_add(count).map(|e| e.max(end))),
        };
        match end {
            Some(end) if end <= items => Ok(()),
            Some(end) => {
                Err(Error::new(Class::Count, call, format!("{end} items of all ranks, room for {items}")))
            }
            None => Err(too_large(call, items)),
        }
    }
}

fn same_items(call: &'static str, send: &Items, recv: &Items) -> Result<()> {
    let (sent, room) = (send.bytes(call)?, recv.bytes(call)?);
    if sent != room {
        return Err(Error::new(Class::Count, call, format!("{sent} bytes to send, {room} bytes to receive")));
    }
    // A rank's own part is copied without a message, so that nobody else compares the types.
    let alike = match (&send.shape, &recv.shape) {
        (Shape::Flat(a), Shape::Flat(b)) => a == b,
        (a, b) => {
            let whole = |shape: &Shape, count| shape.datatype().signature().repeat(count as u64);
            whole(a, send.count) == whole(b, recv.count)
        }
    };
    if sent > 0 && !alike {
        return Err(Error::new(
            Class::Type,
            call,
            "what is sent and what is received are of different types",
        ));
    }
    Ok(())
}

fn check_op(call: &'static str, op: &Op, items: &Items) -> Result<()> {
    match op.refuses(&items.shape.datatype()) {
        Some(why) => Err(Error::new(Class::Op, call, why)),
        None => Ok(()),
    }
}

/// # Safety
/// The contracts of the buffers; the steps stay inside them.
unsafe fn run(
    comm: &Comm,
    call: &'static str,
    steps: Vec<Step>,
    send: Memory,
    recv: Memory,
    temp: usize,
    op: Option<&Op>,
) -> Result<()> {
    // SAFETY: the caller's contract, and `run` polls to the end.
    unsafe { Schedule::new(comm, call, steps, send, recv, temp, op.cloned()) }?.run()
}

/// Waits until every rank has called it.
///
/// # Errors
/// A freed communicator, a dead or departed rank.
pub fn barrier(comm: &Comm) -> Result<()> {
    comm.usable("barrier")?;
    let steps = rooted::barrier(comm.rank(), comm.size());
    // SAFETY: no memory is named.
    unsafe { run(comm, "barrier", steps, Memory::none(), Memory::none(), 0, None) }
}

/// Gives every rank the items of `root`.
///
/// # Errors
/// A bad root, a freed communicator, a dead or departed rank, other counts or types elsewhere.
///
/// # Safety
/// The contract of a send buffer at the root, of a receive buffer elsewhere.
pub unsafe fn bcast(comm: &Comm, items: &Items, root: i32) -> Result<()> {
    comm.usable("bcast")?;
    let root = comm.member("bcast", Class::Root, root)?;
    items.bytes("bcast")?;
    if comm.rank() != root {
        items.receivable("bcast")?;
    }
    let steps = rooted::bcast(comm.rank(), comm.size(), root, items.count);
    // SAFETY: the caller's contract; the root's steps only send.
    unsafe { run(comm, "bcast", steps, Memory::none(), items.memory(), 0, None) }
}

/// Combines the items of all ranks at `root`, in order of rank; `recv` is used at the root alone.
///
/// # Errors
/// As [`bcast`]; [`Class::Op`] if the operation is not defined for the type, [`Class::Count`] or [`Class::Type`] if
/// the root's buffers differ.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn reduce(comm: &Comm, send: &Items, recv: &Items, op: &Op, root: i32) -> Result<()> {
    comm.usable("reduce")?;
    let root = comm.member("reduce", Class::Root, root)?;
    if comm.rank() == root {
        same_items("reduce", send, recv)?;
        recv.receivable("reduce")?;
    }
    let recv = if comm.rank() == root { recv } else { send };
    check_op("reduce", op, recv)?;
    let (mine, count) = (send.whole(), recv.count);
    let steps = reduction::reduce(comm.rank(), comm.size(), root, mine, count, op.is_commutative());
    // SAFETY: the caller's contract; only the root's steps write to the receive buffer.
    unsafe { run(comm, "reduce", steps, send.memory(), recv.memory(), count, Some(op)) }
}

/// Bytes from which an allreduce goes around a ring.
const RING: usize = 32 << 10;

/// Combines the items of all ranks everywhere, in order of rank, with the same bits on each.
///
/// # Errors
/// As [`reduce`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn allreduce(comm: &Comm, send: &Items, recv: &Items, op: &Op) -> Result<()> {
    comm.usable("allreduce")?;
    same_items("allreduce", send, recv)?;
    recv.receivable("allreduce")?;
    check_op("allreduce", op, recv)?;
    let (rank, size, mine, count) = (comm.rank(), comm.size(), send.whole(), recv.count);
    let ring = size > 1 && op.is_commutative() && recv.bytes("allreduce")? >= RING && count >= size as usize;
    let (steps, temp) = if ring {
        (reduction::allreduce_ring(rank, size, mine, count), reduction::ring_block(0, size, count).1)
    } else {
        (reduction::allreduce_doubling(rank, size, mine, count), count)
    };
    // SAFETY: the caller's contract.
    unsafe { run(comm, "allreduce", steps, send.memory(), recv.memory(), temp, Some(op)) }
}

/// Combines the items of all ranks, in order of rank, and gives rank `r` the next `counts[r]` of the result.
///
/// # Errors
/// As [`reduce`]; [`Class::Arg`] for as many counts as there are not ranks, [`Class::Count`] if they are more than is sent.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn reduce_scatter(
    comm: &Comm,
    send: &Items,
    recv: &Items,
    counts: &[usize],
    op: &Op,
) -> Result<()> {
    const CALL: &str = "reduce_scatter";
    comm.usable(CALL)?;
    let sums =
        counts.iter().scan(0usize, |sum, count| Some(std::mem::replace(sum, sum.saturating_add(*count))));
    let displacements: Vec<usize> = sums.collect();
    let layout = Layout::Varying { counts, displacements: &displacements };
    layout.check(CALL, comm.size(), send.count)?;
    recv.receivable(CALL)?;
    let own = Items { count: layout.block(comm.rank()).1, ..send.clone() };
    same_items(CALL, &own, recv)?;
    check_op(CALL, op, recv)?;
    let steps = reduction::reduce_scatter(comm.rank(), comm.size(), &|r| layout.block(r), recv.count);
    // SAFETY: the caller's contract; the layout was checked.
    unsafe { run(comm, CALL, steps, send.memory(), recv.memory(), recv.count, Some(op)) }
}

/// Gives rank `r` the combination of the items of ranks 0 to `r`.
///
/// # Errors
/// As [`reduce`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn scan(comm: &Comm, send: &Items, recv: &Items, op: &Op) -> Result<()> {
    comm.usable("scan")?;
    same_items("scan", send, recv)?;
    recv.receivable("scan")?;
    check_op("scan", op, recv)?;
    let steps = prefix::scan(comm.rank(), comm.size(), send.whole(), recv.count);
    // SAFETY: the caller's contract.
    unsafe { run(comm, "scan", steps, send.memory(), recv.memory(), recv.count, Some(op)) }
}

/// Collects the items of all ranks at `root`, placed by `layout`, which is used at the root alone like `recv`.
///
/// # Errors
/// As [`bcast`]; [`Class::Count`] if the layout leaves the root's buffer.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn gather(comm: &Comm, send: &Items, recv: &Items, layout: Layout<'_>, root: i32) -> Result<()> {
    comm.usable("gather")?;
    let root = comm.member("gather", Class::Root, root)?;
    send.bytes("gather")?;
    if comm.rank() == root {
        layout.check("gather", comm.size(), recv.count)?;
        recv.receivable("gather")?;
        let own = Items { count: layout.block(root).1, ..recv.clone() };
        same_items("gather", send, &own)?;
    }
    let steps = rooted::gather(comm.rank(), comm.size(), root, send.count, &|r| layout.block(r), false);
    // SAFETY: the caller's contract; the layout was checked where it is used.
    unsafe { run(comm, "gather", steps, send.memory(), recv.memory(), 0, None) }
}

/// Deals the items of `root` out, placed by `layout`, which is used at the root alone like `send`.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn scatter(comm: &Comm, send: &Items, layout: Layout<'_>, recv: &Items, root: i32) -> Result<()> {
    comm.usable("scatter")?;
    let root = comm.member("scatter", Class::Root, root)?;
    recv.bytes("scatter")?;
    recv.receivable("scatter")?;
    if comm.rank() == root {
        layout.check("scatter", comm.size(), send.count)?;
        let own = Items { count: layout.block(root).1, ..send.clone() };
        same_items("scatter", &own, recv)?;
    }
    let steps = rooted::scatter(comm.rank(), comm.size(), root, &|r| layout.block(r), recv.count);
    // SAFETY: the caller's contract; the layout was checked where it is used.
    unsafe { run(comm, "scatter", steps, send.memory(), recv.memory(), 0, None) }
}

/// Collects the items of all ranks everywhere, placed by `layout`.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn allgather(comm: &Comm, send: &Items, recv: &Items, layout: Layout<'_>) -> Result<()> {
    comm.usable("allgather")?;
    layout.check("allgather", comm.size(), recv.count)?;
    recv.receivable("allgather")?;
    let own = Items { count: layout.block(comm.rank()).1, ..recv.clone() };
    same_items("allgather", send, &own)?;
    let total = total(&layout, comm.size(), recv, "allgather")?;
    let steps = all::allgather(comm.rank(), comm.size(), send.count, &|r| layout.block(r), total);
    // SAFETY: the caller's contract; the layout was checked.
    unsafe { run(comm, "allgather", steps, send.memory(), recv.memory(), 0, None) }
}

/// Sends a block to each rank and gets one from each, placed by the two layouts.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn alltoall(
    comm: &Comm,
    send: &Items,
    out: Layout<'_>,
    recv: &Items,
    back: Layout<'_>,
) -> Result<()> {
    const CALL: &str = "alltoall";
    comm.usable(CALL)?;
    out.check(CALL, comm.size(), send.count)?;
    back.check(CALL, comm.size(), recv.count)?;
    recv.receivable(CALL)?;
    let own_out = Items { count: out.block(comm.rank()).1, ..send.clone() };
    let own_back = Items { count: back.block(comm.rank()).1, ..recv.clone() };
    same_items(CALL, &own_out, &own_back)?;
    // Ranks may disagree on the totals of a varying exchange, and both ways of exchanging understand each other.
    let total = total(&out, comm.size(), send, CALL)?;
    let steps = all::alltoall(comm.rank(), comm.size(), &|r| out.block(r), &|r| back.block(r), total);
    // SAFETY: the caller's contract; the layouts were checked.
    unsafe { run(comm, CALL, steps, send.memory(), recv.memory(), 0, None) }
}

fn total(layout: &Layout<'_>, size: u32, items: &Items, call: &'static str) -> Result<usize> {
    let count = (0..size).try_fold(0usize, |sum, r| sum.checked_add(layout.block(r).1));
    count.and_then(|count| items.shape.bytes(count)).ok_or_else(|| too_large(call, items.count))
}

/// Broadcasts words, for making communicators.
pub(crate) fn bcast_words(comm: &Comm, call: &'static str, words: &mut [u64], root: u32) -> Result<()> {
    let steps = rooted::bcast(comm.rank(), comm.size(), root, words.len());
    let recv = Memory { base: words.as_mut_ptr().cast(), shape: Shape::Flat(Primitive::U64) };
    // SAFETY: the words are ours, and the schedule runs to its end here.
    unsafe { run(comm, call, steps, Memory::none(), recv, 0, None) }
}

/// Gathers words everywhere, for making communicators.
pub(crate) fn allgather_words(comm: &Comm, call: &'static str, words: &[u64]) -> Result<Vec<u64>> {
    let mut all = vec![0u64; words.len() * comm.size() as usize];
    let block = |r: u32| (r as usize * words.len(), words.len());
    let steps = all::allgather(comm.rank(), comm.size(), words.len(), &block, all.len() * 8);
    let shape = Shape::Flat(Primitive::U64);
    let send = Memory { base: words.as_ptr().cast_mut().cast(), shape: shape.clone() };
    let recv = Memory { base: all.as_mut_ptr().cast(), shape };
    // SAFETY: both are ours and do not overlap; the steps only read the first.
    unsafe { run(comm, call, steps, send, recv, 0, None) }?;
    Ok(all)
}

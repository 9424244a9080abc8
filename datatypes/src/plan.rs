//! The compiled form of a datatype: which bytes to copy, in which order, and the kernel.
//!
//! A plan describes one repetition. Callers repeat it at a stride (the extent of the type), which kernels treat as
//! their outermost loop. Plans are immutable and shared, and at most a constant factor larger than the description of
//! their type: loops stay loops, and only short pieces are unrolled into run lists.

use crate::kernels::{self, Kernel, ListKernel, TileKernel};
use std::sync::Arc;

/// Maximum number of loops of a [`Strided`]; deeper nests are [`Repeat`]s of it.
pub(crate) const MAX_LOOPS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Loop {
    pub(crate) count: usize,
    pub(crate) stride: i64,
}

/// Blocks of `block` bytes in nested loops.
///
/// # Invariants
/// 1. `block > 0`, `depth <= MAX_LOOPS`, and the counts of the first `depth` levels are at least 2.
/// 2. `levels[..depth]` are ordered from the outermost to the innermost; the rest are `count: 1, stride: 0`.
/// 3. `tiles` are the kernels (pack, unpack) for these blocks and loops.
#[derive(Clone, Debug)]
pub(crate) struct Strided {
    pub(crate) block: usize,
    pub(crate) depth: usize,
    pub(crate) levels: [Loop; MAX_LOOPS],
    pub(crate) tiles: (TileKernel, TileKernel),
}

impl Strided {
    /// `nest` has at most `MAX_LOOPS` loops, the outermost first.
    pub(crate) fn new(block: usize, nest: &[Loop]) -> Strided {
        let mut levels = [Loop { count: 1, stride: 0 }; MAX_LOOPS];
        levels[..nest.len()].copy_from_slice(nest);
        let tiles = kernels::tiles(block, nest);
        Strided { block, depth: nest.len(), levels, tiles }
    }

    pub(crate) fn nest(&self) -> &[Loop] {
        &self.levels[..self.depth]
    }

    pub(crate) fn blocks(&self) -> usize {
        self.nest().iter().fold(1, |n, level| n.saturating_mul(level.count))
    }
}

/// Runs of different lengths or at irregular distances.
///
/// # Invariants
/// 1. `offsets` and `ends` have the same length, at least 1.
/// 2. `ends` increases strictly: `ends[i]` is the number of packed bytes up to and including run `i`.
/// 3. All runs lie inside `span` bytes; it is negative if the span exceeds an `i64`.
#[derive(Debug)]
pub(crate) struct RunList {
    pub(crate) offsets: Box<[i64]>,
    pub(crate) ends: Box<[usize]>,
    pub(crate) span: i64,
}

impl RunList {
    pub(crate) fn start(&self, i: usize) -> usize {
        if i == 0 { 0 } else { self.ends[i - 1] }
    }
}

/// Runs of one length at irregular distances.
///
/// # Invariants
/// 1. `block > 0`, and there is at least one offset.
/// 2. `kernels` are those (pack, unpack) for `block`.
/// 3. All blocks lie inside `span` bytes; it is negative if the span exceeds an `i64`.
#[derive(Debug)]
pub(crate) struct BlockList {
    pub(crate) block: usize,
    pub(crate) offsets: Offsets,
    pub(crate) span: i64,
    pub(crate) kernels: (ListKernel, ListKernel),
}

/// Offsets of blocks or items. The narrow form halves the memory that a kernel reads for them.
#[derive(Debug)]
pub(crate) enum Offsets {
    Narrow(Box<[u32]>),
    Wide(Box<[i64]>),
}

impl Offsets {
    /// Returns the distances from `low`, the lowest offset; all are at most `span`, unless that is negative.
    pub(crate) fn from_low(offsets: impl Iterator<Item = i64> + Clone, low: i64, span: i64) -> Offsets {
        let from_low = offsets.map(|offset| offset.wrapping_sub(low));
        match u32::try_from(span) {
            Ok(_) => Offsets::Narrow(from_low.map(|offset| offset as u32).collect()),
            Err(_) => Offsets::Wide(from_low.collect()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Offsets::Narrow(offsets) => offsets.len(),
            Offsets::Wide(offsets) => offsets.len(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> i64 {
        match self {
            Offsets::Narrow(offsets) => offsets[i].into(),
            Offsets::Wide(offsets) => offsets[i],
        }
    }
}

/// One plan at irregular places.
///
/// # Invariants
/// 1. There is at least one offset, and `body` is not empty.
/// 2. `pieces` are the pieces (offset, length) of `body` in order, or empty if there are more than [`MAX_PIECES`].
#[derive(Debug)]
pub(crate) struct ItemList {
    pub(crate) offsets: Offsets,
    pub(crate) body: Plan,
    pub(crate) pieces: Box<[(i64, usize)]>,
}

/// Maximum number of pieces of an item that the kernel of a list copies itself.
pub(crate) const MAX_PIECES: usize = 16;

/// Different plans one after the other; `ends` are prefix sums of their sizes, as in [`RunList`].
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) parts: Box<[Plan]>,
    pub(crate) ends: Box<[usize]>,
}

impl Sequence {
    pub(crate) fn start(&self, i: usize) -> usize {
        if i == 0 { 0 } else { self.ends[i - 1] }
    }
}

/// A loop over a plan that cannot absorb it.
#[derive(Debug)]
pub(crate) struct Repeat {
    pub(crate) level: Loop,
    pub(crate) body: Plan,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Empty,
    Strided(Strided),
    Blocks(Arc<BlockList>),
    Runs(Arc<RunList>),
    Items(Arc<ItemList>),
    Sequence(Arc<Sequence>),
    Repeat(Arc<Repeat>),
}

impl Body {
    /// Returns whether the bodies are known to be equal. A false negative only misses an optimisation.
    pub(crate) fn same(&self, other: &Body) -> bool {
        match (self, other) {
            (Body::Empty, Body::Empty) => true,
            (Body::Strided(a), Body::Strided(b)) => a.block == b.block && a.nest() == b.nest(),
            (Body::Blocks(a), Body::Blocks(b)) => Arc::ptr_eq(a, b),
            (Body::Runs(a), Body::Runs(b)) => Arc::ptr_eq(a, b),
            (Body::Items(a), Body::Items(b)) => Arc::ptr_eq(a, b),
            (Body::Sequence(a), Body::Sequence(b)) => Arc::ptr_eq(a, b),
            (Body::Repeat(a), Body::Repeat(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A body at an offset, with its kernels.
///
/// # Invariants
/// 1. `size` is the number of packed bytes of `body`; only [`Body::Empty`] has 0.
/// 2. `kernels` are those (pack, unpack) for `body` from [`kernels::choose`].
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) offset: i64,
    pub(crate) size: usize,
    pub(crate) body: Body,
    pub(crate) kernels: (Kernel, Kernel),
}

impl Plan {
    pub(crate) fn new(offset: i64, size: usize, body: Body) -> Plan {
        let kernels = kernels::choose(&body);
        Plan { offset, size, body, kernels }
    }

    pub(crate) fn empty() -> Plan {
        Plan::new(0, 0, Body::Empty)
    }

    pub(crate) fn block(offset: i64, len: usize) -> Plan {
        if len == 0 { Plan::empty() } else { Plan::new(offset, len, Body::Strided(Strided::new(len, &[]))) }
    }

    /// Returns the plan moved by `by` bytes. Offsets wrap: the sum of all offsets of a byte is in range, but a partial
    /// sum might not be.
    pub(crate) fn shifted(mut self, by: i64) -> Plan {
        self.offset = self.offset.wrapping_add(by);
        self
    }

    pub(crate) fn run(&self) -> Option<(i64, usize)> {
        match &self.body {
            Body::Strided(strided) if strided.depth == 0 => Some((self.offset, strided.block)),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn block_len(&self) -> Option<usize> {
        match &self.body {
            Body::Strided(strided) => Some(strided.block),
            Body::Blocks(list) => Some(list.block),
            Body::Empty | Body::Runs(_) | Body::Items(_) | Body::Sequence(_) | Body::Repeat(_) => None,
        }
    }

    /// Returns the number of blocks or runs, or `None` for bodies made of plans.
    pub(crate) fn blocks(&self) -> Option<usize> {
        match &self.body {
            Body::Empty => Some(0),
            Body::Strided(strided) => Some(strided.blocks()),
            Body::Blocks(list) => Some(list.offsets.len()),
            Body::Runs(runs) => Some(runs.offsets.len()),
            Body::Items(_) | Body::Sequence(_) | Body::Repeat(_) => None,
        }
    }
}

//! The buffers of collectives: items, where each rank's part of them lies, and what is refused before anything is sent.

use mpj_datatypes::Datatype;
use mpj_devices::Shape;

use super::p2p::{disjoint, too_large};
use crate::collective::schedule::Memory;
use crate::collective::step::{Area, Span};
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

    pub(super) fn memory(&self) -> Memory {
        Memory { base: self.base, shape: self.shape.clone() }
    }

    /// All of them, in an area.
    pub(super) fn whole(&self, area: Area) -> Span {
        Span::new(area, 0, self.count)
    }

    pub(super) fn bytes(&self, call: &'static str) -> Result<usize> {
        self.shape.bytes(self.count).ok_or_else(|| too_large(call, self.count))
    }

    /// The part of them that a layout gives to a rank.
    pub(super) fn part(&self, layout: &Layout<'_>, rank: u32) -> Items {
        let (at, count) = layout.block(rank);
        let offset = (at as isize).wrapping_mul(self.shape.extent() as isize);
        Items { base: self.base.wrapping_offset(offset), count, shape: self.shape.clone() }
    }

    /// Checks what must be checked before they are received into.
    pub(super) fn receivable(&self, call: &'static str) -> Result<()> {
        disjoint(call, self.count, &self.shape)
    }

    /// Checks that they and others are not the same memory, where that is plain to see.
    pub(super) fn apart(&self, call: &'static str, other: &Items) -> Result<()> {
        let range = |items: &Items| match items.shape {
            Shape::Flat(_) => {
                let start = items.base.addr();
                Some((start, start.saturating_add(items.shape.bytes(items.count)?)))
            }
            // Items of a derived type may interleave with others.
            Shape::Typed(_) => None,
        };
        match (range(self), range(other)) {
            (Some(a), Some(b)) if a.0.max(b.0) < a.1.min(b.1) => {
                let why = "the buffers to send and to receive overlap; there are calls that work in place";
                Err(Error::new(Class::Buffer, call, why))
            }
            _ => Ok(()),
        }
    }

    /// Checks that as much of the same type is sent as is received, from and to other memory.
    pub(super) fn like(&self, call: &'static str, recv: &Items) -> Result<()> {
        let (sent, room) = (self.bytes(call)?, recv.bytes(call)?);
        if sent != room {
            return Err(Error::new(
                Class::Count,
                call,
                format!("{sent} bytes to send, {room} bytes to receive"),
            ));
        }
        // A rank's own part is copied without a message, so that nobody else compares the types.
        let alike = match (&self.shape, &recv.shape) {
            (Shape::Flat(a), Shape::Flat(b)) => a == b,
            (a, b) => {
                let whole = |shape: &Shape, count| shape.datatype().signature().repeat(count as u64);
                whole(a, self.count) == whole(b, recv.count)
            }
        };
        if sent > 0 && !alike {
            let why = "what is sent and what is received are of different types";
            return Err(Error::new(Class::Type, call, why));
        }
        Ok(())
    }

    /// Checks that an operation is defined for them.
    pub(super) fn combine(&self, call: &'static str, op: &Op) -> Result<()> {
        match op.refuses(&self.shape.datatype()) {
            Some(why) => Err(Error::new(Class::Op, call, why)),
            None => Ok(()),
        }
    }
}

/// Where each rank's items lie in a buffer, in items from its start.
#[derive(Clone, Copy, Debug)]
pub enum Layout<'a> {
    /// The same number for each, one after the other.
    Even(usize),
    /// The same number for each, as many as the buffer has for all of them.
    Dealt,
    /// So many for each, at these displacements.
    Varying {
        /// The number of items by rank.
        counts: &'a [usize],
        /// The first item by rank.
        displacements: &'a [usize],
    },
}

impl<'a> Layout<'a> {
    /// Returns the name of the call: one for parts of one length, one for others.
    pub(super) fn name(&self, even: &'static str, varying: &'static str) -> &'static str {
        match self {
            Layout::Even(_) | Layout::Dealt => even,
            Layout::Varying { .. } => varying,
        }
    }

    pub(super) fn block(&self, rank: u32) -> (usize, usize) {
        match self {
            Layout::Even(count) => (rank as usize * count, *count),
            Layout::Dealt => (0, 0),
            Layout::Varying { counts, displacements } => {
                (displacements[rank as usize], counts[rank as usize])
            }
        }
    }

    /// Returns the layout of `items` to send, if the parts of all ranks lie within them.
    pub(super) fn to_send(self, call: &'static str, size: u32, items: usize) -> Result<Layout<'a>> {
        let layout = match self {
            Layout::Dealt if !items.is_multiple_of(size as usize) => {
                let why = format!("{items} items cannot be dealt evenly to {size} ranks");
                return Err(Error::new(Class::Count, call, why));
            }
            Layout::Dealt => Layout::Even(items / size as usize),
            layout => layout,
        };
        layout.check(call, size, items)?;
        Ok(layout)
    }

    /// Returns the layout of `items` to receive, if moreover no two parts overlap.
    pub(super) fn to_receive(self, call: &'static str, size: u32, items: usize) -> Result<Layout<'a>> {
        let layout = self.to_send(call, size, items)?;
        if let Layout::Varying { .. } = layout {
            let mut parts: Vec<(usize, usize, u32)> =
                (0..size).map(|r| (layout.block(r), r)).map(|((at, count), r)| (at, count, r)).collect();
            parts.retain(|(_, count, _)| *count > 0);
            parts.sort_unstable();
            let overlap = parts.windows(2).find(|two| two[0].0 + two[0].1 > two[1].0);
            if let Some([(.., one), (.., other)]) = overlap {
                let why = format!("the parts of ranks {one} and {other} overlap where they are received");
                return Err(Error::new(Class::Arg, call, why));
            }
        }
        Ok(layout)
    }

    /// Checks that the parts of all ranks lie within `items`.
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
            Layout::Dealt => Some(0),
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

    /// Returns the bytes of all parts.
    pub(super) fn total(&self, call: &'static str, size: u32, items: &Items) -> Result<usize> {
        let count = (0..size).try_fold(0usize, |sum, r| sum.checked_add(self.block(r).1));
        count.and_then(|count| items.shape.bytes(count)).ok_or_else(|| too_large(call, items.count))
    }
}

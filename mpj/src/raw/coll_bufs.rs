//! The buffers of collectives: the layout of each rank's block in them, and the checks before anything is sent.

use mpj_devices::{Buf, BufError, Content, Origin};

use super::p2p::{disjoint, too_large};
use crate::collective::step::{BufIndex, Span};
use crate::error::{Error, ErrorClass, Result};
use crate::op::Op;

/// Checks and queries of a buffer by a collective.
pub(super) trait CollBuf: Sized {
    /// Returns the buffer, or `None` if it is in place, that is, if its items are in the call's other buffer.
    fn given(&self) -> Option<&Self>;

    /// Returns the span of all items, in an area.
    fn whole(&self, area: BufIndex) -> Span;

    fn packed(&self, call: &'static str) -> Result<usize>;

    /// Returns the block of the items that a layout gives to a rank.
    fn of_rank(&self, layout: &BlockLayout<'_>, rank: u32) -> Self;

    /// Checks that the buffer can be received into.
    fn receivable(&self, call: &'static str) -> Result<()>;

    /// Checks that the two buffers do not overlap; overlaps of buffers with gaps are not detected.
    fn apart(&self, call: &'static str, other: &Self) -> Result<()>;

    /// Checks that the send buffer matches the receive buffer in size and type signature.
    fn like(&self, call: &'static str, recv: &Self) -> Result<()>;

    /// Checks that an operation is defined for the type of the items.
    fn combine(&self, call: &'static str, op: &Op) -> Result<()>;
}

impl CollBuf for Buf {
    #[inline]
    fn given(&self) -> Option<&Buf> {
        (!self.is_in_place()).then_some(self)
    }

    #[inline]
    fn whole(&self, area: BufIndex) -> Span {
        Span::new(area, 0, self.count())
    }

    #[inline]
    fn packed(&self, call: &'static str) -> Result<usize> {
        self.bytes().map_err(|error| Error::buf(call, error))
    }

    #[inline]
    fn of_rank(&self, layout: &BlockLayout<'_>, rank: u32) -> Buf {
        let (at, count) = layout.block(rank);
        self.part(at, count)
    }

    #[inline]
    fn receivable(&self, call: &'static str) -> Result<()> {
        if let Origin::Chain(_) = self.origin() {
            return Err(Error::buf(call, BufError::Chain));
        }
        self.packed(call)?;
        disjoint(call, self.count(), self.datatype())
    }

    #[inline]
    fn apart(&self, call: &'static str, other: &Buf) -> Result<()> {
        // Items with gaps may legally interleave with those of the other buffer.
        let range = |items: &Buf| {
            let is_run = items.datatype().is_contiguous() && items.pieces().is_none();
            let start = items.base().addr();
            let len = items.datatype().size().saturating_mul(items.count());
            is_run.then(|| (start, start.saturating_add(len)))
        };
        match (range(self), range(other)) {
            (Some(a), Some(b)) if a.0.max(b.0) < a.1.min(b.1) => {
                let why = "the buffers to send and to receive overlap; there are calls that work in place";
                Err(Error::new(ErrorClass::Buffer, call, why))
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn like(&self, call: &'static str, recv: &Buf) -> Result<()> {
        let (sent, room) = (self.packed(call)?, recv.packed(call)?);
        if sent != room {
            let (ours, theirs) = (Content::of(self.datatype(), sent), Content::of(recv.datatype(), room));
            return Err(Error::new(
                ErrorClass::Count,
                call,
                format!("{ours} to send, {theirs} to receive: {sent} and {room} bytes"),
            ));
        }
        // A rank's own block is copied without a message, so the types are compared only here.
        let (mine, theirs) = (self.datatype(), recv.datatype());
        let whole = |items: &Buf| items.datatype().signature().repeat(items.count() as u64);
        let is_one =
            mine.single_primitive().is_some() && mine.single_primitive() == theirs.single_primitive();
        if sent > 0 && !is_one && whole(self) != whole(recv) {
            let (ours, theirs) = (Content::of(mine, sent), Content::of(theirs, room));
            return Err(Error::new(
                ErrorClass::Type,
                call,
                format!("{ours} to send, and {theirs} to receive"),
            ));
        }
        Ok(())
    }

    #[inline]
    fn combine(&self, call: &'static str, op: &Op) -> Result<()> {
        match op.unsupported_reason(self.datatype()) {
            Some(why) => Err(Error::new(ErrorClass::Op, call, why)),
            None => Ok(()),
        }
    }
}

/// The position of each rank's block in a buffer, in items from its start.
#[derive(Clone, Copy, Debug)]
pub enum BlockLayout<'a> {
    /// Blocks of this many items, one after the other.
    Uniform(usize),
    /// Blocks of equal size that divide the whole buffer.
    EvenSplit,
    /// Blocks of different sizes at explicit displacements.
    Varying {
        /// The number of items of each rank.
        counts: &'a [usize],
        /// The index of the first item of each rank.
        displacements: &'a [usize],
    },
}

impl<'a> BlockLayout<'a> {
    /// Returns the name of the call: `even` for blocks of equal size, otherwise `varying`.
    pub(super) fn name(&self, even: &'static str, varying: &'static str) -> &'static str {
        match self {
            BlockLayout::Uniform(_) | BlockLayout::EvenSplit => even,
            BlockLayout::Varying { .. } => varying,
        }
    }

    pub(super) fn block(&self, rank: u32) -> (usize, usize) {
        match self {
            BlockLayout::Uniform(count) => (rank as usize * count, *count),
            BlockLayout::EvenSplit => (0, 0),
            BlockLayout::Varying { counts, displacements } => {
                (displacements[rank as usize], counts[rank as usize])
            }
        }
    }

    /// Resolves the layout of `items` to send; fails if a block exceeds them.
    pub(super) fn to_send(self, call: &'static str, size: u32, items: usize) -> Result<BlockLayout<'a>> {
        let layout = match self {
            BlockLayout::EvenSplit if !items.is_multiple_of(size as usize) => {
                let why = format!("{items} items cannot be dealt evenly to {size} ranks");
                return Err(Error::new(ErrorClass::Count, call, why));
            }
            BlockLayout::EvenSplit => BlockLayout::Uniform(items / size as usize),
            layout => layout,
        };
        layout.check(call, size, items)?;
        Ok(layout)
    }

    /// Resolves the layout of `items` to receive; fails if a block exceeds them, or if two blocks overlap.
    pub(super) fn to_receive(self, call: &'static str, size: u32, items: usize) -> Result<BlockLayout<'a>> {
        let layout = self.to_send(call, size, items)?;
        if let BlockLayout::Varying { .. } = layout {
            let mut parts: Vec<(usize, usize, u32)> =
                (0..size).map(|r| (layout.block(r), r)).map(|((at, count), r)| (at, count, r)).collect();
            parts.retain(|(_, count, _)| *count > 0);
            parts.sort_unstable();
            let overlap = parts.windows(2).find(|two| two[0].0 + two[0].1 > two[1].0);
            if let Some([(.., one), (.., other)]) = overlap {
                let why = format!("the parts of ranks {one} and {other} overlap where they are received");
                return Err(Error::new(ErrorClass::Arg, call, why));
            }
        }
        Ok(layout)
    }

    /// Checks that the blocks of all ranks lie within `items`.
    fn check(&self, call: &'static str, size: u32, items: usize) -> Result<()> {
        if let BlockLayout::Varying { counts, displacements } = self
            && (counts.len() != size as usize || displacements.len() != size as usize)
        {
            let (c, d) = (counts.len(), displacements.len());
            let why = format!("{c} counts and {d} displacements for {size} ranks");
            return Err(Error::new(ErrorClass::Arg, call, why));
        }
        let outside = |end: Option<usize>| end.is_none_or(|end| end > items);
        let why = match self {
            BlockLayout::Uniform(count) => outside(count.checked_mul(size as usize))
                .then(|| format!("{count} items for each of {size} ranks, room for {items}")),
            BlockLayout::EvenSplit => None,
            BlockLayout::Varying { .. } => (0..size)
                .map(|rank| (rank, self.block(rank)))
                .find(|(_, (at, count))| *count > 0 && outside(at.checked_add(*count)))
                .map(|(rank, (at, count))| {
                    format!("{count} items of rank {rank} at displacement {at}, room for {items}")
                }),
        };
        why.map_or(Ok(()), |why| Err(Error::new(ErrorClass::Count, call, why)))
    }

    /// Returns the number of bytes of all blocks of `items`, if they can be sent.
    pub(super) fn total(&self, call: &'static str, size: u32, items: &Buf) -> Result<usize> {
        match items.bytes() {
            // The number of bytes of all items may overflow while that of the blocks does not.
            Ok(_) | Err(BufError::TooLarge { .. }) => (),
            Err(error) => return Err(Error::buf(call, error)),
        }
        let count = (0..size).try_fold(0usize, |sum, r| sum.checked_add(self.block(r).1));
        count
            .and_then(|count| items.datatype().packed_size(count).ok())
            .ok_or_else(|| too_large(call, items.count()))
    }
}

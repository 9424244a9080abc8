//! The buffers of collectives: the layout of the ranks' blocks, and checks that need no messages.

use mpj_collectives::{BufIndex, Span};
use mpj_devices::{Buf, BufError, Content, Origin};

use super::p2p::{check_disjoint, too_large};
use crate::error::{Error, ErrorClass, Result};
use crate::op::Op;

pub(super) trait CollBuf: Sized {
    /// Returns `None` for `MPI_IN_PLACE`: the items are in the call's other buffer.
    fn not_in_place(&self) -> Option<&Self>;

    fn full_span(&self, buf: BufIndex) -> Span;

    fn packed_bytes(&self, call: &'static str) -> Result<usize>;

    fn block_of(&self, layout: &BlockLayout<'_>, rank: u32) -> Self;

    fn check_receivable(&self, call: &'static str) -> Result<()>;

    /// Checks that the buffers do not overlap. Does not detect overlaps of buffers with gaps or of several pieces.
    fn check_no_alias(&self, call: &'static str, other: &Self) -> Result<()>;

    /// Checks that the send buffer matches the receive buffer in size and type signature. If they are parts of larger
    /// buffers, `blocks` describes these for the error text.
    fn check_same_amount(&self, call: &'static str, recv: &Self, blocks: &RankBlocks<'_>) -> Result<()>;

    fn check_op(&self, call: &'static str, op: &Op) -> Result<()>;
}

impl CollBuf for Buf {
    #[inline]
    fn not_in_place(&self) -> Option<&Buf> {
        (!self.is_in_place()).then_some(self)
    }

    #[inline]
    fn full_span(&self, buf: BufIndex) -> Span {
        Span::new(buf, 0, self.count())
    }

    #[inline]
    fn packed_bytes(&self, call: &'static str) -> Result<usize> {
        self.bytes().map_err(|error| Error::buf(call, error))
    }

    #[inline]
    fn block_of(&self, layout: &BlockLayout<'_>, rank: u32) -> Buf {
        let (at, count) = layout.block(rank);
        self.part(at, count)
    }

    #[inline]
    fn check_receivable(&self, call: &'static str) -> Result<()> {
        if let Origin::Chain(_) = self.origin() {
            return Err(Error::buf(call, BufError::Chain));
        }
        self.packed_bytes(call)?;
        check_disjoint(call, self)
    }

    #[inline]
    fn check_no_alias(&self, call: &'static str, other: &Buf) -> Result<()> {
        // Items with gaps may interleave with those of the other buffer.
        let range = |items: &Buf| {
            let is_run = items.datatype().is_contiguous() && items.pieces().is_none();
            let start = items.base().addr();
            let len = items.datatype().size().saturating_mul(items.count());
            is_run.then(|| (start, start.saturating_add(len)))
        };
        match (range(self), range(other)) {
            (Some(a), Some(b)) if a.0.max(b.0) < a.1.min(b.1) => {
                let why = "send and receive buffer overlap; use the *_in_place call";
                Err(Error::new(ErrorClass::Buffer, call, why))
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn check_same_amount(&self, call: &'static str, recv: &Buf, blocks: &RankBlocks<'_>) -> Result<()> {
        let (send_bytes, recv_bytes) = (self.packed_bytes(call)?, recv.packed_bytes(call)?);
        let error = |class, with_bytes| {
            let ours = describe(self, send_bytes, blocks.send.as_ref(), with_bytes);
            let theirs = describe(recv, recv_bytes, blocks.recv.as_ref(), with_bytes);
            Err(Error::new(class, call, format!("send buffer has {ours}, receive buffer {theirs}")))
        };
        if send_bytes != recv_bytes {
            return error(ErrorClass::Count, true);
        }
        // A rank's own block is copied without a message, so the types are compared only here.
        let signature = |items: &Buf| items.datatype().signature().repeat(items.count() as u64);
        let primitive = self.datatype().single_primitive();
        let same_primitive = primitive.is_some() && primitive == recv.datatype().single_primitive();
        if send_bytes > 0 && !same_primitive && signature(self) != signature(recv) {
            return error(ErrorClass::Type, false);
        }
        Ok(())
    }

    #[inline]
    fn check_op(&self, call: &'static str, op: &Op) -> Result<()> {
        let why = match op {
            Op::Replace | Op::NoOp => Some(format!("{op:?} is only for reduce_local")),
            _ => op.unsupported_reason(self.datatype()),
        };
        why.map_or(Ok(()), |why| Err(Error::new(ErrorClass::Op, call, why)))
    }
}

/// The layouts of the buffers of a call that consist of a block for each rank.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RankBlocks<'a> {
    send: Option<Block<'a>>,
    recv: Option<Block<'a>>,
}

/// The block of one rank in a buffer.
#[derive(Clone, Copy, Debug)]
struct Block<'a> {
    layout: BlockLayout<'a>,
    rank: u32,
    size: u32,
    /// The number of items of the whole buffer.
    items: usize,
}

impl<'a> RankBlocks<'a> {
    #[inline]
    pub(super) fn with_send(self, layout: BlockLayout<'a>, rank: u32, size: u32, whole: &Buf) -> Self {
        RankBlocks { send: Some(Block { layout, rank, size, items: whole.count() }), ..self }
    }

    #[inline]
    pub(super) fn with_recv(self, layout: BlockLayout<'a>, rank: u32, size: u32, whole: &Buf) -> Self {
        RankBlocks { recv: Some(Block { layout, rank, size, items: whole.count() }), ..self }
    }
}

/// Describes the contents of a buffer, or of the block of a rank: `9 × u8: 3 × u8 (3 bytes) for each of 3 ranks`.
#[cold]
fn describe(items: &Buf, bytes: usize, block: Option<&Block<'_>>, with_bytes: bool) -> String {
    let mut text = Content::of(items.datatype(), bytes).to_string();
    if with_bytes {
        text += &format!(" ({bytes} {})", if bytes == 1 { "byte" } else { "bytes" });
    }
    match block {
        None => text,
        Some(Block { layout: BlockLayout::Varying { .. }, rank, .. }) => format!("{text} for rank {rank}"),
        Some(Block { size, items: all, .. }) => {
            let whole = Content::of(items.datatype(), items.datatype().size().saturating_mul(*all));
            format!("{whole}: {text} for each of {size} ranks")
        }
    }
}

/// The position of the block of each rank, or of each neighbour, in a buffer, in items from its start.
#[derive(Clone, Copy, Debug)]
pub enum BlockLayout<'a> {
    /// Blocks of this many items, one after the other.
    Uniform(usize),
    /// Blocks of equal size that divide the whole buffer among the ranks.
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
    /// Returns `varying` for blocks of different sizes, `even` otherwise.
    #[inline]
    pub(super) fn choose<T>(&self, even: T, varying: T) -> T {
        match self {
            BlockLayout::Uniform(_) | BlockLayout::EvenSplit => even,
            BlockLayout::Varying { .. } => varying,
        }
    }

    /// Returns the counts of blocks of different sizes.
    pub(super) fn counts(&self) -> &'a [usize] {
        match *self {
            BlockLayout::Varying { counts, .. } => counts,
            BlockLayout::Uniform(_) | BlockLayout::EvenSplit => &[],
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

    pub(super) fn span(&self, buf: BufIndex, rank: u32) -> Span {
        let (at, count) = self.block(rank);
        Span::new(buf, at, count)
    }

    /// Replaces `EvenSplit` by `Uniform`; fails if the layout does not fit the ranks or the buffer. The error of an
    /// uneven split names the expected length, computed from `block`, the buffer of this rank's block.
    pub(super) fn resolve_send(
        self,
        call: &'static str,
        size: u32,
        items: &Buf,
        block: Option<&Buf>,
    ) -> Result<BlockLayout<'a>> {
        self.resolve(call, "send buffer", size, items, block)
    }

    /// As [`resolve_send`](Self::resolve_send); also fails if two blocks overlap.
    pub(super) fn resolve_receive(
        self,
        call: &'static str,
        size: u32,
        items: &Buf,
        block: Option<&Buf>,
    ) -> Result<BlockLayout<'a>> {
        let layout = self.resolve(call, "receive buffer", size, items, block)?;
        if let BlockLayout::Varying { .. } = layout {
            let mut blocks: Vec<(usize, usize, u32)> =
                (0..size).map(|r| (layout.block(r), r)).map(|((at, count), r)| (at, count, r)).collect();
            blocks.retain(|(_, count, _)| *count > 0);
            blocks.sort_unstable();
            let overlap = blocks.windows(2).find(|two| two[0].0 + two[0].1 > two[1].0);
            if let Some([(.., one), (.., other)]) = overlap {
                let why = format!("blocks of ranks {one} and {other} overlap in the receive buffer");
                return Err(Error::new(ErrorClass::Arg, call, why));
            }
        }
        Ok(layout)
    }

    fn resolve(
        self,
        call: &'static str,
        name: &'static str,
        size: u32,
        items: &Buf,
        block: Option<&Buf>,
    ) -> Result<BlockLayout<'a>> {
        let layout = match self {
            BlockLayout::EvenSplit if !items.count().is_multiple_of(size as usize) => {
                let expected = match block.and_then(|block| items_of_block(items, block)) {
                    Some(count) => {
                        format!("{}: {count} for each of {size} ranks", count.saturating_mul(size as usize))
                    }
                    None => format!("a multiple of {size}, the number of ranks"),
                };
                let (found, s) = (items.count(), if items.count() == 1 { "" } else { "s" });
                let why = format!("{name} has {found} item{s}, expected {expected}");
                return Err(Error::new(ErrorClass::Count, call, why));
            }
            BlockLayout::EvenSplit => BlockLayout::Uniform(items.count() / size as usize),
            layout => layout,
        };
        layout.check(call, size, items.count())?;
        Ok(layout)
    }

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
            BlockLayout::Uniform(count) => outside(count.checked_mul(size as usize)).then(|| {
                format!("buffer of {items} items is too short for {count} items of each of {size} ranks")
            }),
            BlockLayout::EvenSplit => None,
            BlockLayout::Varying { .. } => (0..size)
                .map(|rank| (rank, self.block(rank)))
                .find(|(_, (at, count))| *count > 0 && outside(at.checked_add(*count)))
                .map(|(rank, (at, count))| {
                    format!("{count} items of rank {rank} at displacement {at} exceed the buffer of {items}")
                }),
        };
        why.map_or(Ok(()), |why| Err(Error::new(ErrorClass::Count, call, why)))
    }

    /// Returns the number of bytes in all blocks of `items`.
    pub(super) fn total(&self, call: &'static str, size: u32, items: &Buf) -> Result<usize> {
        match items.bytes() {
            // The size of the whole buffer can overflow while that of the blocks does not.
            Ok(_) | Err(BufError::TooLarge { .. }) => (),
            Err(error) => return Err(Error::buf(call, error)),
        }
        let count = (0..size).try_fold(0usize, |sum, r| sum.checked_add(self.block(r).1));
        count
            .and_then(|count| items.datatype().packed_size(count).ok())
            .ok_or_else(|| too_large(call, items.count()))
    }
}

/// Returns the length of `block` in items of the type of `items`; `None` if that is not a positive whole number.
fn items_of_block(items: &Buf, block: &Buf) -> Option<usize> {
    let (bytes, size) = (block.bytes().ok()?, items.datatype().size());
    (size > 0 && bytes > 0 && bytes.is_multiple_of(size)).then(|| bytes / size)
}

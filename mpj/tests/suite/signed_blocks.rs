//! Blocks at signed displacements, as C programs pass them.
#![expect(unsafe_code, reason = "the blocks are in buffers that outlive the calls")]

use crate::common::{ranks, samples};
use mpj::raw::{self, BlockLayout, Buf};
use mpj::topology::Dim;
use mpj::{Datatype, ErrorClass, Primitive, Reorder};

/// The distance between two blocks, which is longer than each of them.
const STRIDE: usize = 4;

/// Blocks in one vector, before and after its middle, from the last one to the first.
struct Blocks {
    counts: Vec<usize>,
    displacements: Vec<isize>,
    items: Vec<u32>,
}

impl Blocks {
    /// `of` returns the items of a block.
    fn new(counts: Vec<usize>, of: impl Fn(usize) -> Vec<u32>) -> Self {
        let blocks = counts.len();
        let start = |block: usize| (STRIDE * (blocks - block)) as isize - (STRIDE * blocks / 2) as isize - 3;
        let displacements: Vec<isize> = (0..blocks).map(start).collect();
        let mut new = Blocks { counts, displacements, items: vec![u32::MAX; STRIDE * (2 * blocks + 2)] };
        for block in 0..blocks {
            let at = new.middle().checked_add_signed(new.displacements[block]).expect("in the vector");
            new.items[at..][..new.counts[block]].copy_from_slice(&of(block));
        }
        new
    }

    /// Returns blocks to receive into.
    fn blank(counts: Vec<usize>) -> Self {
        let blank = [u32::MAX; STRIDE];
        Blocks::new(counts.clone(), |block| blank[..counts[block]].to_vec())
    }

    fn middle(&self) -> usize {
        self.items.len() / 2
    }

    fn buf(&mut self) -> mpj::Result<(Buf, Vec<usize>)> {
        let middle = self.middle();
        let base = self.items.as_mut_ptr().wrapping_add(middle).cast();
        raw::buf_of_blocks(base, Primitive::U32.into(), &self.counts, &self.displacements)
    }

    fn layout<'a>(&'a self, starts: &'a [usize]) -> BlockLayout<'a> {
        BlockLayout::Varying { counts: &self.counts, displacements: starts }
    }
}

/// The number of items from one rank to another, which is 0 for some.
fn len(from: usize, to: usize) -> usize {
    (from * 2 + to + 1) % STRIDE
}

/// The items from one rank to another.
fn sent(from: usize, to: usize) -> Vec<u32> {
    samples(from, 10 * to, len(from, to))
}

#[test]
fn blocks_before_and_after_the_base_are_gathered() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let (me, root, comm) = (world.rank(), size - 1, world.as_raw());
            let counts: Vec<usize> = (0..size).map(|from| len(from, 0)).collect();
            let expected = Blocks::new(counts.clone(), |from| sent(from, 0)).items;
            let mine = sent(me, 0);
            let mut all = Blocks::blank(counts.clone());
            let (recv, starts) = all.buf()?;
            // SAFETY: the blocks are in `all`, which is not accessed before the call has returned.
            unsafe { raw::allgather(comm, &Buf::slice(&mine), &recv, all.layout(&starts))? };
            assert_eq!(all.items, expected);
            let mut all = Blocks::blank(counts.clone());
            let (recv, starts) = all.buf()?;
            // SAFETY: as above.
            unsafe { raw::gather(comm, &Buf::slice(&mine), &recv, all.layout(&starts), root as i32)? };
            assert_eq!(all.items, if me == root { expected } else { Blocks::blank(counts).items });
            Ok(())
        });
    }
}

#[test]
fn blocks_before_and_after_the_base_are_scattered() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let (me, root) = (world.rank(), size - 1);
            let counts: Vec<usize> = (0..size).map(|to| len(root, to)).collect();
            // The root alone has the items.
            let mut all = match me == root {
                true => Blocks::new(counts, |to| sent(root, to)),
                false => Blocks::blank(counts),
            };
            let mut mine = vec![u32::MAX; len(root, me)];
            let (send, starts) = all.buf()?;
            let recv = Buf::slice_mut(&mut mine);
            // SAFETY: the blocks are in `all`, which is not accessed before the call has returned.
            unsafe { raw::scatter(world.as_raw(), &send, all.layout(&starts), &recv, root as i32)? };
            assert_eq!(mine, sent(root, me));
            Ok(())
        });
    }
}

#[test]
fn blocks_before_and_after_both_bases_are_exchanged() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let me = world.rank();
            let mut out = Blocks::new((0..size).map(|to| len(me, to)).collect(), |to| sent(me, to));
            let back: Vec<usize> = (0..size).map(|from| len(from, me)).collect();
            let mut got = Blocks::blank(back.clone());
            let ((send, from), (recv, into)) = (out.buf()?, got.buf()?);
            let (out_layout, back_layout) = (out.layout(&from), got.layout(&into));
            // SAFETY: the blocks are in `out` and `got`, which are not accessed before the call has returned.
            unsafe { raw::alltoall(world.as_raw(), &send, out_layout, &recv, back_layout)? };
            assert_eq!(got.items, Blocks::new(back, |from| sent(from, me)).items);
            Ok(())
        });
    }
}

/// On a ring, the rank before this one sends its block 1, and the rank after it its block 0.
#[test]
fn neighbours_exchange_blocks_before_and_after_the_base() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let ring = world.cart(&[Dim::periodic(size)], Reorder::No)?.expect("a cell for each rank");
            let (comm, me) = (ring.as_raw(), ring.rank());
            let around = [((me + size - 1) % size, 1), ((me + 1) % size, 0)];
            let counts: Vec<usize> = around.iter().map(|(from, _)| len(*from, 0)).collect();
            let mine = sent(me, 0);
            let mut got = Blocks::blank(counts.clone());
            let (recv, into) = got.buf()?;
            // SAFETY: the blocks are in `got`, which is not accessed before the call has returned.
            unsafe { raw::neighbor_allgather(comm, &Buf::slice(&mine), &recv, got.layout(&into))? };
            assert_eq!(got.items, Blocks::new(counts, |at| sent(around[at].0, 0)).items);

            let mut out = Blocks::new((0..2).map(|block| len(me, block)).collect(), |block| sent(me, block));
            let counts: Vec<usize> = around.iter().map(|(from, block)| len(*from, *block)).collect();
            let mut got = Blocks::blank(counts.clone());
            let ((send, from), (recv, into)) = (out.buf()?, got.buf()?);
            let (out_layout, back_layout) = (out.layout(&from), got.layout(&into));
            // SAFETY: as above.
            unsafe { raw::neighbor_alltoall(comm, &send, out_layout, &recv, back_layout)? };
            assert_eq!(got.items, Blocks::new(counts, |at| sent(around[at].0, around[at].1)).items);
            Ok(())
        });
    }
}

#[test]
fn positions_of_empty_blocks_have_no_meaning() {
    let mut items = [0u8; 4];
    let base = items.as_mut_ptr();
    let u8s = || Datatype::of::<u8>();
    let (buf, starts) = raw::buf_of_blocks(base, u8s(), &[0, 2, 0, 1], &[isize::MIN, 1, isize::MAX, 3])
        .expect("the blocks are in the address space");
    assert_eq!((buf.count(), buf.base(), starts), (3, base.wrapping_add(1), vec![0, 0, 0, 2]));
    let (buf, starts) = raw::buf_of_blocks(base, u8s(), &[0], &[5]).expect("no items");
    assert_eq!((buf.count(), buf.base(), starts), (0, base, vec![0]));
    let (buf, _) = raw::buf_of_blocks(base, u8s(), &[], &[]).expect("no blocks");
    assert_eq!(buf.count(), 0);
}

#[test]
fn invalid_blocks_are_refused() {
    let base = std::ptr::null_mut();
    let class = |datatype: Datatype, counts: &[usize], displacements: &[isize]| {
        raw::buf_of_blocks(base, datatype, counts, displacements).expect_err("invalid").class()
    };
    let (u8s, u64s) = (Datatype::of::<u8>(), Datatype::of::<u64>());
    assert_eq!(class(u8s.clone(), &[1, 2], &[0]), ErrorClass::Arg);
    assert_eq!(class(u8s.clone(), &[usize::MAX], &[0]), ErrorClass::Count);
    assert_eq!(class(u8s, &[1], &[isize::MAX]), ErrorClass::Count);
    assert_eq!(class(u64s, &[1], &[isize::MIN / 2]), ErrorClass::Count);
}

//! Loops that pack and unpack, as in a program without datatypes.

use std::fmt;

pub(super) trait RunStarts: Clone + 'static {
    /// Calls `visit` with the start of each run, in order.
    fn walk(&self, visit: impl FnMut(usize));
}

/// Runs in two nested loops. The counts are in runs, the strides in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct NestedLoop {
    pub(super) start: usize,
    pub(super) outer: usize,
    pub(super) outer_stride: usize,
    pub(super) inner: usize,
    pub(super) inner_stride: usize,
}

impl NestedLoop {
    pub(super) fn line(count: usize, stride: usize) -> NestedLoop {
        NestedLoop { start: 0, outer: count, outer_stride: stride, inner: 1, inner_stride: 0 }
    }
}

impl RunStarts for NestedLoop {
    #[inline]
    fn walk(&self, mut visit: impl FnMut(usize)) {
        for i in 0..self.outer {
            let row = self.start + i * self.outer_stride;
            for j in 0..self.inner {
                visit(row + j * self.inner_stride);
            }
        }
    }
}

/// Runs at listed indices, which have 32 bits as in the C program `ddt.c`.
#[derive(Clone, Debug)]
pub(super) struct List {
    start: usize,
    scale: usize,
    indices: Vec<u32>,
}

impl List {
    /// Makes runs that start at `start + scale * index`.
    pub(super) fn new(start: usize, scale: usize, indices: &[usize]) -> List {
        List { start, scale, indices: indices.iter().map(|at| *at as u32).collect() }
    }
}

impl RunStarts for List {
    #[inline]
    fn walk(&self, mut visit: impl FnMut(usize)) {
        for at in &self.indices {
            visit(self.start + self.scale * *at as usize);
        }
    }
}

type Pack<T> = Box<dyn Fn(&[T], &mut [T])>;
type Unpack<T> = Box<dyn Fn(&mut [T], &[T])>;

/// A loop that packs `elements` elements, and one that unpacks them.
pub(super) struct ManualLoops<T> {
    pub(super) elements: usize,
    pub(super) pack: Pack<T>,
    pub(super) unpack: Unpack<T>,
}

impl<T> fmt::Debug for ManualLoops<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualLoops").field("elements", &self.elements).finish_non_exhaustive()
    }
}

fn count(walk: &impl RunStarts) -> usize {
    let mut runs = 0;
    walk.walk(|_| runs += 1);
    runs
}

impl<T: Copy + 'static> ManualLoops<T> {
    /// Makes the loops for runs of `L` elements.
    pub(super) fn fixed<const L: usize, W: RunStarts>(walk: W) -> Self {
        let (elements, unpack_walk) = (L * count(&walk), walk.clone());
        let pack = move |data: &[T], out: &mut [T]| {
            let mut out = out.as_chunks_mut::<L>().0.iter_mut();
            walk.walk(|at| {
                if let (Some(run), Some(from)) = (out.next(), data[at..].first_chunk()) {
                    *run = *from;
                }
            });
        };
        let unpack = move |data: &mut [T], from: &[T]| {
            let mut from = from.as_chunks::<L>().0.iter();
            unpack_walk.walk(|at| {
                if let (Some(run), Some(into)) = (from.next(), data[at..].first_chunk_mut()) {
                    *into = *run;
                }
            });
        };
        ManualLoops { elements, pack: Box::new(pack), unpack: Box::new(unpack) }
    }

    /// Makes the loops for runs of `len` elements.
    pub(super) fn runs(walk: impl RunStarts, len: usize) -> Self {
        let (elements, unpack_walk) = (len * count(&walk), walk.clone());
        let pack = move |data: &[T], out: &mut [T]| {
            let mut out = out.chunks_exact_mut(len);
            walk.walk(|at| {
                if let Some(run) = out.next() {
                    run.copy_from_slice(&data[at..][..len]);
                }
            });
        };
        let unpack = move |data: &mut [T], from: &[T]| {
            let mut from = from.chunks_exact(len);
            unpack_walk.walk(|at| {
                if let Some(run) = from.next() {
                    data[at..][..len].copy_from_slice(run);
                }
            });
        };
        ManualLoops { elements, pack: Box::new(pack), unpack: Box::new(unpack) }
    }

    /// Makes the loops for `count` runs of `L` elements, each followed by a gap of the same length.
    pub(super) fn every_second<const L: usize>(count: usize) -> Self {
        let pack = |data: &[T], out: &mut [T]| {
            for (run, from) in out.as_chunks_mut::<L>().0.iter_mut().zip(data.chunks_exact(2 * L)) {
                run.copy_from_slice(&from[..L]);
            }
        };
        let unpack = |data: &mut [T], from: &[T]| {
            for (run, into) in from.as_chunks::<L>().0.iter().zip(data.chunks_exact_mut(2 * L)) {
                into[..L].copy_from_slice(run);
            }
        };
        ManualLoops { elements: L * count, pack: Box::new(pack), unpack: Box::new(unpack) }
    }
}

//! The contenders: allocators of blocks, timed in monomorphic loops.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Mutex;

use mpj_pool::{Pool, RawBuffer};

use super::helper_thread::{PairBarrier, Ring};
use super::patterns::{AllocPattern, PatternRun};
use super::stream::{LIVE_BLOCKS, Random, STEPS, Stream};
use crate::perf::stats::now_ns;

/// A block, which is freed when it is dropped.
pub(super) trait Block: Send + 'static {
    fn bytes(&mut self) -> &mut [MaybeUninit<u8>];
}

pub(super) trait BlockSource: Send + Sync + 'static {
    type Block: Block;

    /// Allocates a block of at least `len` bytes. Returns `None` if the memory is exhausted, or if the source has only
    /// blocks of another size.
    fn alloc(&self, len: usize) -> Option<Self::Block>;
}

pub(super) struct Ours<P>(pub(super) P);

impl<R: RawBuffer + 'static> Block for R {
    #[inline(always)]
    fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        self.as_uninit_mut()
    }
}

impl<P: Pool + 'static> BlockSource for Ours<P> {
    type Block = P::Block;

    #[inline(always)]
    fn alloc(&self, len: usize) -> Option<P::Block> {
        self.0.alloc(len).ok()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) strategy: &'static str,
    pub(super) storage: &'static str,
    pub(super) kind: Kind,
}

/// The kind of a contender, which determines its comparisons and its title.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A strategy of this project.
    Ours,
    /// A general allocator.
    General,
    /// An allocator within one region, behind a lock.
    #[cfg_attr(not(feature = "comparators"), allow(dead_code, reason = "all are comparators"))]
    Arena,
    /// A pool of objects of one size.
    #[cfg_attr(not(feature = "comparators"), allow(dead_code, reason = "all are comparators"))]
    Fixed,
    /// A measurement without a pool. It is not compared with others.
    Baseline,
}

pub(super) trait Contender: Sync {
    fn name(&self) -> Name;

    fn supports(&self, pattern: AllocPattern) -> bool {
        !matches!(pattern, AllocPattern::Fixed | AllocPattern::Start)
    }

    /// Prepares calls of [`run`](Self::run) and [`assist`](Self::assist).
    fn prepare(&self) {}

    /// Returns the nanoseconds of all calls, divided by the blocks per call, or `None` if a call fails.
    fn run(&self, run: PatternRun) -> Option<u64>;

    /// Runs the part of the second thread, in patterns with two threads.
    fn assist(&self, _: PatternRun) {}

    /// Frees the blocks that live between rounds.
    fn release(&self) {}

    /// Allocates the mix's live blocks, then performs `steps` steps. Returns the peak of requested bytes.
    fn peak_of_mix(&self, _steps: usize) -> Option<usize> {
        None
    }
}

pub(super) struct PoolContender<S: BlockSource> {
    name: Name,
    source: S,
    mix: Mutex<Mix<S::Block>>,
    barrier: PairBarrier,
    ring: Ring<S::Block>,
}

struct Mix<B> {
    live: Vec<Option<B>>,
    stream: Stream,
}

/// The number of live blocks of each thread in [`AllocPattern::Pair`].
const PAIR_BLOCKS: usize = 16;
/// The number of blocks that are written before the first is freed.
const TOUCH_BLOCKS: usize = 8;

impl<S: BlockSource> PoolContender<S> {
    pub(super) fn new(name: Name, source: S) -> Self {
        let mix = Mutex::new(Mix { live: Vec::new(), stream: Stream::new() });
        PoolContender { name, source, mix, barrier: PairBarrier::default(), ring: Ring::default() }
    }

    fn one(&self, bytes: usize, calls: usize) -> Option<u64> {
        let start = now_ns();
        for _ in 0..calls {
            write_head(&mut self.source.alloc(black_box(bytes))?);
        }
        Some(now_ns() - start)
    }

    fn mix(&self, calls: usize) -> Option<u64> {
        let mut mix = self.mix.lock().ok()?;
        let Mix { live, stream } = &mut *mix;
        while live.len() < LIVE_BLOCKS {
            live.push(Some(self.source.alloc(stream.next().bytes)?));
        }
        let mut repeat = |calls| {
            for _ in 0..calls {
                let step = stream.next();
                let slot = &mut live[step.place];
                *slot = None;
                let mut block = self.source.alloc(step.bytes)?;
                write_head(&mut block);
                *slot = Some(block);
            }
            Some(())
        };
        // Other contenders have run in between, so warm the CPU caches.
        repeat(STEPS)?;
        let start = now_ns();
        repeat(calls)?;
        Some(now_ns() - start)
    }

    /// Frees and allocates among a few blocks of one size, while another thread does the same.
    fn pair(&self, bytes: usize, calls: usize, seed: u64) -> Option<u64> {
        let mut random = Random(seed);
        let mut live: Vec<_> = (0..PAIR_BLOCKS).map(|_| self.source.alloc(bytes)).collect();
        let mut repeat = |calls| {
            for _ in 0..calls {
                let slot = &mut live[random.below(PAIR_BLOCKS)];
                *slot = None;
                let mut block = self.source.alloc(black_box(bytes))?;
                write_head(&mut block);
                *slot = Some(block);
            }
            Some(now_ns())
        };
        repeat(calls / 8);
        self.barrier.wait();
        let start = now_ns();
        repeat(calls).map(|end| end - start)
    }

    fn produce(&self, bytes: usize, calls: usize) -> Option<u64> {
        let ring = self.ring.sender();
        // The other thread waits here even without a ring.
        self.barrier.wait();
        let mut ring = ring?;
        let mut send = |calls| {
            for _ in 0..calls {
                let mut block = self.source.alloc(black_box(bytes))?;
                write_head(&mut block);
                ring.push(block);
            }
            Some(())
        };
        send(calls / 8)?;
        let start = now_ns();
        send(calls)?;
        Some(now_ns() - start)
    }

    fn consume(&self) {
        self.barrier.wait();
        let Some(mut ring) = self.ring.receiver() else { return };
        ring.consume_until_dropped(|mut block| {
            black_box(block.bytes().first_chunk::<8>().copied());
        });
    }

    /// Writes all bytes of blocks, `many` of which are allocated before the first is freed.
    fn touch(&self, bytes: usize, calls: usize, many: usize) -> Option<u64> {
        let mut live = Vec::with_capacity(many);
        let mut repeat = |calls| {
            for _ in 0..calls {
                for _ in 0..many {
                    let mut block = self.source.alloc(black_box(bytes))?;
                    write_all(&mut block.bytes()[..bytes]);
                    live.push(block);
                }
                live.clear();
            }
            Some(())
        };
        repeat(1)?;
        let start = now_ns();
        repeat(calls)?;
        Some((now_ns() - start) / many as u64)
    }
}

impl<S: BlockSource> Contender for PoolContender<S> {
    fn name(&self) -> Name {
        self.name
    }

    fn supports(&self, pattern: AllocPattern) -> bool {
        match (pattern, self.name.kind) {
            (AllocPattern::Start, _) => false,
            // The default pool is compared with the pools of one size, too.
            (AllocPattern::Fixed, _) => self.name.kind == Kind::Fixed || self.name.strategy == "magazine",
            (AllocPattern::Mix | AllocPattern::Pair | AllocPattern::Handoff, _)
                if self.name.strategy == "unpooled" =>
            {
                false
            }
            _ => self.name.kind != Kind::Fixed,
        }
    }

    fn prepare(&self) {
        self.ring.renew();
    }

    fn run(&self, PatternRun { pattern, bytes, calls }: PatternRun) -> Option<u64> {
        match pattern {
            AllocPattern::One | AllocPattern::Fixed => self.one(bytes, calls),
            AllocPattern::Mix => self.mix(calls),
            AllocPattern::Pair => self.pair(bytes, calls, 1),
            AllocPattern::Handoff => self.produce(bytes, calls),
            AllocPattern::Touch => self.touch(bytes, calls, 1),
            AllocPattern::TouchMany => self.touch(bytes, calls, TOUCH_BLOCKS),
            AllocPattern::Start => None,
        }
    }

    fn assist(&self, PatternRun { pattern, bytes, calls }: PatternRun) {
        match pattern {
            AllocPattern::Pair => {
                // Only the time of the other thread is reported.
                let _ = self.pair(bytes, calls, 2);
            }
            AllocPattern::Handoff => self.consume(),
            _ => (),
        }
    }

    fn release(&self) {
        if let Ok(mut mix) = self.mix.lock() {
            *mix = Mix { live: Vec::new(), stream: Stream::new() };
        }
    }

    fn peak_of_mix(&self, steps: usize) -> Option<usize> {
        const PAGE: usize = 4096;
        let mut stream = Stream::new();
        let mut live: Vec<Option<S::Block>> = (0..LIVE_BLOCKS).map(|_| None).collect();
        let mut requested = [0; LIVE_BLOCKS];
        let (mut current, mut max) = (0, 0);
        for step in 0..LIVE_BLOCKS + steps {
            let next = stream.next();
            let slot = if step < LIVE_BLOCKS { step } else { next.place };
            live[slot] = None;
            let mut block = self.source.alloc(next.bytes)?;
            block.bytes()[..next.bytes].iter_mut().step_by(PAGE).for_each(|byte| {
                byte.write(1);
            });
            live[slot] = Some(block);
            current = current - requested[slot] + next.bytes;
            requested[slot] = next.bytes;
            max = max.max(current);
        }
        Some(max)
    }
}

#[inline(always)]
fn write_head<B: Block>(block: &mut B) {
    let bytes = block.bytes();
    bytes[..8].write_copy_of_slice(&1u64.to_ne_bytes());
    black_box(bytes.as_mut_ptr());
}

pub(super) fn write_all(bytes: &mut [MaybeUninit<u8>]) {
    bytes.fill(MaybeUninit::new(1));
    black_box(bytes.as_mut_ptr());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use mpj_pool::{Growth, Heap, Magazine};

    use super::*;

    #[test]
    fn handoff_without_a_ring_ends_on_both_threads() {
        let name = Name { strategy: "magazine", storage: "heap", kind: Kind::Ours };
        let pool = Magazine::growing(Growth::default(), Heap::create);
        let contender = Arc::new(PoolContender::new(name, Ours(pool)));
        let run = PatternRun { pattern: AllocPattern::Handoff, bytes: 64, calls: 8 };
        let assistant = Arc::clone(&contender);
        let assisting = std::thread::spawn(move || assistant.assist(run));
        // Without a call of `prepare`, the ring does not exist.
        assert_eq!(contender.run(run), None);
        let start = Instant::now();
        while !assisting.is_finished() && start.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert!(assisting.is_finished());
    }
}

//! The contenders: any allocator of blocks, timed in loops that know its type.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Mutex;

use mpj_pool::{Pool, RawBuffer};

use super::helper_thread::{Meet, Ring};
use super::stream::{LIVE, Random, STEPS, Stream};
use super::tests::{Task, Test};
use crate::perf::stats::now_ns;

/// A block of a contender, which is freed when it is dropped.
pub(super) trait Block: Send + 'static {
    fn bytes(&mut self) -> &mut [MaybeUninit<u8>];
}

/// An allocator of blocks.
pub(super) trait Source: Send + Sync + 'static {
    type Block: Block;

    /// Allocates a block of at least `len` bytes. Returns `None` if the memory is exhausted.
    fn get(&self, len: usize) -> Option<Self::Block>;
}

/// A pool of this project.
pub(super) struct Ours<P>(pub(super) P);

impl<R: RawBuffer + 'static> Block for R {
    #[inline(always)]
    fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        self.as_uninit_mut()
    }
}

impl<P: Pool + 'static> Source for Ours<P> {
    type Block = P::Block;

    #[inline(always)]
    fn get(&self, len: usize) -> Option<P::Block> {
        self.0.alloc(len).ok()
    }
}

/// The name of a contender, and its kind, which decides what it is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) strategy: &'static str,
    pub(super) storage: &'static str,
    pub(super) kind: Kind,
}

/// The kind of a contender.
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
    /// The cost of the test without allocating. It is not compared with others.
    Baseline,
}

/// A contender that can be timed.
pub(super) trait Contender: Sync {
    fn name(&self) -> Name;

    /// Returns whether this test can be run with the contender.
    fn takes(&self, test: Test) -> bool {
        !matches!(test, Test::Fixed | Test::Start)
    }

    /// Prepares a task that [`run`](Self::run) and [`assist`](Self::assist) will perform together.
    fn prepare(&self) {}

    /// Returns the nanoseconds of all calls, or `None` if the memory is exhausted.
    fn run(&self, task: Task) -> Option<u64>;

    /// Performs the second thread's part of a task for two threads.
    fn assist(&self, _: Task) {}

    /// Frees the blocks that are kept between rounds.
    fn rest(&self) {}

    /// Performs `steps` steps of the mix, writing to each page, and returns the peak number of bytes that were
    /// requested.
    fn fill(&self, _steps: usize) -> Option<usize> {
        None
    }
}

/// A source that takes part in the comparison.
pub(super) struct Entrant<S: Source> {
    name: Name,
    source: S,
    mix: Mutex<Mix<S::Block>>,
    meet: Meet,
    ring: Ring<S::Block>,
}

struct Mix<B> {
    live: Vec<Option<B>>,
    stream: Stream,
}

/// The number of blocks that each of two threads holds.
const PAIR: usize = 16;
/// The number of blocks that are written before the first one is freed.
const MANY: usize = 8;

impl<S: Source> Entrant<S> {
    pub(super) fn new(name: Name, source: S) -> Self {
        let mix = Mutex::new(Mix { live: Vec::new(), stream: Stream::new() });
        Entrant { name, source, mix, meet: Meet::default(), ring: Ring::default() }
    }

    fn one(&self, bytes: usize, calls: usize) -> Option<u64> {
        let start = now_ns();
        for _ in 0..calls {
            mark(&mut self.source.get(black_box(bytes))?);
        }
        Some(now_ns() - start)
    }

    fn mix(&self, calls: usize) -> Option<u64> {
        let mut mix = self.mix.lock().ok()?;
        let Mix { live, stream } = &mut *mix;
        while live.len() < LIVE {
            live.push(Some(self.source.get(stream.next().bytes)?));
        }
        let mut walk = |calls| {
            for _ in 0..calls {
                let step = stream.next();
                let place = &mut live[step.place];
                *place = None;
                let mut block = self.source.get(step.bytes)?;
                mark(&mut block);
                *place = Some(block);
            }
            Some(())
        };
        // Other contenders have run since, so refill the cache with the state of this one.
        walk(STEPS)?;
        let start = now_ns();
        walk(calls)?;
        Some(now_ns() - start)
    }

    /// Frees and allocates among a few blocks of one size, while another thread does the same.
    fn pair(&self, bytes: usize, calls: usize, seed: u64) -> Option<u64> {
        let mut random = Random(seed);
        let mut live: Vec<_> = (0..PAIR).map(|_| self.source.get(bytes)).collect();
        let mut walk = |calls| {
            for _ in 0..calls {
                let place = &mut live[random.below(PAIR)];
                *place = None;
                let mut block = self.source.get(black_box(bytes))?;
                mark(&mut block);
                *place = Some(block);
            }
            Some(now_ns())
        };
        walk(calls / 8);
        self.meet.wait();
        let start = now_ns();
        walk(calls).map(|end| end - start)
    }

    fn produce(&self, bytes: usize, calls: usize) -> Option<u64> {
        let mut ring = self.ring.sender()?;
        self.meet.wait();
        let mut send = |calls| {
            for _ in 0..calls {
                let mut block = self.source.get(black_box(bytes))?;
                mark(&mut block);
                ring.give(block);
            }
            Some(())
        };
        send(calls / 8)?;
        let start = now_ns();
        send(calls)?;
        Some(now_ns() - start)
    }

    fn consume(&self) {
        self.meet.wait();
        let Some(mut ring) = self.ring.receiver() else { return };
        ring.take_all(|mut block| {
            black_box(block.bytes().first_chunk::<8>().copied());
        });
    }

    /// Writes all bytes of blocks, `many` of which are allocated before the first one is freed.
    fn touch(&self, bytes: usize, calls: usize, many: usize) -> Option<u64> {
        let mut live = Vec::with_capacity(many);
        let mut walk = |calls| {
            for _ in 0..calls {
                for _ in 0..many {
                    let mut block = self.source.get(black_box(bytes))?;
                    write_all(&mut block.bytes()[..bytes]);
                    live.push(block);
                }
                live.clear();
            }
            Some(())
        };
        walk(1)?;
        let start = now_ns();
        walk(calls)?;
        Some((now_ns() - start) / many as u64)
    }
}

impl<S: Source> Contender for Entrant<S> {
    fn name(&self) -> Name {
        self.name
    }

    fn takes(&self, test: Test) -> bool {
        match (test, self.name.kind) {
            (Test::Start, _) => false,
            // The default pool is also compared with the pools of one size.
            (Test::Fixed, _) => self.name.kind == Kind::Fixed || self.name.strategy == "magazine",
            (Test::Mix | Test::Pair | Test::Handoff, _) if self.name.strategy == "unpooled" => false,
            _ => self.name.kind != Kind::Fixed,
        }
    }

    fn prepare(&self) {
        self.ring.renew();
    }

    fn run(&self, Task { test, bytes, calls }: Task) -> Option<u64> {
        match test {
            Test::One | Test::Fixed => self.one(bytes, calls),
            Test::Mix => self.mix(calls),
            Test::Pair => self.pair(bytes, calls, 1),
            Test::Handoff => self.produce(bytes, calls),
            Test::Touch => self.touch(bytes, calls, 1),
            Test::TouchMany => self.touch(bytes, calls, MANY),
            Test::Start => None,
        }
    }

    fn assist(&self, Task { test, bytes, calls }: Task) {
        match test {
            Test::Pair => {
                // Only the other thread's time is reported.
                let _ = self.pair(bytes, calls, 2);
            }
            Test::Handoff => self.consume(),
            _ => (),
        }
    }

    fn rest(&self) {
        if let Ok(mut mix) = self.mix.lock() {
            *mix = Mix { live: Vec::new(), stream: Stream::new() };
        }
    }

    fn fill(&self, steps: usize) -> Option<usize> {
        const PAGE: usize = 4096;
        let mut stream = Stream::new();
        let mut live: Vec<Option<S::Block>> = (0..LIVE).map(|_| None).collect();
        let mut asked = [0; LIVE];
        let (mut now, mut most) = (0, 0);
        for step in 0..LIVE + steps {
            let next = stream.next();
            let place = if step < LIVE { step } else { next.place };
            live[place] = None;
            let mut block = self.source.get(next.bytes)?;
            block.bytes()[..next.bytes].iter_mut().step_by(PAGE).for_each(|byte| {
                byte.write(1);
            });
            live[place] = Some(block);
            now = now - asked[place] + next.bytes;
            asked[place] = next.bytes;
            most = most.max(now);
        }
        Some(most)
    }
}

/// Writes the first eight bytes of a block, as any user of a block does.
#[inline(always)]
fn mark<B: Block>(block: &mut B) {
    let bytes = block.bytes();
    bytes[..8].write_copy_of_slice(&1u64.to_ne_bytes());
    black_box(bytes.as_mut_ptr());
}

/// Writes all bytes of a block.
pub(super) fn write_all(bytes: &mut [MaybeUninit<u8>]) {
    bytes.fill(MaybeUninit::new(1));
    black_box(bytes.as_mut_ptr());
}

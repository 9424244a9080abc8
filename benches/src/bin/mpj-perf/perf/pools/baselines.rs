//! Baselines: warm memory, the ring without blocks, and the creation of regions.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use mpj_pool::{
    AllocError, DefaultBlock, Heap, Pages, Pool, RawBuffer, SharedStorage, Storage, StorageError, global,
};

use super::contender::{Contender, Kind, Name, write_all};
use super::helper_thread::{PairBarrier, Ring};
use super::patterns::{AllocPattern, PatternRun};
use crate::perf::stats::now_ns;

pub(super) fn all() -> Result<Vec<Box<dyn Contender + Send>>, AllocError> {
    let mut all: Vec<Box<dyn Contender + Send>> =
        vec![Box::new(WarmMemset::new()?), Box::<BareRing>::default()];
    all.push(Box::new(Region { storage: "pages", make: |bytes| Pages::create(bytes).map(boxed) }));
    all.push(Box::new(Region { storage: "shared", make: |bytes| SharedStorage::create(bytes).map(boxed) }));
    all.push(Box::new(Region { storage: "heap", make: |bytes| Heap::create(bytes).map(boxed) }));
    Ok(all)
}

struct WarmMemset(Mutex<DefaultBlock>);

impl WarmMemset {
    fn new() -> Result<WarmMemset, AllocError> {
        let max = AllocPattern::Touch.sizes().into_iter().max().unwrap_or(0);
        Ok(WarmMemset(Mutex::new(global().alloc(max)?)))
    }
}

impl Contender for WarmMemset {
    fn name(&self) -> Name {
        Name { strategy: "memset", storage: "warm", kind: Kind::Baseline }
    }

    fn supports(&self, pattern: AllocPattern) -> bool {
        pattern == AllocPattern::Touch
    }

    fn run(&self, PatternRun { bytes, calls, .. }: PatternRun) -> Option<u64> {
        let mut block = self.0.lock().ok()?;
        let bytes = &mut block.as_uninit_mut()[..bytes];
        write_all(bytes);
        let start = now_ns();
        for _ in 0..calls {
            write_all(black_box(&mut *bytes));
        }
        Some(now_ns() - start)
    }
}

#[repr(align(64))]
struct Line(AtomicU64);

/// More lines than the ring can hold, so that a line is read before it is written again.
static LINES: [Line; 4 * Ring::<Message>::CAPACITY] =
    [const { Line(AtomicU64::new(0)) }; 4 * Ring::<Message>::CAPACITY];

/// About as large as the handle of a block.
type Message = (&'static Line, [usize; 3]);

#[derive(Default)]
struct BareRing {
    barrier: PairBarrier,
    ring: Ring<Message>,
}

impl Contender for BareRing {
    fn name(&self) -> Name {
        Name { strategy: "ring", storage: "alone", kind: Kind::Baseline }
    }

    fn supports(&self, pattern: AllocPattern) -> bool {
        pattern == AllocPattern::Handoff
    }

    fn prepare(&self) {
        self.ring.renew();
    }

    fn run(&self, PatternRun { calls, .. }: PatternRun) -> Option<u64> {
        let mut ring = self.ring.sender()?;
        self.barrier.wait();
        let mut send = |calls| {
            for call in 0..calls {
                let line = &LINES[call % LINES.len()];
                line.0.store(call as u64, Ordering::Relaxed);
                ring.push((line, black_box([call; 3])));
            }
        };
        send(calls / 8);
        let start = now_ns();
        send(calls);
        Some(now_ns() - start)
    }

    fn assist(&self, _: PatternRun) {
        self.barrier.wait();
        let Some(mut ring) = self.ring.receiver() else { return };
        ring.consume_until_dropped(|(line, rest)| {
            black_box((line.0.load(Ordering::Relaxed), rest));
        });
    }
}

/// Creates regions, as a growing pool does. The time to free them is not counted.
struct Region {
    storage: &'static str,
    make: fn(usize) -> Result<Box<dyn Storage>, StorageError>,
}

fn boxed<S: Storage>(storage: S) -> Box<dyn Storage> {
    Box::new(storage)
}

impl Contender for Region {
    fn name(&self) -> Name {
        Name { strategy: "region", storage: self.storage, kind: Kind::Baseline }
    }

    fn supports(&self, pattern: AllocPattern) -> bool {
        pattern == AllocPattern::Start
    }

    fn run(&self, PatternRun { bytes, calls, .. }: PatternRun) -> Option<u64> {
        let mut time = 0;
        for _ in 0..calls {
            let start = now_ns();
            let storage = (self.make)(bytes).ok()?;
            time += now_ns() - start;
            drop(storage);
        }
        Some(time)
    }
}

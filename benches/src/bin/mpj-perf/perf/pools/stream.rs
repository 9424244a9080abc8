//! The random frees and allocations of the pattern `mix`, the same sequence for all contenders.

pub(super) const LIVE_BLOCKS: usize = 256;

/// Steps before the stream repeats. Timed runs are whole repetitions, because its parts request different sizes.
pub(super) const STEPS: usize = 1 << 14;

/// The live block to free, and the size of the next block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) place: usize,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Stream {
    steps: Box<[Step]>,
    at: usize,
}

impl Stream {
    pub(super) fn new() -> Stream {
        let mut random = Random(1);
        let steps =
            (0..STEPS).map(|_| Step { place: random.below(LIVE_BLOCKS), bytes: random.size() }).collect();
        Stream { steps, at: 0 }
    }

    #[inline(always)]
    pub(super) fn next(&mut self) -> Step {
        self.at = (self.at + 1) % STEPS;
        self.steps[self.at]
    }
}

/// Knuth's MMIX generator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    #[inline(always)]
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 32) * end as u64) >> 32) as usize
    }

    /// Returns a size from 64 B to 8 MiB, in most cases a small one: 64 · 2^(17 u³).
    fn size(&mut self) -> usize {
        let u = self.below(1 << 24) as f64 / f64::from(1 << 24);
        (64.0 * (17.0 * u * u * u).exp2()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::{LIVE_BLOCKS, STEPS, Stream};

    #[test]
    fn sizes_reach_from_64_bytes_to_8_mib_and_most_are_small() {
        let mut stream = Stream::new();
        let steps: Vec<_> = (0..STEPS).map(|_| stream.next()).collect();
        assert!(steps.iter().all(|step| (64..=8 << 20).contains(&step.bytes) && step.place < LIVE_BLOCKS));
        let small = steps.iter().filter(|step| step.bytes <= 4096).count();
        assert!((STEPS / 2..STEPS * 4 / 5).contains(&small), "{small}");
        assert!(steps.iter().any(|step| step.bytes > 7 << 20));
    }
}

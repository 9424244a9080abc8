//! The sizes that the examples request: the mix of `mpj-perf pools`.

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 32) * end as u64) >> 32) as usize
    }

    /// Returns a size from 64 B to 8 MiB, usually a small one: 64 · 2^(17 u³).
    pub(crate) fn size(&mut self) -> usize {
        let u = self.below(1 << 24) as f64 / f64::from(1 << 24);
        (64.0 * (17.0 * u * u * u).exp2()) as usize
    }
}

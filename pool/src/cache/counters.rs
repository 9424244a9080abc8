/// Counts of one thread, or of the operations under the pool's lock. Only their sum gives the number of live blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct AllocCounters {
    pub(crate) allocs: u64,
    pub(crate) frees: u64,
    pub(crate) requested_bytes: u64,
    pub(crate) granted_bytes: u64,
    pub(crate) freed_bytes: u64,
    /// As `PoolStats::hits`.
    pub(crate) hits: u64,
}

impl AllocCounters {
    pub(crate) fn add(&mut self, other: &AllocCounters) {
        self.allocs += other.allocs;
        self.frees += other.frees;
        self.requested_bytes += other.requested_bytes;
        self.granted_bytes += other.granted_bytes;
        self.freed_bytes += other.freed_bytes;
        self.hits += other.hits;
    }

    /// The result for a sum is too low if, between the reads of two threads' counts, the first thread allocated a block
    /// and the second freed it.
    pub(crate) fn live_blocks(&self) -> u64 {
        self.allocs.saturating_sub(self.frees)
    }

    /// As [`live_blocks`](Self::live_blocks), in bytes.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.granted_bytes.saturating_sub(self.freed_bytes)
    }
}

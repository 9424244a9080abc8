//! Pseudo-random numbers, which every rank computes from the seed.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

/// Returns a number in which every bit depends on all bits of `number`.
pub(super) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(mix(seed.wrapping_add(1)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number from 0 to `end - 1`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(super) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// Returns the payload of a message, which is different for every `key`.
pub(super) fn payload(key: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).flat_map(|at| mix(key.wrapping_add(at)).to_ne_bytes());
    let mut bytes: Vec<u8> = words.collect();
    bytes.truncate(len);
    bytes
}

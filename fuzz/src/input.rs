/// The input of a target, read from the front as a list of choices. After the last byte, every choice reads zeros.
pub(crate) struct Input<'a>(&'a [u8]);

/// Values at which counts, lengths and offsets are likely to fail.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    7,
    8,
    15,
    16,
    17,
    63,
    64,
    255,
    4096,
    65_535,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 60,
    1 << 61,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 16,
    u64::MAX - 1,
    u64::MAX,
];

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Returns a number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let number = if limit <= 256 { usize::from(self.byte()) } else { self.u32() as usize };
        number % limit
    }

    pub(crate) fn within(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from) as usize) as i64
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.byte())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Returns any number, in most cases one of [`EDGES`].
    pub(crate) fn edge(&mut self) -> u64 {
        let choice = usize::from(self.byte());
        match EDGES.get(choice % (EDGES.len() + 4)) {
            Some(edge) => *edge,
            None if choice & 1 == 0 => u64::from(self.u16()),
            None => self.u64(),
        }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(count.min(self.0.len()));
        self.0 = later;
        now
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }
}

//! Bounce buffers: pool blocks between the user's memory and a device. The engine limits the total size of those that
//! no data path requests.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mpj_pool::{DefaultBlock, Pool, RawBuffer};

/// The limit on the total bytes of the bounce buffers that the engine uses implicitly for one rank.
const MAX_BYTES: usize = 64 << 20;

pub(crate) struct BounceBuffer {
    block: DefaultBlock,
    /// Dropped after the block.
    _share: Option<BounceShare>,
}

impl BounceBuffer {
    /// Allocates a block without a limit; `None` if the pool is out of memory.
    pub(crate) fn alloc(bytes: usize) -> Option<Self> {
        mpj_pool::global().alloc(bytes).ok().map(|block| BounceBuffer { block, _share: None })
    }
}

impl Deref for BounceBuffer {
    type Target = DefaultBlock;

    fn deref(&self) -> &DefaultBlock {
        &self.block
    }
}

impl DerefMut for BounceBuffer {
    fn deref_mut(&mut self) -> &mut DefaultBlock {
        &mut self.block
    }
}

impl fmt::Debug for BounceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BounceBuffer")
    }
}

#[derive(Default, Debug)]
pub(crate) struct BounceBuffers {
    used: Arc<AtomicUsize>,
}

impl BounceBuffers {
    /// Allocates a block that counts towards the limit; `None` at the limit, or if the pool is out of memory.
    pub(crate) fn try_alloc(&self, bytes: usize) -> Option<BounceBuffer> {
        if bytes > MAX_BYTES - self.used.load(Ordering::Relaxed).min(MAX_BYTES) {
            return None;
        }
        let buffer = BounceBuffer::alloc(bytes)?;
        // A block may be larger than requested.
        let bytes = buffer.capacity();
        let add = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= MAX_BYTES);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        let share = BounceShare { used: Arc::clone(&self.used), bytes };
        Some(BounceBuffer { _share: Some(share), ..buffer })
    }
}

/// The bytes of one buffer. They count towards the limit until this value is dropped.
struct BounceShare {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for BounceShare {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implicit_bounce_buffers_are_limited() {
        let buffers = BounceBuffers::default();
        let mut held: Vec<BounceBuffer> = std::iter::from_fn(|| buffers.try_alloc(MAX_BYTES / 4)).collect();
        assert_eq!(held.len(), 4);
        assert!(buffers.try_alloc(1).is_none() && buffers.try_alloc(usize::MAX).is_none());
        assert!(BounceBuffer::alloc(1).is_some(), "an explicit one is not limited");
        held.pop();
        assert!(buffers.try_alloc(MAX_BYTES / 4 + 1).is_none());
        assert!(buffers.try_alloc(MAX_BYTES / 4).is_some());
        drop(held);
        assert!(buffers.try_alloc(MAX_BYTES).is_some());
    }
}

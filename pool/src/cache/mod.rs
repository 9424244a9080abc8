//! Free blocks cached by threads: magazines first, then a depot. See `README.md` in this folder.
//!
//! This module neither knows where blocks come from nor accesses their bytes.

use core::ptr::NonNull;

use crate::class::Class;

mod counters;
mod depot;
#[allow(unsafe_code, reason = "adds the index of a class to the address of a region")]
mod region_tag;
#[allow(unsafe_code, reason = "slots by pointer, without bounds checks")]
mod stack;
mod thread_cache;
#[cfg_attr(loom, path = "loom_stub.rs")]
#[allow(unsafe_code, reason = "reaches the magazines of the calling thread by pointer")]
mod thread_table;

pub(crate) use counters::AllocCounters;
pub(crate) use depot::Depot;
pub(crate) use region_tag::RegionTag;
pub(crate) use thread_cache::{Budget, ThreadCache};
pub(crate) use thread_table::{
    Teardown, UNCACHED, attach_thread, new_id, teardown, with_cache, with_last_cache, with_owned_cache,
    with_table_cache,
};

/// The number of class indices from 64 B to 8 MiB, including the unused ones.
#[cfg(not(loom))]
pub(crate) const CLASSES: usize = 69;
#[cfg(loom)]
pub(crate) const CLASSES: usize = 2;

/// The remains of a pool after its last block was freed; dropped when no lock is held.
pub(crate) type DeferredFree = Box<dyn Send>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPtr {
    pub(crate) base: NonNull<u8>,
    pub(crate) tag: RegionTag,
}

// SAFETY: it is two addresses, and owns the block at one of them; a block may be used from any thread.
#[expect(unsafe_code, reason = "a free block goes from thread to thread")]
unsafe impl Send for BlockPtr {}

#[cfg(not(loom))]
const _: () = match Class::for_len(8 << 20) {
    Some(class) => assert!(class.index() + 1 == CLASSES),
    None => panic!("8 MiB must have a class"),
};

#[cfg(test)]
#[allow(unsafe_code, reason = "models access cells through the addresses of blocks")]
mod tests;

//! Replaces `thread_table` in loom models, without caches. Loom does not model std's `thread_local!`.

use core::ptr::NonNull;

use super::{DeferredFree, ThreadCache};

pub(crate) const UNCACHED: u64 = 0;

#[derive(Debug)]
pub(crate) struct Teardown(());

pub(crate) fn new_id() -> u64 {
    1
}

pub(crate) fn teardown() -> Teardown {
    Teardown(())
}

pub(crate) fn with_last_cache<R>(_id: u64, _action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    None
}

pub(crate) fn with_table_cache<R>(_id: u64, _action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    None
}

pub(crate) fn with_cache<R>(_id: u64, _action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    None
}

pub(crate) fn with_owned_cache<R>(_id: u64, _action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    None
}

type DetachThread =
    unsafe fn(pool: NonNull<()>, cache: &ThreadCache, teardown: &mut Teardown) -> Option<DeferredFree>;

/// # Safety
/// None needed: this does nothing.
pub(crate) unsafe fn attach_thread(
    _id: u64,
    _pool: NonNull<()>,
    _detach_thread: DetachThread,
    _make: impl FnOnce() -> ThreadCache,
    _register: impl FnOnce(NonNull<ThreadCache>),
) -> bool {
    false
}

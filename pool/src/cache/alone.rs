//! Threads without magazines of their own, for models of the parts: loom knows no thread that ends.

use core::ptr::NonNull;

use super::{Local, Remains};

/// Numbers pools whose blocks no thread keeps.
pub(crate) const PLAIN: u64 = 0;

/// The lock under which magazines end, of which there are none.
#[derive(Debug)]
pub(crate) struct Teardown(());

pub(crate) fn new_id() -> u64 {
    1
}

pub(crate) fn teardown() -> Teardown {
    Teardown(())
}

pub(crate) fn with_last<R>(_id: u64, _action: impl FnOnce(&Local) -> R) -> Option<R> {
    None
}

pub(crate) fn with_other<R>(_id: u64, _action: impl FnOnce(&Local) -> R) -> Option<R> {
    None
}

pub(crate) fn with_local<R>(_id: u64, _action: impl FnOnce(&Local) -> R) -> Option<R> {
    None
}

type Retire = unsafe fn(pool: NonNull<()>, local: &Local, teardown: &mut Teardown) -> Option<Remains>;

/// # Safety
/// None needed: this does nothing.
pub(crate) unsafe fn adopt(
    _id: u64,
    _pool: NonNull<()>,
    _retire: Retire,
    _make: impl FnOnce() -> Local,
    _register: impl FnOnce(NonNull<Local>),
) -> bool {
    false
}

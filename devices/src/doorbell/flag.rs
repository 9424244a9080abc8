//! The word that says whether the owner of a doorbell sleeps.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sync::atomic::AtomicU32;

/// Where the word is: where those who ring can see it.
#[derive(Debug)]
pub struct Flag(Place);

#[derive(Debug)]
enum Place {
    Own(AtomicU32),
    Lent(Lent),
}

/// A word in somebody's memory.
///
/// # Invariants
/// 1. `word` is an atomic that is valid for as long as `_owner` is held, and nobody uses it but by atomic operations.
struct Lent {
    word: NonNull<AtomicU32>,
    _owner: Arc<dyn Send + Sync>,
}

// SAFETY: an atomic may be used by all threads, and the owner may be dropped by any.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({:p})", self.word)
    }
}

impl Flag {
    /// A word of the doorbell's own, for threads of this process.
    pub(super) fn own() -> Self {
        Flag(Place::Own(AtomicU32::new(0)))
    }

    /// A word in memory that other processes see, too.
    ///
    /// # Safety
    /// The word is valid for as long as `owner` is held, and nobody uses it but by atomic operations.
    pub(crate) unsafe fn lent(word: NonNull<AtomicU32>, owner: Arc<dyn Send + Sync>) -> Self {
        Flag(Place::Lent(Lent { word, _owner: owner }))
    }

    #[inline]
    pub(super) fn word(&self) -> &AtomicU32 {
        match &self.0 {
            Place::Own(word) => word,
            // SAFETY: invariant 1, and the owner is held for as long as this is borrowed.
            Place::Lent(lent) => unsafe { lent.word.as_ref() },
        }
    }
}

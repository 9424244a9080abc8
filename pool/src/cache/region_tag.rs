use core::ptr::NonNull;

use crate::class::{Class, MAX_BLOCK};

/// The region and the class of a block in one word: handles are moved often, so they have only two words.
///
/// The region is aligned to [`RegionTag::ALIGN`] bytes, and the index of the class is added to its address.
///
/// # Invariants
/// 1. It points `index()` bytes past the start of an object that has at least `ALIGN` bytes and is aligned to `ALIGN`.
/// 2. The index is that of a class, or `NO_CLASS`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionTag(NonNull<()>);

impl RegionTag {
    pub(crate) const ALIGN: usize = 256;
    /// The index of a block that is a whole region.
    const NO_CLASS: usize = Self::ALIGN - 1;

    /// # Safety
    /// `region` points to an object of at least `ALIGN` bytes, aligned to `ALIGN`.
    #[inline]
    pub(crate) unsafe fn new(region: NonNull<()>, class: Option<Class>) -> RegionTag {
        let index = class.map_or(Self::NO_CLASS, Class::index);
        // SAFETY: the caller's promise, and the assertion below.
        RegionTag(unsafe { region.byte_add(index) })
    }

    /// Returns the index of the class, or `NO_CLASS`, which is larger than all indices.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0.addr().get() % Self::ALIGN
    }

    #[inline]
    pub(crate) fn class(self) -> Option<Class> {
        let index = self.index();
        (index != Self::NO_CLASS).then(|| Class::from_index(index as u8))
    }

    /// Returns the region; the caller knows its type, and whether it lives.
    #[inline]
    pub(crate) fn region(self) -> NonNull<()> {
        // SAFETY: invariant 1.
        unsafe { self.0.byte_sub(self.index()) }
    }
}

const _: () = match Class::for_len(MAX_BLOCK) {
    Some(class) => assert!(class.index() < RegionTag::NO_CLASS),
    None => panic!("the largest block must have a class"),
};

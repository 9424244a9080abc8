//! Hints to the cache, without an effect on the contents of memory.

/// Prefetches the cache line at `place`, which may be any address, for writing.
#[inline(always)]
pub(crate) fn prefetch_write(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, whatever the address; processors that do not support it ignore it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

//! Hints to the cache: they have no effect on memory.

/// Asks for the line at `place`, which may be anywhere, with the right to write it.
#[inline(always)]
pub(crate) fn prefetch_write(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, whatever the address; processors that do not know it do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

//! Which instructions this machine has beyond the baseline.

/// A level of vector instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Isa {
    /// The instructions that every machine of the architecture has.
    Base,
    /// 32-byte registers.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 64-byte registers and masks.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The best level; the answer is cached by the standard library.
#[inline]
pub(super) fn best() -> Isa {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            return Isa::Avx512;
        }
        if is_x86_feature_detected!("avx2") {
            return Isa::Avx2;
        }
    }
    Isa::Base
}

//! Copy routines for one block, each for one length or a class of lengths.

use core::marker::PhantomData;

pub(super) trait BlockCopy {
    /// The length of a block; 0 if it is known only at run time.
    const LEN: usize;
    /// Whether a loop over blocks should copy several blocks per iteration.
    const SHORT: bool;

    /// Copies one block of `len` bytes; a routine with a `LEN` other than 0 ignores `len`.
    ///
    /// # Safety
    /// `len` bytes are readable at `src` and writable at `dst`, without overlap; `len` is in the range of this routine.
    unsafe fn copy(src: *const u8, dst: *mut u8, len: usize);
}

/// Exactly `N` bytes, without a loop.
pub(super) struct Fixed<const N: usize>;

impl<const N: usize> BlockCopy for Fixed<N> {
    const LEN: usize = N;
    const SHORT: bool = N <= 64;

    #[inline(always)]
    unsafe fn copy(src: *const u8, dst: *mut u8, _: usize) {
        // SAFETY: the caller promises N readable bytes at `src`, N writable ones at `dst` and no overlap; arrays of
        // bytes have alignment 1.
        unsafe { core::ptr::copy_nonoverlapping(src.cast::<[u8; N]>(), dst.cast::<[u8; N]>(), 1) }
    }
}

/// `C` to `2 C` bytes: the first C and the last C, which may overlap.
pub(super) struct OverlapCopy<const C: usize>;

impl<const C: usize> BlockCopy for OverlapCopy<C> {
    const LEN: usize = 0;
    const SHORT: bool = C <= 32;

    #[inline(always)]
    unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: C <= len, so the first C bytes belong to the block.
        unsafe { Fixed::<C>::copy(src, dst, C) };
        let last = len - C;
        // SAFETY: the last C bytes belong to the block too.
        unsafe { Fixed::<C>::copy(src.wrapping_add(last), dst.wrapping_add(last), C) };
    }
}

/// At least `C` bytes, C at a time; the last C may overlap the ones before.
pub(super) struct ChunkedCopy<const C: usize>;

impl<const C: usize> BlockCopy for ChunkedCopy<C> {
    const LEN: usize = 0;
    const SHORT: bool = false;

    #[inline(always)]
    unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
        let mut at = 0;
        while at + 4 * C <= len {
            for _ in 0..4 {
                // SAFETY: the four chunks from `at` on end inside the block.
                unsafe { Fixed::<C>::copy(src.wrapping_add(at), dst.wrapping_add(at), C) };
                at += C;
            }
        }
        while at + C <= len {
            // SAFETY: the chunk from `at` on ends inside the block.
            unsafe { Fixed::<C>::copy(src.wrapping_add(at), dst.wrapping_add(at), C) };
            at += C;
        }
        if at < len {
            let last = len - C;
            // SAFETY: C <= len, so the last C bytes belong to the block.
            unsafe { Fixed::<C>::copy(src.wrapping_add(last), dst.wrapping_add(last), C) };
        }
    }
}

/// Any number of bytes, by the platform's `memcpy`.
pub(super) struct Any;

impl BlockCopy for Any {
    const LEN: usize = 0;
    const SHORT: bool = false;

    #[inline(always)]
    unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(src, dst, len) }
    }
}

/// Makes a value, such as a pair of kernels, for a copy routine.
pub(super) trait SelectRoutine {
    type Out;

    fn pick<S: BlockCopy>(&self) -> Self::Out;
}

/// Above this length the platform's `memcpy` is faster: it writes whole lines without reading them first.
pub(super) const MAX_CHUNKED: usize = 20 << 10;
/// As [`MAX_CHUNKED`], if all blocks of a tile together have more than `MAX_CHUNKED` bytes.
pub(super) const MAX_CHUNKED_BEYOND_L1: usize = 2560;

#[inline]
pub(super) fn by_length<P: SelectRoutine>(len: usize, p: &P) -> P::Out {
    match len {
        1 => p.pick::<Fixed<1>>(),
        2 => p.pick::<Fixed<2>>(),
        3 => p.pick::<Fixed<3>>(),
        4 => p.pick::<Fixed<4>>(),
        5..8 => p.pick::<OverlapCopy<4>>(),
        8 => p.pick::<Fixed<8>>(),
        12 => p.pick::<Fixed<12>>(),
        16 => p.pick::<Fixed<16>>(),
        9..16 => p.pick::<OverlapCopy<8>>(),
        20 => p.pick::<Fixed<20>>(),
        24 => p.pick::<Fixed<24>>(),
        17..32 => p.pick::<OverlapCopy<16>>(),
        32 => p.pick::<Fixed<32>>(),
        40 => p.pick::<Fixed<40>>(),
        48 => p.pick::<Fixed<48>>(),
        33..64 => p.pick::<OverlapCopy<32>>(),
        64 => p.pick::<Fixed<64>>(),
        96 => p.pick::<Fixed<96>>(),
        128 => p.pick::<Fixed<128>>(),
        65..128 => p.pick::<OverlapCopy<64>>(),
        129..=MAX_CHUNKED => p.pick::<ChunkedCopy<64>>(),
        _ => p.pick::<Any>(),
    }
}

/// Copies a block whose length varies from call to call.
///
/// # Safety
/// `len` bytes are readable at `src` and writable at `dst`, and the two do not overlap.
#[inline(always)]
pub(super) unsafe fn copy_any_length(src: *const u8, dst: *mut u8, len: usize) {
    match len {
        // SAFETY: the caller's promise; the length is in the range of the routine, here and in the arms below.
        4 => unsafe { Fixed::<4>::copy(src, dst, len) },
        // SAFETY: as above.
        8 => unsafe { Fixed::<8>::copy(src, dst, len) },
        // SAFETY: as above.
        16..32 => unsafe { OverlapCopy::<16>::copy(src, dst, len) },
        // SAFETY: as above.
        9..16 => unsafe { OverlapCopy::<8>::copy(src, dst, len) },
        // SAFETY: as above.
        5..8 => unsafe { OverlapCopy::<4>::copy(src, dst, len) },
        // SAFETY: as above.
        32..=64 => unsafe { OverlapCopy::<32>::copy(src, dst, len) },
        // SAFETY: as above.
        65..=128 => unsafe { OverlapCopy::<64>::copy(src, dst, len) },
        // SAFETY: as above.
        1 => unsafe { Fixed::<1>::copy(src, dst, len) },
        // SAFETY: as above.
        2 => unsafe { Fixed::<2>::copy(src, dst, len) },
        // SAFETY: as above.
        3 => unsafe { Fixed::<3>::copy(src, dst, len) },
        // SAFETY: as above.
        _ => unsafe { Any::copy(src, dst, len) },
    }
}

pub(super) trait Direction {
    const PACKS: bool;

    #[inline(always)]
    fn route(user: *mut u8, packed: *mut u8) -> (*const u8, *mut u8) {
        if Self::PACKS { (user, packed) } else { (packed, user) }
    }

    #[inline(always)]
    fn of<K>((pack, unpack): (K, K)) -> K {
        if Self::PACKS { pack } else { unpack }
    }
}

pub(super) struct Gather;

impl Direction for Gather {
    const PACKS: bool = true;
}

pub(super) struct Scatter;

impl Direction for Scatter {
    const PACKS: bool = false;
}

/// Copies `len` bytes that are contiguous on both sides.
///
/// # Safety
/// `len` bytes at `user` and at `packed` are valid as points 2 to 4 of [`Kernel`](super::Kernel) say.
#[inline(always)]
pub(super) unsafe fn copy_bytes<D: Direction>(user: *mut u8, packed: *mut u8, len: usize) {
    let (src, dst) = D::route(user, packed);
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(src, dst, len) }
}

/// Makes the pair (pack kernel, unpack kernel).
pub(super) struct KernelPair<M>(PhantomData<M>);

impl<M> KernelPair<M> {
    pub(super) const NEW: KernelPair<M> = KernelPair(PhantomData);
}

pub(super) trait MakeKernel {
    type Kernel;

    fn make<D: Direction, S: BlockCopy>() -> Self::Kernel;
}

impl<M: MakeKernel> SelectRoutine for KernelPair<M> {
    type Out = (M::Kernel, M::Kernel);

    #[inline]
    fn pick<S: BlockCopy>(&self) -> Self::Out {
        (M::make::<Gather, S>(), M::make::<Scatter, S>())
    }
}

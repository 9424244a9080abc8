//! How one block is moved: a family of shapes, each made for one length or a class of lengths.

use core::marker::PhantomData;

/// A way to move one block.
pub(super) trait BlockCopy {
    /// The length of a block; 0 if it is only known at run time.
    const LEN: usize;
    /// Whether a loop over blocks should take several at a time.
    const SHORT: bool;

    /// Moves one block of `len` bytes; `len` is `LEN` unless that is 0.
    ///
    /// # Safety
    /// `len` bytes are readable at `src` and writable at `dst`, and the two do not overlap; `len` is one for which
    /// [`by_length`] picks this shape.
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
        // SAFETY: C <= len, so that the first C bytes belong to the block.
        unsafe { Fixed::<C>::copy(src, dst, C) };
        let last = len - C;
        // SAFETY: the last C bytes belong to the block too.
        unsafe { Fixed::<C>::copy(src.wrapping_add(last), dst.wrapping_add(last), C) };
    }
}

/// At least `C` bytes, in steps of C; the last step may overlap the one before.
pub(super) struct ChunkedCopy<const C: usize>;

impl<const C: usize> BlockCopy for ChunkedCopy<C> {
    const LEN: usize = 0;
    const SHORT: bool = false;

    #[inline(always)]
    unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
        let mut at = 0;
        while at + 4 * C <= len {
            for _ in 0..4 {
                // SAFETY: the four steps from `at` on end inside of the block.
                unsafe { Fixed::<C>::copy(src.wrapping_add(at), dst.wrapping_add(at), C) };
                at += C;
            }
        }
        while at + C <= len {
            // SAFETY: the step from `at` on ends inside of the block.
            unsafe { Fixed::<C>::copy(src.wrapping_add(at), dst.wrapping_add(at), C) };
            at += C;
        }
        if at < len {
            let last = len - C;
            // SAFETY: C <= len, so that the last C bytes belong to the block.
            unsafe { Fixed::<C>::copy(src.wrapping_add(last), dst.wrapping_add(last), C) };
        }
    }
}

/// Any number of bytes, by the copy routine of the platform.
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

/// Makes something for a shape: a kernel, or a pair of them.
pub(super) trait Pick {
    /// The result for a shape.
    type Out;

    /// Makes it.
    fn pick<S: BlockCopy>(&self) -> Self::Out;
}

/// Above this, or above [`LONG`] for more bytes in all than the first cache takes, the platform's routine wins: it
/// writes whole lines without reading them first.
pub(super) const LONGEST: usize = 20 << 10;
/// See [`LONGEST`].
pub(super) const LONG: usize = 2560;

/// Picks the shape for blocks of `len` bytes.
#[inline]
pub(super) fn by_length<P: Pick>(len: usize, p: &P) -> P::Out {
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
        129..=LONGEST => p.pick::<ChunkedCopy<64>>(),
        _ => p.pick::<Any>(),
    }
}

/// Moves a block of a length that changes from one to the next.
///
/// # Safety
/// `len` bytes are readable at `src` and writable at `dst`, and the two do not overlap.
#[inline(always)]
pub(super) unsafe fn short(src: *const u8, dst: *mut u8, len: usize) {
    match len {
        // SAFETY: the caller's promise, and the length is one for the shape, here and in the arms below.
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

/// The direction of a copy. One generic loop serves both.
pub(super) trait Direction {
    /// Whether the packed side is written.
    const PACKS: bool;

    /// The source and the target of a move.
    #[inline(always)]
    fn route(user: *mut u8, packed: *mut u8) -> (*const u8, *mut u8) {
        if Self::PACKS { (user, packed) } else { (packed, user) }
    }

    /// Of the kernels for the two directions, that for this one.
    #[inline(always)]
    fn of<K>((pack, unpack): (K, K)) -> K {
        if Self::PACKS { pack } else { unpack }
    }
}

/// From the layout to the packed form.
pub(super) struct Gather;

impl Direction for Gather {
    const PACKS: bool = true;
}

/// From the packed form to the layout.
pub(super) struct Scatter;

impl Direction for Scatter {
    const PACKS: bool = false;
}

/// Moves `len` bytes that are adjacent on both sides.
///
/// # Safety
/// `len` bytes at `user` and at `packed` are valid as points 2 to 4 of [`Kernel`](super::Kernel) say.
#[inline(always)]
pub(super) unsafe fn bytes<D: Direction>(user: *mut u8, packed: *mut u8, len: usize) {
    let (src, dst) = D::route(user, packed);
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(src, dst, len) }
}

/// Makes a pair (pack, unpack) from something that makes one of them.
pub(super) struct KernelPair<M>(PhantomData<M>);

impl<M> KernelPair<M> {
    pub(super) const NEW: KernelPair<M> = KernelPair(PhantomData);
}

/// Makes the kernel for a shape and a direction.
pub(super) trait Make {
    /// The type of the kernel.
    type Kernel;

    /// Makes it.
    fn make<D: Direction, S: BlockCopy>() -> Self::Kernel;
}

impl<M: Make> Pick for KernelPair<M> {
    type Out = (M::Kernel, M::Kernel);

    #[inline]
    fn pick<S: BlockCopy>(&self) -> Self::Out {
        (M::make::<Gather, S>(), M::make::<Scatter, S>())
    }
}

//! Copying while reversing the bytes of each element: one pass, at the width of the machine's vectors.

macro_rules! kernels {
    ($($name:ident $unit:ident)*) => {$(
        /// Copies `src` to `dst`, of the same length, with the bytes of each unit reversed.
        pub(crate) fn $name(src: &[u8], dst: &mut [u8]) {
            const N: usize = size_of::<$unit>();
            for (to, from) in dst.as_chunks_mut::<N>().0.iter_mut().zip(src.as_chunks::<N>().0) {
                *to = $unit::from_ne_bytes(*from).swap_bytes().to_ne_bytes();
            }
        }
    )*};
}

kernels! { copy1 u8  copy2 u16  copy4 u32  copy8 u64  copy16 u128 }

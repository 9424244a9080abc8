//! Copies that reverse the bytes of each element. The compiler turns the plain loops into byte shuffles. AVX2 is
//! selected at run time, because baseline x86-64 has no byte shuffle.

macro_rules! kernels {
    ($($name:ident $avx2:ident $plain:ident $unit:ident)*) => {$(
        /// Copies `src` to `dst`, of the same length, with the bytes of each unit reversed.
        pub(crate) fn $name(src: &[u8], dst: &mut [u8]) {
            #[cfg(target_arch = "x86_64")]
            if src.len() >= 64 && is_x86_feature_detected!("avx2") {
                // SAFETY: this processor has AVX2, which is all that the function needs.
                return unsafe { $avx2(src, dst) };
            }
            $plain(src, dst);
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn $avx2(src: &[u8], dst: &mut [u8]) {
            $plain(src, dst);
        }

        #[inline(always)]
        fn $plain(src: &[u8], dst: &mut [u8]) {
            const N: usize = size_of::<$unit>();
            for (to, from) in dst.as_chunks_mut::<N>().0.iter_mut().zip(src.as_chunks::<N>().0) {
                *to = $unit::from_ne_bytes(*from).swap_bytes().to_ne_bytes();
            }
        }
    )*};
}

kernels! {
    copy2 copy2_avx2 plain2 u16
    copy4 copy4_avx2 plain4 u32
    copy8 copy8_avx2 plain8 u64
    copy16 copy16_avx2 plain16 u128
}

pub(crate) fn copy1(src: &[u8], dst: &mut [u8]) {
    dst.copy_from_slice(src);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_up_to_192_bytes_reverse_each_element() {
        type Kernel = fn(&[u8], &mut [u8]);
        let kernels: [(usize, Kernel); 5] = [(1, copy1), (2, copy2), (4, copy4), (8, copy8), (16, copy16)];
        for (unit, kernel) in kernels {
            for len in (0..=192).step_by(unit) {
                let src: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let mut expected = src.clone();
                expected.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
                let mut dst = vec![0xEE; len];
                kernel(&src, &mut dst);
                assert_eq!(dst, expected, "{unit} {len}");
            }
        }
    }
}

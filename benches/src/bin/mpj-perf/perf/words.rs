//! Writes and reads every word of a message, as a program that uses its messages does. The loops use AVX-512 if the
//! processor has it, because `pingpong.c`, with which `pingpong` is compared (see [`super`]), is compiled for the
//! processor that it runs on.

use std::hint::black_box;

#[inline(always)]
fn fill_with(bytes: &mut [u8], first: u64) {
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (value, word) in (first..).zip(words) {
        *word = value.to_ne_bytes();
    }
}

#[inline(always)]
fn sum_of(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
}

macro_rules! with_avx512 {
    ($(#[$doc:meta])* $name:ident, $wide:ident, $loop_of:ident, ($($arg:ident: $type:ty),*) $(-> $result:ty)?) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f")]
        fn $wide($($arg: $type),*) $(-> $result)? {
            $loop_of($($arg),*)
        }

        $(#[$doc])*
        fn $name($($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has the feature.
                return unsafe { $wide($($arg),*) };
            }
            $loop_of($($arg),*)
        }
    };
}

with_avx512!(fill_words, fill_wide, fill_with, (bytes: &mut [u8], first: u64));
with_avx512!(sum_words, sum_wide, sum_of, (bytes: &[u8]) -> u64);

/// Writes every word of a message. Word `i` gets the value `round + i`, so every word differs from that of the previous
/// message.
pub(super) fn write_all(bytes: &mut [u8], round: u64) {
    fill_words(bytes, round);
    black_box(bytes);
}

pub(super) fn read_all(bytes: &[u8]) {
    black_box(sum_words(bytes));
}

#[cfg(test)]
mod tests {
    use super::{sum_words, write_all};

    #[test]
    fn every_word_is_written_and_read() {
        for len in [0, 7, 8, 64, 1000, 4104] {
            let mut bytes = vec![0xff; len];
            write_all(&mut bytes, 5);
            let count = (len / 8) as u64;
            assert_eq!(sum_words(&bytes), (0..count).map(|i| i + 5).sum::<u64>(), "{len} bytes");
        }
    }
}

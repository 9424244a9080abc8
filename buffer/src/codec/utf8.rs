//! Strings from untrusted bytes, with a fast path for short ASCII strings, the most frequent ones.

use crate::CodecError;

#[inline]
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, CodecError> {
    if is_short_ascii(bytes) {
        // SAFETY: all bytes are ASCII, and ASCII is valid UTF-8.
        return Ok(unsafe { core::str::from_utf8_unchecked(bytes) });
    }
    core::str::from_utf8(bytes).map_err(|_| CodecError::Malformed)
}

/// Returns whether the bytes are short and ASCII. Reads 4 or more bytes as two equal parts, which may overlap.
#[inline]
fn is_short_ascii(bytes: &[u8]) -> bool {
    match bytes.len() {
        0..=3 => bytes.iter().all(u8::is_ascii),
        4..=7 => ends_are_ascii::<4>(bytes),
        8..=16 => ends_are_ascii::<8>(bytes),
        17..=32 => ends_are_ascii::<16>(bytes),
        33..=64 => ends_are_ascii::<32>(bytes),
        _ => false,
    }
}

#[inline(always)]
fn ends_are_ascii<const N: usize>(bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else { return false };
    // No early exit, so that this compiles to a few vector instructions.
    first.iter().zip(last).fold(0, |all, (a, b)| all | a | b) < 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf8_agrees_with_the_standard_library() {
        for len in 0..=80 {
            let mut bytes = vec![b'a'; len];
            assert_eq!(utf8(&bytes), Ok("a".repeat(len).as_str()));
            for at in 0..len {
                for byte in [0, 0x7F, 0x80, 0xBF, 0xC3, 0xFF] {
                    bytes[at] = byte;
                    let expected = core::str::from_utf8(&bytes).map_err(|_| CodecError::Malformed);
                    assert_eq!(utf8(&bytes), expected, "{byte:#x} at {at} of {len}");
                }
                bytes[at] = b'a';
            }
            for at in 1..len {
                bytes[at - 1..=at].copy_from_slice("é".as_bytes());
                assert_eq!(utf8(&bytes), Ok(core::str::from_utf8(&bytes).unwrap()));
                bytes[at - 1..=at].fill(b'a');
            }
        }
    }
}

//! Validation of received `bool` and `char` values.

use crate::{InvalidValueError, Primitive};

/// Checks `n` contiguous elements at `at`. Replaces the invalid ones and returns the first of them; `position` is the
/// packed position of the element at `at`.
///
/// # Safety
/// `n` elements of `primitive` at `at` are readable, initialised and writable as bytes, at any alignment.
pub(crate) unsafe fn elements(
    primitive: Primitive,
    at: *mut u8,
    n: usize,
    position: usize,
) -> Result<(), InvalidValueError> {
    let mut first = Ok(());
    match primitive {
        Primitive::Bool => {
            for i in 0..n {
                let element = at.wrapping_add(i);
                // SAFETY: element i of the caller's n, of one byte.
                let bits = unsafe { element.read() };
                if bits > 1 {
                    // SAFETY: the same byte, writable by the contract.
                    unsafe { element.write(0) };
                    let bad = InvalidValueError { primitive, position: position + i, bits: bits.into() };
                    first = first.and(Err(bad));
                }
            }
        }
        Primitive::Char => {
            for i in 0..n {
                let element = at.wrapping_add(4 * i).cast::<u32>();
                // SAFETY: element i of the caller's n, of four bytes at any alignment.
                let bits = unsafe { element.read_unaligned() };
                if char::from_u32(bits).is_none() {
                    // SAFETY: the same four bytes, writable by the contract.
                    unsafe { element.write_unaligned(0) };
                    first = first.and(Err(InvalidValueError { primitive, position: position + 4 * i, bits }));
                }
            }
        }
        _ => {}
    }
    first
}

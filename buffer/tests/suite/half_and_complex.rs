//! Elements that need a feature: half-precision floats and complex numbers.
#![cfg(all(feature = "half", feature = "num-complex"))]

use core::fmt::Debug;

use crate::common::Heap;
use half::{bf16, f16};
use mpj_buffer::{Buffer, Element, ReadError};
use num_complex::{Complex32, Complex64};

/// `unit` is the number of bytes that are swapped together: an element, or one part of a complex number.
fn check_round_trip<T: Element + PartialEq + Debug>(values: &[T], zero: T, unit: usize) {
    let mut buffer = Buffer::new(Heap::new(512)).unwrap();
    buffer.write(values).unwrap();
    buffer.gather(values, &[1u32, 0]).unwrap();
    let mut buffer = buffer.commit();
    assert_eq!(buffer.view_n::<T>(values.len()), Ok(values));
    let wire = buffer.to_vec();
    let mut other = wire.clone();
    other[5] ^= b'<' ^ b'>';
    for range in [8..16, 20..24, 24..32] {
        other[range].reverse();
    }
    other[32..].chunks_exact_mut(unit).for_each(<[u8]>::reverse);
    let mut buffer = Buffer::from_bytes(Heap::new(512), &other).unwrap();
    assert_eq!(buffer.view::<T>(), Err(ReadError::ForeignOrder { kind: T::KIND }));
    let mut back = vec![zero; values.len()];
    assert_eq!(buffer.read(&mut back), Ok(values.len()));
    assert_eq!(back, values);
    assert_eq!(buffer.scatter(&mut back, &[0u32, 1]), Ok(2));
    assert_eq!(back[..2], [values[1], values[0]]);
}

#[test]
fn halves_and_complex_numbers_round_trip() {
    check_round_trip(&[f16::from_f32(1.5), f16::MIN, f16::INFINITY], f16::ZERO, 2);
    check_round_trip(&[bf16::from_f32(-1.5), bf16::MAX, bf16::EPSILON], bf16::ZERO, 2);
    check_round_trip(&[Complex32::new(1.0, -2.0), Complex32::new(0.5, f32::MAX)], Complex32::default(), 4);
    check_round_trip(&[Complex64::new(1.0, -2.0), Complex64::new(0.5, f64::MAX)], Complex64::default(), 8);
}

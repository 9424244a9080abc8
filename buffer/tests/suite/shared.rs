//! Memory that another process could change: values that need validation are not used in place.
#![allow(unsafe_code, reason = "implements the contract of readable blocks")]

use core::mem::MaybeUninit;

use mpj_buffer::pool::ReadBlock;
use mpj_buffer::{Buffer, ElementKind, Fixed, ReadError};

/// A message in memory that is said to be shared; nothing changes it.
struct Shared(Vec<u64>);

// SAFETY: the bytes of the vector do not change.
unsafe impl ReadBlock for Shared {
    fn bytes(&self) -> &[MaybeUninit<u8>] {
        let bytes: &[u8] = bytemuck::cast_slice(&self.0);
        // SAFETY: any byte is a `MaybeUninit<u8>`, and the result is only read.
        unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }

    fn is_shared(&self) -> bool {
        true
    }
}

#[test]
fn values_that_need_validation_are_copied_before_their_check() {
    let mut message = Buffer::with_capacity(1024).unwrap();
    message.write(&[1.5f64, 2.5]).unwrap();
    message.write(&[true, false]).unwrap();
    message.write(&['a', 'b']).unwrap();
    message.write_object_with::<Fixed, _>("text").unwrap();
    message.write_dynamic(&[true]).unwrap();
    message.write_dynamic(&[7u16]).unwrap();
    let bytes = message.commit().to_vec();
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(&bytes);
    // SAFETY: all bytes of the vector are initialised.
    let mut message =
        unsafe { Buffer::from_read_block(Shared(words), bytes.len()) }.map_err(|e| e.error).unwrap();

    assert_eq!(message.view::<f64>().unwrap(), [1.5, 2.5]);
    assert_eq!(message.view::<bool>().unwrap_err(), ReadError::Shared { kind: ElementKind::Bool });
    let mut flags = [false; 2];
    message.read(&mut flags).unwrap();
    assert_eq!(flags, [true, false]);
    let refused = message.view_n::<char>(1).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot view char: it needs validation, and the memory is shared with its sender"
    );
    let mut chars = ['?'; 2];
    message.read(&mut chars).unwrap();
    assert_eq!(chars, ['a', 'b']);
    let refused = message.view_object_with::<Fixed, &str>().unwrap_err();
    assert_eq!(refused, ReadError::Shared { kind: ElementKind::Object });
    assert_eq!(message.read_object_with::<Fixed, String>().unwrap(), "text");
    assert_eq!(message.view_dynamic::<bool>().unwrap_err(), ReadError::Shared { kind: ElementKind::Bool });
    assert_eq!(message.read_dynamic::<bool>().unwrap(), [true]);
    assert_eq!(message.view_dynamic::<u16>().unwrap(), [7]);
}

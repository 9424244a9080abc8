//! The raw functions with counts that the safe API rejects.
#![cfg(target_pointer_width = "64")]
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use mpj_datatypes::Datatype;

/// Returns the four bytes at the lowest addresses, with which the packed form of both datatypes begins.
fn first_half(numbers: [u64; 2]) -> [u8; 4] {
    *numbers[0].to_ne_bytes().first_chunk().expect("eight bytes")
}

/// All items are at one position, so their bounds fit for any count.
#[test]
fn packed_sizes_beyond_64_bits_saturate() {
    let item = Datatype::of::<u64>().resized(0, 0).unwrap();
    let pair = Datatype::of::<u32>().vector(2, 1, 2).unwrap().resized(0, 0).unwrap();
    for (datatype, count) in [(&item, (1 << 61) + 1), (&item, isize::MAX as usize), (&pair, (1 << 61) + 1)] {
        let memory = [0x0102_0304_0506_0708u64, 9];
        assert_eq!(datatype.byte_bounds(count).unwrap().0, 0);
        let mut out = [MaybeUninit::new(0xee_u8); 24];
        for len in [8, 16, 20] {
            // SAFETY: all items lie in the first 12 bytes of `memory`.
            let n = unsafe { datatype.pack(memory.as_ptr().cast(), count, 0, &mut out[..len]) };
            assert_eq!(n, len);
            // SAFETY: initialised above.
            assert_eq!(unsafe { out[len].assume_init() }, 0xee);
        }
        let mut back = [0u64; 2];
        // SAFETY: as above, in `back`.
        let n = unsafe { datatype.unpack(back.as_mut_ptr().cast(), count, 0, &[7; 8]) };
        assert_eq!((n, first_half(back)), (8, [7; 4]));
        let mut other = [0u64; 2];
        // SAFETY: as above, from `memory` to `other`; the target takes one item.
        let n = unsafe {
            datatype.transpack(
                memory.as_ptr().cast(),
                count,
                &item,
                other.as_mut_ptr().cast(),
                1,
                0..usize::MAX,
            )
        };
        assert_eq!((n, first_half(other)), (8, first_half(memory)));
    }
}

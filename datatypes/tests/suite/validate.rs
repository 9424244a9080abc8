//! Compares validation with the model.
#![allow(unsafe_code)]

use crate::model::small_spec;
use mpj_datatypes::{Datatype, InvalidValueError, OutOfRangeError, Packer, Primitive, Unpacker};
use proptest::prelude::*;

fn is_invalid(primitive: Primitive, bits: u32) -> bool {
    match primitive {
        Primitive::Bool => bits > 1,
        Primitive::Char => char::from_u32(bits).is_none(),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn validation_matches_model(
        spec in small_spec(300),
        count in 0..3usize,
        cut in 0..400usize,
        fill in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 1..50),
    ) {
        let (datatype, model) = (spec.build().unwrap(), spec.model().items(count));
        let (low, high) = model.touched();
        let (low, high) = (low.min(0), high.max(0));
        let mut memory: Vec<u8> = fill.iter().copied().cycle().take((high - low) as usize).collect();
        let mut wanted = memory.clone();
        let mut first: Result<(), InvalidValueError> = Ok(());
        let mut position = 0;
        for &(at, primitive) in &model.leaves {
            if position < cut && primitive.needs_validation() {
                let at = (at - low) as usize;
                let bits = match primitive {
                    Primitive::Bool => wanted[at].into(),
                    _ => u32::from_ne_bytes(wanted[at..at + 4].try_into().unwrap()),
                };
                if is_invalid(primitive, bits) {
                    wanted[at..at + primitive.size()].fill(0);
                    first = first.and(Err(InvalidValueError { primitive, position, bits }));
                }
            }
            position += primitive.size();
        }
        let origin = memory.as_mut_ptr().wrapping_offset(-low as isize);
        // SAFETY: `memory` contains all bytes of the items.
        let found = unsafe { datatype.validate(origin, count, cut) };
        prop_assert_eq!(found, first);
        prop_assert_eq!(memory, wanted);
    }
}

#[test]
fn truncated_char_is_validated() {
    let mut memory = ['a', 'b'].map(u32::from);
    memory[1] |= 0xff00_0000;
    // SAFETY: eight bytes, exclusively borrowed.
    let found = unsafe { Datatype::of::<char>().validate(memory.as_mut_ptr().cast(), 2, 5) };
    assert_eq!(found.unwrap_err().position, 4);
    assert_eq!(memory, [u32::from('a'), 0]);
}

#[test]
fn only_types_that_need_validation_are_reported_as_such() {
    let text = |error: OutOfRangeError| error.to_string();
    let short = Packer::new(&Datatype::of::<u32>(), &[], 0, 1).unwrap_err();
    assert!(!text(short).contains("MaybeUninit"), "{short}");
    let flags = Unpacker::of_slice(&mut [true]).unwrap_err();
    assert!(text(flags).contains("MaybeUninit") && !text(flags).contains(".."), "{flags}");
}

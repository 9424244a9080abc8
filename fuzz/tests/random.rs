//! The targets on random bytes, and on valid messages with a few bytes changed.

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        mpj_fuzz::walk_sections(&bytes);
        mpj_fuzz::read_objects(&bytes);
        mpj_fuzz::pack_unpack(&bytes);
    }

    #[test]
    fn damaged_messages(at in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in any::<prop::sample::Index>()) {
        let mut bytes = mpj_fuzz::valid_message();
        for (index, value) in at {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        mpj_fuzz::walk_sections(&bytes);
        mpj_fuzz::read_objects(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        mpj_fuzz::walk_sections(&bytes);
    }
}

#[test]
fn a_valid_message_is_read() {
    let bytes = mpj_fuzz::valid_message();
    assert!(mpj_fuzz::walk_sections(&bytes) >= 4);
}

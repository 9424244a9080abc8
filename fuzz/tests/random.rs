//! Runs the targets on random bytes.

use proptest::prelude::*;

/// Runs a target on random inputs. Short inputs find errors that long ones would mask.
fn run(name: &str, cases: u32) {
    let target = mpj_fuzz::target(name).unwrap();
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        prop::collection::vec(any::<u8>(), 0..600),
        prop::collection::vec(prop_oneof![2 => 0..8u8, 1 => any::<u8>()], 0..300),
    ];
    proptest!(config, |(bytes in bytes)| target(&bytes));
}

macro_rules! targets {
    ($($name:ident $cases:literal)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name), $cases);
            }
        )*

        #[test]
        fn every_target_is_listed() {
            assert_eq!(mpj_fuzz::TARGETS.map(|(name, _)| name), [$(stringify!($name)),*]);
        }
    };
}

targets! {
    sections 4000
    round_trip 3000
    receiver 4000
    decode 4000
    types 3000
    numbers 4000
    envelopes 2000
    frames 2000
    network 1000
    handshake 4000
    control 4000
    startup 4000
    texts 4000
    streams 4000
    pmix 4000
    shared 1000
    segment 1000
    pool 200
}

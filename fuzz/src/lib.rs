//! Fuzz targets. Each is a plain function on bytes that returns for every input, and panics if the code under test is
//! wrong.
//!
//! | target | what it tests |
//! |---|---|
//! | [`sections`] | messages with wrong fields, walked and read, compared with a second reader of the format |
//! | [`round_trip`] | a written buffer is read here, elsewhere, and in the other byte order |
//! | [`receiver`] | messages with wrong fields that come from a stream in pieces |
//! | [`decode`] | objects from untrusted peers, by both codecs: values, depth, memory |
//! | [`types`] | type trees, packed and unpacked, compared with a list of their bytes |
//! | [`numbers`] | constructors of types with any numbers |
//! | [`envelopes`] | messages of any type into receives of any other: matches, and received data |
//! | [`frames`] | an engine with operations of every kind pending, and a peer that sends any frames |
//! | [`network`] | frames of a TCP connection in any pieces |
//! | [`handshake`] | the proofs that authenticate a connection |
//! | [`control`] | the messages between launcher and processes |
//! | [`shared`] | headers of shared memory |
//! | [`segment`] | shared memory that is overwritten while two ranks communicate through it |
//! | [`pool`] | allocations of every kind, from several threads, compared with a list of live blocks |
//!
//! The targets run in three ways: `cargo test -p mpj-fuzz` runs them on random bytes and on the inputs in `corpus/`,
//! and `fuzz/run TARGET` runs one under libFuzzer. A target reads its input from the front as a list of choices. Any
//! bytes therefore get past the magic numbers: they build a valid structure, except for the fields that they choose
//! to make invalid.

mod control;
mod decode;
mod envelopes;
mod frames;
mod input;
mod network;
mod numbers;
mod peak_memory;
mod pool;
mod receiver;
mod reference_parser;
mod round_trip;
mod sections;
mod segment;
mod shared;
mod types;

// The models and the scenes of the crates' own tests; each target uses some of them. They are included by path: a
// crate for them would be a dependency of the crates that it tests, or would be built to test any one of them.
#[allow(dead_code)]
#[path = "../../devices/tests/suite/frames/bench.rs"]
mod bench;
#[path = "../../pool/tests/suite/contracts.rs"]
mod contracts;
#[allow(dead_code)]
#[path = "../../devices/tests/suite/frames/device.rs"]
mod device;
#[allow(dead_code)]
#[path = "../../devices/tests/suite/frames/head.rs"]
mod head;
#[path = "../../datatypes/tests/suite/model/spec.rs"]
mod model;
#[allow(dead_code)]
#[path = "../../devices/tests/suite/frames/scene.rs"]
mod scene;

pub use control::control;
pub use decode::decode;
pub use envelopes::envelopes;
pub use frames::frames;
pub use network::{handshake, network};
pub use numbers::numbers;
pub use pool::pool;
pub use receiver::receiver;
pub use round_trip::round_trip;
pub use sections::sections;
pub use segment::segment;
pub use shared::shared;
pub use types::types;

/// A target, which accepts any bytes.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 14] = [
    ("sections", sections),
    ("round_trip", round_trip),
    ("receiver", receiver),
    ("decode", decode),
    ("types", types),
    ("numbers", numbers),
    ("envelopes", envelopes),
    ("frames", frames),
    ("network", network),
    ("handshake", handshake),
    ("control", control),
    ("shared", shared),
    ("segment", segment),
    ("pool", pool),
];

/// Returns the target with this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|(known, _)| *known == name).map(|(_, target)| target)
}

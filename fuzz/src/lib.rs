//! Fuzz targets: each is a plain function on bytes that returns, whatever they are, and panics if what it tries is wrong.
//!
//! | target | what it tries |
//! |---|---|
//! | [`sections`] | messages with wrong fields, walked and read, beside a second reader of the format |
//! | [`round_trip`] | what was written to a buffer is read, here, elsewhere, and in the other byte order |
//! | [`receiver`] | messages with wrong fields that come from a stream in pieces |
//! | [`decode`] | objects from strangers, by both codecs: values, depth, memory |
//! | [`types`] | type trees, packed and unpacked beside a list of their bytes |
//! | [`numbers`] | constructors of types with any numbers |
//! | [`envelopes`] | messages of any type into receives of any other: what matches, what lands where |
//! | [`frames`] | an engine in the middle of everything, and a peer that sends anything |
//! | [`network`] | frames of a TCP connection in any pieces |
//! | [`handshake`] | the proofs of who connects |
//! | [`control`] | what launcher and processes tell each other |
//! | [`shared`] | headers of shared memory |
//! | [`segment`] | shared memory that is written over while two ranks talk through it |
//! | [`pool`] | allocations of every kind, from several threads, beside what is known to live |
//!
//! They run in three ways: `cargo test -p mpj-fuzz` gives them random bytes, and what is in `corpus/`; `fuzz/run TARGET`
//! gives them to libFuzzer. An input is read from the front as a list of choices, so that any bytes get past the magic
//! numbers: what they build is valid but for the fields that they say are not.

mod allocated;
mod control;
mod decode;
mod envelopes;
mod format;
mod frames;
mod input;
mod network;
mod numbers;
mod pool;
mod receiver;
mod round_trip;
mod sections;
mod segment;
mod shared;
mod types;

// The models and the scenes of the crates' own tests, of which each target takes its part. They are named by their paths, as
// a crate for them would either stand below those that it is about, or be built by whoever tests one of them alone.
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

/// A target: takes any bytes.
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

/// Returns the target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|(known, _)| *known == name).map(|(_, target)| target)
}

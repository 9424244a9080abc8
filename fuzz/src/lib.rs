//! Fuzz targets: functions on bytes that panic if the code under test is wrong, and return otherwise.
//!
//! | target | what it tests |
//! |---|---|
//! | [`sections`] | messages with invalid fields, compared with a second parser of the format |
//! | [`round_trip`] | a written buffer is read in this process, from its bytes, and in the other byte order |
//! | [`receiver`] | messages with invalid fields that arrive from a stream in pieces |
//! | [`decode`] | decoding of bytes from untrusted peers as objects, with both codecs: values, depth, memory |
//! | [`types`] | datatypes, packed and unpacked, compared with a list of their bytes |
//! | [`numbers`] | datatype constructors with any arguments |
//! | [`envelopes`] | messages of any type into receives of the same or another type |
//! | [`frames`] | an engine with pending sends and receives, and a peer that sends any frames |
//! | [`network`] | frames on a connection of `niodev`, in any pieces |
//! | [`handshake`] | the handshake that authenticates a connection |
//! | [`control`] | messages between `mpjrun` and its processes |
//! | [`startup`] | texts of process managers and sites, and the ranks at a rendezvous |
//! | [`texts`] | cards, ports, addresses, variables, and values in segments |
//! | [`streams`] | messages of agents, of ranks at a rendezvous, and of PMIx servers, in pieces |
//! | [`pmix`] | statements of PMIx servers about jobs, compared with a model |
//! | [`shared`] | headers of shared memory segments |
//! | [`segment`] | shared memory that is overwritten while two ranks communicate |
//! | [`pool`] | allocations from several threads, compared with a list of live blocks |
//!
//! The README shows how to run the targets.

mod control;
mod decode;
mod envelopes;
mod frames;
mod input;
mod network;
mod numbers;
mod peak_memory;
mod pmix;
mod pool;
mod receiver;
mod reference_parser;
mod round_trip;
mod sections;
mod segment;
mod shared;
mod startup;
mod streams;
mod texts;
mod types;

// Models and fixtures of other crates' tests, included by path: a crate for them would cause cyclic dependencies.
#[path = "../../pool/tests/suite/contracts.rs"]
mod contracts;
#[allow(dead_code)]
#[path = "../../devices/tests/suite/frames/device.rs"]
mod device;
#[allow(dead_code)]
#[path = "../../devices/tests/suite/frames/fixture.rs"]
mod fixture;
#[allow(dead_code)]
#[path = "../../devices/tests/suite/frames/head_encoding.rs"]
mod head_encoding;
#[path = "../../datatypes/tests/suite/model/spec.rs"]
mod model;
#[allow(dead_code)]
#[path = "../../devices/tests/suite/frames/pending_ops.rs"]
mod pending_ops;

pub use control::control;
pub use decode::decode;
pub use envelopes::envelopes;
pub use frames::frames;
pub use network::{handshake, network};
pub use numbers::numbers;
pub use pmix::pmix;
pub use pool::pool;
pub use receiver::receiver;
pub use round_trip::round_trip;
pub use sections::sections;
pub use segment::segment;
pub use shared::shared;
pub use startup::startup;
pub use streams::streams;
pub use texts::texts;
pub use types::types;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 18] = [
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
    ("startup", startup),
    ("texts", texts),
    ("streams", streams),
    ("pmix", pmix),
    ("shared", shared),
    ("segment", segment),
    ("pool", pool),
];

/// Returns the target with this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|(known, _)| *known == name).map(|(_, target)| target)
}

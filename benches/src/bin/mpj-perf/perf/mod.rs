//! The programs of `mpj-perf`. `pingpong`, `coll` and `ddt` follow C programs for other MPI libraries, which are not in
//! this repository, loop by loop and print the same lines. So the figures can be compared.

pub(crate) mod affinity;
pub(crate) mod coll;
pub(crate) mod ddt;
mod ddt_by_hand;
mod ddt_patterns;
mod interleaved;
pub(crate) mod matching;
mod memory;
pub(crate) mod paths;
pub(crate) mod payloads;
pub(crate) mod pingpong;
pub(crate) mod pingpong_pools;
mod plot;
pub(crate) mod pools;
pub(crate) mod report;
pub(crate) mod serde;
mod setting;
mod stats;
pub(crate) mod threads;
#[allow(unsafe_code, reason = "calls functions that need the widest registers")]
mod words;

/// Any error that makes a rank return early.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

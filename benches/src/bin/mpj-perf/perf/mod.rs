//! The programs of `mpj-perf`. `pingpong`, `coll` and `ddt` have the loops and the output lines of C programs for other
//! MPI libraries, so that the figures can be compared. The C programs are not in this repository.

pub(crate) mod affinity;
pub(crate) mod calls;
pub(crate) mod coll;
pub(crate) mod ddt;
mod ddt_by_hand;
mod ddt_patterns;
mod interleaved;
pub(crate) mod matching;
mod memory;
pub(crate) mod overlap;
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
#[allow(unsafe_code, reason = "calls AVX-512 code after detection")]
mod words;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

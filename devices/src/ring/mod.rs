//! The connection from one sender to one receiver: a ring of cache lines, and fragments for long bodies.
//!
//! ```text
//!  one cell, 64 B
//!  0              8                                   64 B
//!  │ header word  │ head, then the body or up to three numbers, u32 each (`CellKind`)
//!
//!  header word
//!  0          32      36      42        48            64 bits
//!  │ seq      │ kind  │ head  │ length  │ checksum    │
//!
//!  long body: in fragment `index` of the sender's pool until the receiver returns it, or split over cells
//! ```
//! The sender fills a cell and then stores the header word, whose `seq` is its position + 1 (release). A message of up
//! to 56 bytes, head included, thus costs one cache line. A value that a correct peer never writes ends the connection
//! to that peer, with a reason ([`Malformed`]). `README.md` in this folder describes the other words of a ring, and how
//! each side waits for the other without losing a wake-up.

#[allow(unsafe_code, reason = "raw pointers into fragments")]
mod claim;
mod consumer;
mod endpoint;
mod fragment_sizes;
mod fragments;
mod malformed;
mod memory;
mod memory_key;
#[cfg(all(test, loom))]
mod model;
mod notify;
mod producer;
mod receiver;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use consumer::Consumer;
pub(crate) use endpoint::RingEndpoint;
pub(crate) use fragment_sizes::{FRAGMENT_BYTES, FragmentSizes};
pub(crate) use fragments::{ExitCheck, FragmentMemory, FragmentPool};
pub(crate) use malformed::Malformed;
pub(crate) use memory::{INLINE, Ring};
pub(crate) use memory_key::MemoryKey;
pub(crate) use notify::PeerNotifier;
pub(crate) use producer::Producer;
pub(crate) use receiver::{CELLS_PER_POLL, RingReceiver};

/// Keeps the memory of a ring or of fragments alive.
pub(crate) type Owner = std::sync::Arc<dyn std::any::Any + Send + Sync>;

/// Bytes from which a device with rings exports a pool block. A copy of a shorter one takes less time than the messages
/// of an export.
pub(crate) const EXPORT_MIN: usize = 16 << 10;

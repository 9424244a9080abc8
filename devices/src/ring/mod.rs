//! The wait-free channel between one sender and one receiver: a ring of cache lines, and fragments for long bodies.
//!
//! ```text
//!  one cell, 64 B                                              a long body
//!  0      4     5      6        8 ............ 64              fragment `index` of the sender's area,
//!  seq    form  head   length   head, then the body            lent until the receiver gives it back
//!  u32    u8    u8     u16      or the fragment's index u32 and length u32
//! ```
//! The sender fills a cell and then stores its position + 1 in `seq` (release): one line travels for a message of up
//! to 56 bytes, head included. The receiver keeps its position in `taken`, on a line of its own that it writes only
//! every few cells; the sender reads that line only when its own count says that the ring may be full. In the same way
//! the receiver counts the fragments that it gives back in `returned`. A body for which no fragment is left goes in
//! pieces through the cells, so that what one peer holds never stops another (`area`).
//!
//! Rings and fragments lie in memory of this process (`smdev`) or in a segment that processes share (`shmdev`); the
//! code is the same. Whatever decides anything is read once and checked: a value that no peer in good order writes ends
//! that peer, with a reason ([`Malformed`]), and nothing more is read from its ring. `README.md` in this folder says how
//! each side waits for the other without a lost wake-up.

mod area;
mod bell;
mod consumer;
mod inlet;
mod link;
mod malformed;
mod memory;
#[cfg(all(test, loom))]
mod model;
mod pieces;
mod producer;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use area::{Exit, FragmentPool, Fragments};
pub(crate) use bell::PeerNotifier;
pub(crate) use consumer::Consumer;
pub(crate) use inlet::{RingReceiver, TURN};
pub(crate) use link::RingLink;
pub(crate) use malformed::Malformed;
pub(crate) use memory::{INLINE, Ring};
pub(crate) use pieces::{SharedCopy, Side};
pub(crate) use producer::Producer;

/// What keeps the memory of a ring or an area alive.
pub(crate) type Owner = std::sync::Arc<dyn std::any::Any + Send + Sync>;

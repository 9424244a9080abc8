//! InfiniBand verbs: libibverbs, bound at run time, as values that keep what they need and give themselves back.
//!
//! ```text
//!   Context ◄── Domain ◄── Mr, AddressHandle
//!      ▲          ▲
//!   Completions   SharedReceives
//!      ▲          ▲
//!      └─── Qp ───┘
//! ```
//! Arrows say who holds whom: so each is destroyed after what was made of it. What is *posted* names memory that the
//! device uses later; those calls are unsafe, and their callers say why the memory stays. Nothing else here is.

mod abi;
mod context;
mod library;
mod memory;
mod pair;
mod queue;
#[cfg(all(test, target_os = "linux", not(mpj_portable)))]
mod tests;

pub(crate) use abi::Wc;
pub(crate) use context::{Context, Event, Limits, Port, names};
pub(crate) use memory::{Domain, Mr, Use};
pub(crate) use pair::{AddressHandle, Piece, Qp, QpAttrs, QpSizes, Route};
pub(crate) use queue::{BATCH, Completions, Place, SharedReceives};

/// Whether a completion says only that its queue pair is broken.
pub(crate) fn is_flushed(status: u32) -> bool {
    status == abi::WC_FLUSHED
}

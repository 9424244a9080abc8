//! Communicators, typed.

mod buffer;
mod buffers;
mod collective;
mod in_place;
mod intra;
mod object;
mod p2p;
mod started;

pub use intra::Intracomm;
pub use p2p::Matched;

//! Communicators, typed.

mod buffer;
mod buffers;
mod collective;
mod in_place;
mod intra;
mod lent;
mod object;
mod p2p;
mod prepared;
mod started;

pub use intra::Intracomm;
pub use lent::{ReadOnlyBlock, ReceivedBlock, ReceivedBuffer};
pub use p2p::Message;

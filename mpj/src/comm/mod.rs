//! The typed communicator, [`Intracomm`].

mod attributes;
mod buffer_collectives;
mod buffer_p2p;
mod collective;
mod create;
mod in_place;
mod intra;
mod object;
mod p2p;
mod recv_block;
mod started;

pub use attributes::Key;
pub use create::DupRequest;
pub use intra::Intracomm;
pub use p2p::Message;
pub use recv_block::ReceivedBuffer;

//! The typed communicator, [`Intracomm`].

mod buffer_collectives;
mod buffer_p2p;
mod collective;
mod in_place;
mod intra;
mod neighbor;
mod object;
mod p2p;
mod recv_block;
mod started;

pub use intra::Intracomm;
pub use p2p::Message;
pub use recv_block::ReceivedBuffer;

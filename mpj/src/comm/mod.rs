//! The typed communicator, [`Intracomm`].

mod buffer_collectives;
mod buffer_p2p;
mod collective;
mod in_place;
mod intra;
mod object;
mod object_collectives;
mod p2p;
mod recv_block;
mod started;
mod value;

pub use intra::Intracomm;
pub use p2p::Message;
pub use recv_block::ReceivedBuffer;

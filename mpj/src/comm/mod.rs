//! The typed communicator, [`Intracomm`].

mod buffer_collectives;
mod buffer_p2p;
mod collective;
mod in_place;
mod intra;
mod object;
mod object_requests;
mod p2p;
mod partitioned;
mod persistent;
mod recv_block;
mod recv_vec;
mod send_modes;
mod started;

pub use intra::Intracomm;
pub use object_requests::ObjectRequest;
pub use p2p::Message;
pub use recv_block::ReceivedBuffer;
pub use send_modes::AttachedBuffer;

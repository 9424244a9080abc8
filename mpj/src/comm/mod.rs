//! The typed communicators, [`Intracomm`] and [`Intercomm`].

mod attributes;
mod buffer_collectives;
mod buffer_p2p;
mod collective;
mod communicator;
mod create;
mod in_place;
mod inter;
mod inter_collective;
mod intra;
mod object;
mod object_collectives;
mod p2p;
mod recv_block;
mod started;
mod value;

pub use attributes::Key;
pub use communicator::{Communicator, Inter, Intra};
pub use create::DupRequest;
pub use inter::Intercomm;
pub use inter_collective::IntercommRoot;
pub use intra::Intracomm;
pub use p2p::Message;
pub use recv_block::ReceivedBuffer;

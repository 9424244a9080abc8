//! The typed communicators, [`Intracomm`] and [`Intercomm`].

mod attributes;
mod buffer_collectives;
mod buffer_p2p;
mod collective;
mod communicator;
mod create;
mod idup;
mod in_place;
mod inter;
mod intra;
mod kind;
mod neighbor;
mod object;
mod object_collectives;
mod object_requests;
mod p2p;
mod partitioned;
mod persistent;
mod recv_block;
mod recv_vec;
mod send_modes;
mod started;
mod value;

pub use attributes::Key;
pub use communicator::Communicator;
pub use idup::DupRequest;
pub use inter::Intercomm;
pub use intra::Intracomm;
pub use kind::{CollectiveRoot, CommKind, Inter, IntercommRoot, Intra};
pub use object_requests::ObjectRequest;
pub use p2p::Message;
pub use recv_block::ReceivedBuffer;
pub use send_modes::AttachedBuffer;

//! The untyped core, whose operations work on [`Buf`]s: pointers with a count and a
//! [`Datatype`](struct@mpj_datatypes::Datatype).
//!
//! [`recv_block`] receives a message of unknown length. The typed interface is built on this module. Invalid ranks,
//! tags, roots and counts are rejected with an [`Error`](crate::Error). Pointers cannot be checked, so calls that access
//! a buffer are unsafe.
//!
//! # Contract of every call
//! * Send buffer: the bytes of the items, or of the segments of a chain, are initialised, and no code writes them until
//!   the operation has completed. If the call was given a [`KeepAlive`], no code writes them while a clone of it exists
//!   either, because the receiver may read them in place. The bytes need not be valid values of their type: a receiver,
//!   including this rank in a collective, checks each `bool` and `char`, and fails if one is invalid.
//! * Receive buffer: the bytes of the items may be written, even if the operation fails, and no other code reads or
//!   writes them until the operation has completed. The operation writes only valid `bool` and `char` values. For an
//!   in-place reduction they must also be valid when it starts.
//! * An operation has completed when its blocking call returns, when `wait` or `test` of its [`Request`] or
//!   [`PersistentCollective`] reports it, or when the [`KeepAlive`] given to a non-blocking call has been dropped.
//!
//! A blocking call returns only after its operations have completed. If a user function panics in a blocking
//! collective, the call waits for its operations before the panic unwinds. Any other panic while they are pending
//! aborts the process; only a defect, or a [`KeepAlive`] that panics on drop, can cause it.

mod abort_on_unwind;
mod coll_bufs;
mod collective;
pub(crate) mod collective_call;
mod collective_requests;
mod comm;
mod dist_graph;
mod neighbor;
mod p2p;
mod plans;
mod recv_block;
mod request;
mod topology;
mod wait_many;

pub use crate::op::Op;
pub(crate) use abort_on_unwind::abort_on_unwind;
pub use coll_bufs::BlockLayout;
pub use collective::*;
pub use collective_call::Collective;
pub use collective_requests::{PersistentCollective, collective_init, start};
pub use comm::{Comm, UNDEFINED};
pub use dist_graph::{dist_graph_create, dist_graph_create_adjacent};
pub use mpj_devices::{
    ANY_SOURCE, ANY_TAG, Buf, BufError, Chain, ChainSegment, Group, KeepAlive, MatchedMessage, Mode, Origin,
    RegionRef,
};
pub use mpj_pool::RegionKey;
pub use neighbor::{neighbor_allgather, neighbor_alltoall, neighbor_alltoallw};
pub use p2p::*;
pub use recv_block::{InPlace, ReceivedBlock, mrecv_block, recv_block};
pub(crate) use recv_block::{alloc_for, mrecv_block_as, mrecv_in, recv_block_as};
pub(crate) use request::OpInfo;
pub use request::Request;
pub use topology::{
    TopologyLayout, VirtualTopology, cart_create, cart_map, cart_sub, graph_create, graph_map, topology,
};
pub(crate) use wait_many::{PendingOp, progress_all, wait_for, wait_for_all};
pub use wait_many::{test_all, test_any, test_some, wait_all, wait_any, wait_some};

/// The null process as source or destination: the operation completes at once, without a message.
pub const PROC_NULL: i32 = crate::address::PROC_NULL_NUMBER;

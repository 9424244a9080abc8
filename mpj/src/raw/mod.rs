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
//!   [`PersistentOperation`] reports it, or when the [`KeepAlive`] given to a non-blocking call has been dropped.
//!
//! A blocking call returns only after its operations have completed. If a user function panics in a blocking
//! collective, the call waits for its operations before the panic unwinds. Any other panic while they are pending
//! aborts the process; only a defect, or a [`KeepAlive`] that panics on drop, can cause it.
#![doc = include_str!("mpi.md")]

mod abort_on_unwind;
mod buffered;
mod coll_bufs;
mod collective;
pub(crate) mod collective_call;
mod collective_parts;
mod collective_requests;
mod comm;
mod dist_graph;
mod generalized;
mod group;
mod message_op;
mod neighbor;
mod p2p;
mod pack;
mod packed_copy;
mod part_channel;
mod part_handshake;
mod partitioned_recv;
mod partitioned_send;
mod persistent;
mod persistent_message;
mod plans;
mod probe;
mod recv_block;
mod reduce_local;
mod request;
mod sendrecv;
mod signed_blocks;
mod topology;
mod wait_many;

pub use crate::op::Op;
pub(crate) use abort_on_unwind::abort_on_unwind;
pub use buffered::{BSEND_OVERHEAD, attach, bsend, detach, flush_buffer, iflush_buffer};
pub(crate) use buffered::{abandon_buffer, bsend_as};
pub use coll_bufs::BlockLayout;
pub use collective::*;
pub use collective_call::Collective;
pub use collective_requests::{collective_init, start};
pub use comm::{Attribute, AttributeKey, Comm, ErrorHandler, PendingDup, SplitType, UNDEFINED};
pub use dist_graph::{dist_graph_create, dist_graph_create_adjacent};
pub use generalized::{CancelHook, Completer, GeneralizedHooks, QueryHook, generalized};
pub use group::{
    Comparison, RankRange, group_compare, group_difference, group_exclude, group_exclude_ranges,
    group_include, group_include_ranges, group_intersection, group_translate, group_union,
};
pub use mpj_devices::{
    ANY_SOURCE, ANY_TAG, Buf, BufError, Chain, ChainSegment, Group, KeepAlive, MatchedMessage, Mode, Origin,
    RegionRef,
};
pub use mpj_pool::RegionKey;
pub use neighbor::{neighbor_allgather, neighbor_alltoall, neighbor_alltoallw};
pub use p2p::*;
pub(crate) use p2p::{irecv_as, isend_as, try_isend};
pub use pack::{pack, pack_external32, pack_size, unpack, unpack_external32};
pub use partitioned_recv::precv_init;
pub use partitioned_send::psend_init;
pub(crate) use persistent::still_active;
pub use persistent::{PersistentOperation, start_all};
pub use persistent_message::{bsend_init, recv_init, rsend_init, send_init};
pub use probe::*;
pub use recv_block::{ReadInPlace, ReceivedBlock, mrecv_block, recv_block};
pub(crate) use recv_block::{alloc_for, irecv_any_length, mrecv_block_as, mrecv_in, recv_block_as};
pub use reduce_local::reduce_local;
pub(crate) use request::OpInfo;
pub use request::Request;
pub use sendrecv::*;
pub use signed_blocks::buf_of_blocks;
pub use topology::{
    TopologyLayout, VirtualTopology, cart_create, cart_map, cart_sub, graph_create, graph_map, topology,
};
pub(crate) use wait_many::{
    PendingOp, deadline, progress_all, wait_for, wait_for_all, wait_for_all_until, wait_for_until, wait_on,
};
pub use wait_many::{
    status_all, status_any, status_some, test_all, test_any, test_some, wait_all, wait_all_timeout, wait_any,
    wait_any_timeout, wait_some,
};

/// The null process as source or destination: the operation completes at once, without a message.
pub const PROC_NULL: i32 = crate::address::PROC_NULL_NUMBER;

/// The root argument of the root itself, in a collective of an intercommunicator. The other ranks of its group pass
/// [`PROC_NULL`], and those of the other group the rank of the root.
pub const ROOT: i32 = -4;

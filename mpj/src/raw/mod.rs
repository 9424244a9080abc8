//! The erased core: every operation on a [`Buf`], which is a pointer, a count and a
//! [`Datatype`](struct@mpj_datatypes::Datatype).
//!
//! The typed face only converts and checks; a C face can sit here without a second implementation. Ranks, tags, roots
//! and counts are checked and refused as [`Error`](crate::Error)s; pointers cannot be checked, so the calls are unsafe.
//!
//! # Contract of every call
//! * A send buffer: the bytes that the items name are initialised, and nobody writes them until the operation has ended.
//!   So are the segments of a chain. If the call was given a [`KeepAlive`], nobody writes them as long as there is a copy of that
//!   either: the receiver may look at them where they lie. They need not be values of their type: a receiver, also this rank in
//!   a collective, checks each `bool` and `char`, and fails if one is invalid.
//! * A receive buffer: those bytes may be written, whatever comes, and nobody else reads or writes them until the
//!   operation has ended. `bool` and `char` elements are valid when it has. If a reduction is in place, they are also valid
//!   when it begins.
//! * An operation has ended when its blocking call returns, or when [`Request::wait`] or [`Request::test`] says so, or
//!   when the [`KeepAlive`] given to a non-blocking call has been dropped.
//!
//! A blocking call returns only when its operations have ended. A panic in the middle of it would break that promise, so
//! it ends the process; there is none but by a defect, or by the drop of a [`KeepAlive`] that panics. A collective first sees its
//! operations end, and then lets the panic go on: functions of the user's run in its middle.

mod collective;
mod comm;
mod items;
mod p2p;
mod plans;
mod request;
mod start;
mod together;
mod unwind;

pub use crate::op::Op;
pub use collective::*;
pub use comm::{Comm, UNDEFINED};
pub use items::BlockLayout;
pub use mpj_devices::{
    ANY_SOURCE, ANY_TAG, Buf, BufError, Chain, ChainSegment, Group, KeepAlive, MatchedMessage, Mode, Origin,
    RegionRef,
};
pub use mpj_pool::RegionKey;
pub use p2p::*;
pub(crate) use request::OpInfo;
pub use request::Request;
pub use start::{Collective, PersistentCollective, collective_init, start};
pub(crate) use together::{PendingOp, look, until, until_all};
pub use together::{test_all, test_any, test_some, wait_all, wait_any, wait_some};
pub(crate) use unwind::abort_on_unwind;

/// Nobody, as source and as destination.
pub const PROC_NULL: i32 = crate::endpoint::PROC_NULL_NUMBER;

//! The tests of this crate that can share a process, in one program: shared code is compiled once, and tests that wait
//! run at the same time.

mod buffers;
mod collective_mismatch;
mod collectives;
mod common;
mod communicators;
mod diagnostics;
mod failures;
mod features;
mod hangs;
mod isolation;
mod messages;
mod nonblocking;
mod objects;
mod p2p;
mod panics;
mod parameters;
mod paths;
mod persistent;
mod primitives;
mod protocols;
mod raw;
mod recv_block;
mod reductions;
mod requests;
mod scopes;
mod split_views;
mod stats;
mod trace;
mod type_safety;
mod user_drop;
mod user_ops;
mod wait_many;

//! The tests of this crate that need no process of their own, in one program: shared code is compiled once, and tests
//! that wait run at the same time.

mod alike;
mod buffers;
mod collectives;
mod common;
mod communicators;
mod diagnostics;
mod failures;
mod features;
mod given_away;
mod hangs;
mod lent;
mod messages;
mod neighbours;
mod nonblocking;
mod objects;
mod out_of_step;
mod p2p;
mod panics;
mod parameters;
mod paths;
mod pieces;
mod prepared;
mod primitives;
mod raw;
mod reductions;
mod requests;
mod scopes;
mod stats;
mod together;
mod trace;
mod user_ops;
mod ways;

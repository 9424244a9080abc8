//! Collectives: each algorithm makes a list of steps for one rank, and [`schedule`] runs it.
//!
//! An algorithm is a function of (rank, size, counts) to steps; it moves no data itself, so it can be tested without a
//! job and run blocking or not.

pub(crate) mod all;
pub(crate) mod reduce;
pub(crate) mod rooted;
pub(crate) mod scan;
pub(crate) mod schedule;

//! Collectives: each algorithm makes a list of steps for one rank, [`schedule`] runs it, in a call that blocks ([`turn`]) or
//! is driven by the engine ([`task`]), and [`part`] sees to it that all ranks are in step: README.md beside this file.
//!
//! An algorithm is a function of (rank, size, counts) to steps; it moves no data itself, so it is tested without a
//! job, by a simulator, and run blocking or not.

pub(crate) mod all;
pub(crate) mod context;
mod counts;
mod course;
pub(crate) mod label;
mod notice;
pub(crate) mod part;
mod patience;
pub(crate) mod plan;
mod receipt;
pub(crate) mod reduce;
pub(crate) mod rooted;
pub(crate) mod scan;
pub(crate) mod schedule;
#[cfg(test)]
mod simulator;
pub(crate) mod step;
pub(crate) mod task;
pub(crate) mod tuning;
pub(crate) mod turn;

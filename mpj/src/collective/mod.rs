//! Collectives. Each algorithm computes a list of steps for one rank. [`schedule`] runs the list, either in a blocking
//! call ([`turn`]) or as a task of the engine ([`task`]). [`part`] detects ranks that are out of step. See `README.md`
//! in this folder.
//!
//! An algorithm is a function from (rank, size, counts) to steps. It moves no data, so a simulator can test it without
//! a job, and the same steps serve blocking and non-blocking calls.

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

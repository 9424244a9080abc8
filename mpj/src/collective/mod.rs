//! Collectives. Each algorithm is a function that returns the list of steps of one rank. [`schedule`] runs the list,
//! either in a blocking call ([`blocking`]) or as a task of the engine ([`task`]). See `README.md` in this folder.

pub(crate) mod active_call;
pub(crate) mod all_to_all;
pub(crate) mod blocking;
pub(crate) mod call_tag;
mod check;
pub(crate) mod context;
mod notice;
pub(crate) mod plan;
pub(crate) mod reduce;
pub(crate) mod rooted;
pub(crate) mod scan;
pub(crate) mod schedule;
mod sequence;
#[cfg(test)]
mod simulator;
mod stall;
mod state;
pub(crate) mod step;
pub(crate) mod task;
pub(crate) mod tuning;

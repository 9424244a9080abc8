//! Collectives. `mpj_collectives` computes the list of steps of one rank. [`schedule`] runs the list, either in a
//! blocking call ([`blocking`]) or as a task of the engine ([`task`]). See `README.md` in this folder.

pub(crate) mod blocking;
pub(crate) mod call_id;
mod check;
pub(crate) mod context;
pub(crate) mod notice;
pub(crate) mod parameters;
pub(crate) mod plan;
pub(crate) mod schedule;
mod sequence;
mod stall;
mod state;
pub(crate) mod task;
mod temp_buffers;

//! The integration tests of this crate, as one program, so that shared code is compiled once.

mod against_model;
mod derive;
mod features;
mod kernels;
mod limits;
mod model;
mod raw;
mod validate;
mod whole;

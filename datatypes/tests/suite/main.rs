//! The integration tests of this crate.

mod against_model;
mod derive;
mod features;
mod kernels;
mod limits;
mod model;
mod raw;
mod validate;
mod whole;

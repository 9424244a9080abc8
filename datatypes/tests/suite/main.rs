//! The integration tests of this crate.

mod against_model;
mod derive;
mod features;
mod kernels;
mod limits;
mod made_of;
mod model;
mod raw;
mod validate;

//! The tests of this crate that need no process of their own, as one program: shared code is compiled once, and tests
//! that wait run in parallel.

mod against_model;
mod derive;
mod features;
mod kernels;
mod limits;
mod model;
mod raw;
mod validate;
mod whole;

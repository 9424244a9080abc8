//! The tests of this crate that need no process of their own, in one program: what they share is compiled once, and tests
//! that wait run beside each other.

mod against_model;
mod derive;
mod features;
mod kernels;
mod limits;
mod model;
mod raw;
mod validate;
mod whole;

//! The tests of this crate that need no process of their own, in one program: what they share is compiled once, and tests
//! that wait run beside each other.

mod allocator;
mod contracts;
mod file;
mod gone;
mod interop;
mod model;
mod pools;
mod refused;
mod registrations;
mod shared;
mod storages;

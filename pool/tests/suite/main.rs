//! The tests of this crate that need no process of their own, as one program: shared code is compiled once, and tests
//! that wait run in parallel.

mod allocator;
mod contracts;
mod dropped_pool;
mod file;
mod interop;
mod model;
mod pools;
mod refused;
mod registrations;
mod shared;
mod storages;

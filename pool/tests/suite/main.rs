//! All tests that need no process of their own, in one program.

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

//! All integration tests except `odd_alloc`, which replaces the global allocator.

mod allocator;
mod contracts;
mod dropped_pool;
mod file;
mod interop;
mod model;
mod pools;
mod refused;
mod registrations;
mod returned;
mod shared;
mod storages;

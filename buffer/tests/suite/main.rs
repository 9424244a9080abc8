//! The integration tests that need no process of their own, as one program, so that shared code is compiled once.

mod codecs;
mod common;
mod edges;
mod golden;
mod half_and_complex;
mod hostile;
mod kinds;
#[cfg(target_pointer_width = "64")]
mod large;
mod model;
mod mpjbuf;
mod objects;
mod orders;
mod receiver;
mod reserves;
mod roundtrip;
mod scatter_gather;
mod shared;
mod streams;

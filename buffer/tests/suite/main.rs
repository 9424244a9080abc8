//! The integration tests that need no process of their own, as one program, so that shared code is compiled once.

mod codecs;
mod common;
mod edges;
mod extras;
mod golden;
mod hostile;
mod kinds;
#[cfg(target_pointer_width = "64")]
mod large;
mod model;
mod mpjbuf;
mod objects;
mod orders;
mod places;
mod receiver;
mod reserves;
mod roundtrip;
mod shared;
mod streams;
